"""The training loop: stopping, best parameters, batches, determinism, and resuming bit for bit."""

import numpy as np
import pytest
import torch
from torch import nn

from rankformer.data.interactions import Interactions
from rankformer.data.registry import find_dataset
from rankformer.data.source import DataSource
from rankformer.errors import DataError, TrainingError
from rankformer.evaluation.validator import make_validator
from rankformer.graph.bipartite import BipartiteGraph
from rankformer.models.rankformer import Rankformer, RankformerNetwork, RankformerSettings
from rankformer.runs.checkpoint import CheckpointStore
from rankformer.scoring.embeddings import Embeddings
from rankformer.training.context import FitContext, TrainingState
from rankformer.training.network import Network
from rankformer.training.settings import TrainingSettings
from rankformer.training.trainer import TrainingLoop, train

pytestmark = pytest.mark.usefixtures("one_thread")


def random_log(n=30, m=20, size=200, seed=0):
    pairs = np.random.default_rng(seed).choice(n * m, size, replace=False)
    return Interactions.from_indices(pairs // m, pairs % m, n, m)


@pytest.fixture(scope="module")
def graph():
    return BipartiteGraph.from_interactions(random_log())


class Counter(Network):
    """A toy network: its one parameter goes down by the learning rate at every step, and each batch is kept."""

    def __init__(self, settings, on_step=lambda step, value: value.sum()):
        super().__init__(30, 20, settings)
        self.value = nn.Parameter(torch.zeros(1))
        self.on_step = on_step
        self.seen = []

    def loss(self, graph, batch):
        self.seen.append(batch)
        return self.on_step(batch.step, self.value)

    def scorer(self, graph):
        ones = torch.ones(graph.num_nodes, 1) * self.value
        return Embeddings(ones[: graph.num_users], ones[graph.num_users :])


def train_counter(graph, settings, network=None, **context):
    """Train a `Counter`, or the given toy network; return it, how it ended and the events."""
    network, events = network or Counter(settings), []
    progress = train(network, graph, settings, FitContext(record=events.append, **context))
    return network, progress, events


class Script:
    """A `validate` that returns the given values in turn and keeps what the parameter was."""

    def __init__(self, values, metric="ndcg@20"):
        self.values, self.metric, self.seen = list(values), metric, []

    def __call__(self, scorer):
        self.seen.append(scorer.users[0, 0].item())
        return {self.metric: self.values[len(self.seen) - 1], "recall@20": 0.0}


def epochs_validated(events):
    return [event["epoch"] for event in events if event["event"] == "validation"]


def test_the_best_parameters_are_restored_and_the_best_epoch_returned(graph):
    script = Script([0.1, 0.5, 0.3, 0.4])
    settings = TrainingSettings(epochs=8, validate_every=2, patience=10)
    network, progress, events = train_counter(graph, settings, validate=script)
    assert (progress.best_epoch, progress.best_value, progress.epoch) == (4, 0.5, 8)
    assert network.value.item() == script.seen[1] != script.seen[-1]
    assert [event["best"] for event in events if event["event"] == "validation"] == [True, True, False, False]


def test_an_equal_value_is_not_better(graph):
    settings = TrainingSettings(epochs=3, validate_every=1)
    _, progress, _ = train_counter(graph, settings, validate=Script([0.5, 0.5, 0.5]))
    assert progress.best_epoch == 1


def test_training_stops_after_patience_validations_without_a_better_value(graph):
    script = Script([0.1, 0.2, 0.1, 0.3, 0.2, 0.2, 0.2, 0.9])
    settings = TrainingSettings(epochs=100, validate_every=3, patience=3)
    network, progress, events = train_counter(graph, settings, validate=script)
    assert epochs_validated(events) == [3, 6, 9, 12, 15, 18, 21]
    assert (progress.epoch, progress.best_epoch, progress.validations_since_best) == (21, 12, 3)
    assert network.value.item() == script.seen[3]


def test_the_last_epoch_is_validated_even_off_the_beat(graph):
    settings = TrainingSettings(epochs=7, validate_every=3)
    _, progress, events = train_counter(graph, settings, validate=Script([0.1, 0.2, 0.3]))
    assert progress.best_epoch == 7
    assert epochs_validated(events) == [3, 6, 7]
    assert [event["epoch"] for event in events if event["event"] == "epoch"] == list(range(1, 8))


def test_without_validation_the_last_epoch_counts(graph):
    network, progress, _ = train_counter(graph, TrainingSettings(epochs=5, learning_rate=0.5))
    assert (progress.best_epoch, progress.best_value) == (5, None)
    assert network.value.item() == pytest.approx(-2.5, abs=1e-4)


def test_the_metric_of_the_settings_decides(graph):
    script = Script([0.1, 0.9], metric="recall@5")
    settings = TrainingSettings(epochs=2, validate_every=1, metric="recall@5")
    assert train_counter(graph, settings, validate=script)[1].best_value == 0.9


def not_finite_loss(step, value):
    return value.sum() * (float("nan") if step == 3 else 1.0)


def not_finite_gradient(step, value):
    # The root of 0 is 0 and its slope infinite: a finite loss whose gradient is not.
    return value.sum() + ((value * 0).abs().sqrt().sum() if step == 3 else 0.0)


@pytest.mark.parametrize(("on_step", "culprit"), [(not_finite_loss, "loss"), (not_finite_gradient, "gradient")])
def test_what_is_not_finite_stops_training_at_once_with_the_step(graph, on_step, culprit):
    settings, events = TrainingSettings(epochs=10, batch_size=80), []  # three steps per epoch
    network = Counter(settings, on_step)
    with pytest.raises(TrainingError, match=rf"step 3 \(epoch 1\): the {culprit} is not finite.*learning_rate"):
        train(network, graph, settings, FitContext(record=events.append))
    assert len(network.seen) == 3
    assert events == []
    assert torch.isfinite(network.value).all(), "the step that failed must not be taken"


def test_embeddings_that_are_not_finite_stop_training_before_validation(graph):
    settings, script = TrainingSettings(epochs=1, learning_rate=3e38), Script([0.1])
    network = Counter(settings)
    network.value.data.fill_(-3e38)
    with pytest.raises(TrainingError, match=r"step 1 .*embeddings are not finite"):
        train_counter(graph, settings, network, validate=script)
    assert script.seen == []


def test_a_mini_batch_epoch_visits_every_edge_once_in_an_order_of_its_own(graph):
    batches = train_counter(graph, TrainingSettings(epochs=3, batch_size=64))[0].seen
    per_epoch = [torch.cat([batch.edges for batch in batches[start : start + 4]]) for start in (0, 4, 8)]
    assert [len(batch.edges) for batch in batches[:4]] == [64, 64, 64, 8]
    for order in per_epoch:
        assert torch.equal(order.sort().values, torch.arange(graph.num_edges))
        assert not torch.equal(order, torch.arange(graph.num_edges))
    assert not torch.equal(per_epoch[0], per_epoch[1])
    assert not torch.equal(per_epoch[1], per_epoch[2])
    assert [batch.step for batch in batches] == list(range(1, 13))


def test_batches_by_users_keep_the_edges_of_a_user_together(graph):
    batches = train_counter(graph, TrainingSettings(epochs=2, batch_size=64, batch_by="users"))[0].seen
    for start in (0, 4):
        order = torch.cat([batch.edges for batch in batches[start : start + 4]])
        assert torch.equal(order.sort().values, torch.arange(graph.num_edges))
        users = torch.unique_consecutive(graph.edge_users[order])
        assert len(users) == len(users.unique()), "no user comes twice"
        assert not torch.equal(users, users.sort().values)
    assert not torch.equal(batches[0].edges, batches[4].edges)


@pytest.mark.parametrize("size", [None, 200, 10_000])
def test_a_batch_that_holds_everything_is_the_full_batch(graph, size):
    batches = train_counter(graph, TrainingSettings(epochs=2, batch_size=size))[0].seen
    assert [batch.edges for batch in batches] == [None, None]
    assert [len(batch.negatives) for batch in batches] == [graph.num_edges] * 2
    assert not torch.equal(batches[0].negatives, batches[1].negatives)


def test_a_seed_decides_order_and_negatives(graph):
    runs = [train_counter(graph, TrainingSettings(epochs=1, batch_size=64, seed=seed))[0].seen for seed in (1, 1, 2)]
    first, same, other = (
        [torch.cat([getattr(batch, part) for batch in batches]) for part in ("edges", "negatives")] for batches in runs
    )
    assert torch.equal(first[0], same[0])
    assert torch.equal(first[1], same[1])
    assert not torch.equal(first[0], other[0])
    assert not torch.equal(first[1], other[1])


def small_settings(**changes):
    defaults = {"epochs": 12, "validate_every": 2, "learning_rate": 0.05, "embedding_dim": 8, "num_layers": 2}
    defaults |= {"schedule": "constant"}
    return RankformerSettings(**{**defaults, **changes})


def train_rankformer(graph, settings, **context):
    network, events = RankformerNetwork(graph.num_users, graph.num_items, settings), []
    progress = train(network, graph, settings, FitContext(record=events.append, **context))
    return network.table.detach().clone(), events, progress


def without_seconds(events):
    return [{name: value for name, value in event.items() if name != "seconds"} for event in events]


@pytest.mark.parametrize("batch_size", [None, 64])
def test_the_same_seed_gives_the_same_bits_and_another_does_not(graph, batch_size):
    settings = small_settings(batch_size=batch_size)
    first, events, _ = train_rankformer(graph, settings)
    again, same_events, _ = train_rankformer(graph, settings)
    other, _, _ = train_rankformer(graph, settings.replace(seed=1))
    assert torch.equal(first, again)
    assert without_seconds(events) == without_seconds(same_events)
    assert not torch.equal(first, other)


@pytest.mark.parametrize("batch_size", [None, 64])
def test_training_lowers_the_loss(graph, batch_size):
    _, events, _ = train_rankformer(graph, small_settings(epochs=40, batch_size=batch_size))
    losses = [event["loss"] for event in events]
    assert losses[0] == pytest.approx(np.log(2), abs=0.05)
    assert np.mean(losses[-3:]) < 0.7 * losses[0]


@pytest.mark.parametrize("values", [[0.1] * 12, None], ids=["validated", "not validated"])
def test_the_clock_runs_and_never_goes_back(graph, values):
    validate = Script(values) if values else None
    _, events, progress = train_rankformer(graph, small_settings(), validate=validate)
    seconds = [event["seconds"] for event in events]
    assert seconds == sorted(seconds)
    assert seconds[-1] > 0
    assert progress.seconds >= seconds[-1] - 1e-3


class KeptCheckpoints:
    """Keeps every checkpoint on disk, in a folder per epoch."""

    def __init__(self, folder):
        self.folder = folder

    def save(self, epoch, state):
        CheckpointStore(self.folder / f"kept-{epoch}", {}).save(epoch, *state)

    def load(self, epoch):
        return TrainingState(*CheckpointStore(self.folder / f"kept-{epoch}", {}).load())

    def epochs(self):
        return sorted(int(folder.name.partition("-")[2]) for folder in self.folder.glob("kept-*"))


def scripted(values, settings, epoch):
    """The script as it continues after `epoch`."""
    return Script(values[epoch // settings.validate_every :])


# Rises, then falls for good: with patience 3 the run stops before its last epoch.
VALUES = [0.1, 0.3, 0.2, 0.4, 0.1, 0.2, 0.3, 0.9, 0.9, 0.9]


@pytest.mark.parametrize(
    ("batch_size", "values", "epochs"),
    [(None, VALUES, 20), (64, VALUES, 20), (None, None, 7), (64, None, 7), (64, VALUES, 5)],
    ids=["full, stops early", "mini, stops early", "full, no validation", "mini, no validation", "mini, odd end"],
)
def test_resuming_from_any_checkpoint_is_bitwise_the_uninterrupted_run(graph, tmp_path, batch_size, values, epochs):
    settings = small_settings(epochs=epochs, batch_size=batch_size, patience=3)
    checkpoints = KeptCheckpoints(tmp_path)
    validate = scripted(values, settings, 0) if values else None
    table, events, progress = train_rankformer(graph, settings, validate=validate, checkpoints=checkpoints)
    kept = checkpoints.epochs()
    assert kept == [epoch for epoch in range(1, progress.epoch + 1) if epoch % 2 == 0 or epoch == epochs]
    for epoch in kept:
        validate = scripted(values, settings, epoch) if values else None
        resumed = {"validate": validate, "resume_from": checkpoints.load(epoch)}
        again, later, end = train_rankformer(graph, settings, **resumed)
        assert torch.equal(again, table), f"from epoch {epoch}"
        past = [event for event in events if event["epoch"] <= epoch]
        assert without_seconds(past + later) == without_seconds(events)
        assert (end.epoch, end.step) == (progress.epoch, progress.step)
        assert (end.best_epoch, end.best_value) == (progress.best_epoch, progress.best_value)
        assert end.validations_since_best == progress.validations_since_best


def test_a_resumed_run_does_not_start_its_clock_again(graph, tmp_path):
    settings, checkpoints = small_settings(epochs=4), KeptCheckpoints(tmp_path)
    train_rankformer(graph, settings, checkpoints=checkpoints)
    tensors, numbers = checkpoints.load(2)
    state = TrainingState(tensors, {**numbers, "seconds": 1000.0})
    _, events, _ = train_rankformer(graph, settings, resume_from=state)
    assert events[0]["seconds"] >= 1000


def test_further_numbers_may_travel_with_a_checkpoint(graph, tmp_path):
    settings, checkpoints = small_settings(epochs=4), KeptCheckpoints(tmp_path)
    table, _, _ = train_rankformer(graph, settings, checkpoints=checkpoints)
    tensors, numbers = checkpoints.load(2)
    assert numbers["epoch"] == 2
    checkpoints.save(99, TrainingState(tensors, {**numbers, "log_events": 17}))
    state = checkpoints.load(99)
    assert state.numbers["log_events"] == 17
    again, _, _ = train_rankformer(graph, settings, resume_from=state)
    assert torch.equal(again, table)


@pytest.mark.parametrize("name", ["ali-display", "epinions"])
def test_real_data_trains_two_epochs_with_falling_loss_and_a_finite_validation(name):
    try:
        find_dataset(name)
    except DataError:
        pytest.skip(f"RANKFORMER_DATA names no folder with {name}")
    learn, valid, _ = DataSource(source=name).load()
    model = Rankformer(epochs=2, validate_every=1, num_layers=2).fit(learn, valid=valid)
    losses = [event["loss"] for event in model.log if event["event"] == "epoch"]
    values = [event["ndcg@20"] for event in model.log if event["event"] == "validation"]
    assert losses[1] < losses[0]
    assert len(values) == 2
    assert all(0 < value < 1 for value in values)
    assert model.embeddings.is_finite()
    assert make_validator(learn, valid)(model.embeddings)["ndcg@20"] == pytest.approx(max(values))


def test_a_validation_that_is_not_a_number_stops_the_run(graph):
    settings = TrainingSettings(epochs=4, validate_every=2)
    with pytest.raises(TrainingError, match=r"step 4 \(epoch 4\): ndcg@20 is nan"):
        train_counter(graph, settings, validate=Script([0.1, float("nan")]))


@pytest.mark.parametrize(("clip_norm", "expected"), [(None, 6.0), (10.0, 6.0), (3.0, 3.0)])
def test_a_long_gradient_is_shortened_over_all_parameters_together(graph, clip_norm, expected):
    settings = TrainingSettings(clip_norm=clip_norm)
    network = Counter(settings, lambda step, value: 3 * value.sum() + 3 * network.other.sum())
    network.other = nn.Parameter(torch.zeros(3))  # with `value` four entries of 3: a gradient of length 6
    loop = TrainingLoop(network, graph, settings)
    loop.one_step(None)
    assert torch.cat([network.value.grad, network.other.grad]).norm().item() == pytest.approx(expected, rel=1e-5)


def test_gradients_do_not_add_up_over_steps_and_a_parameter_that_a_step_misses_has_none(graph):
    settings = TrainingSettings()
    network = Counter(settings, lambda step, value: 3 * (value if step < 3 else network.other).sum())
    network.other = nn.Parameter(torch.zeros(2))
    loop = TrainingLoop(network, graph, settings)
    for _ in range(2):
        loop.one_step(None)
        assert (network.value.grad.tolist(), network.other.grad) == ([3.0], None)
    loop.one_step(None)
    assert (network.value.grad, network.other.grad.tolist()) == (None, [3.0, 3.0])


def test_cosine_decay_starts_at_the_learning_rate_and_ends_near_zero(graph):
    settings = TrainingSettings(epochs=10, learning_rate=0.5, schedule="cosine")
    loop = TrainingLoop(Counter(settings), graph, settings)
    rates = []
    for epoch in range(1, 11):
        loop.progress.epoch = epoch
        loop.one_epoch()
        rates.append(loop.learning_rate)
    assert rates[0] == 0.5
    assert rates == sorted(rates, reverse=True)
    assert rates[5] == pytest.approx(0.25)
    assert 0 < rates[-1] < 0.02


class Staged(Network):
    """A toy network that chooses its batches, whose steps move one of two parameters, and that has a buffer."""

    learns_from = "nodes"

    def __init__(self, settings):
        super().__init__(30, 20, settings)
        self.value, self.seen = nn.Parameter(torch.zeros(1)), []
        self.other = nn.Parameter(torch.zeros(1))
        self.register_buffer("trace", torch.zeros(2))

    def batches(self, graph, epoch):
        yield from (torch.tensor([self.seed, epoch]), torch.tensor([graph.num_users]))

    def loss(self, graph, batch):
        self.seen.append(batch)
        return self.value.sum() if batch.nodes[0] < graph.num_users else self.other.sum()

    def scorer(self, graph):
        return Counter.scorer(self, graph)

    def after_step(self, graph, batch):
        self.trace += torch.stack([self.value.detach()[0], self.other.detach()[0]]) * batch.step


def test_a_network_may_choose_its_batches_the_parameters_it_moves_and_what_it_overwrites(graph, tmp_path):
    settings = TrainingSettings(epochs=3, learning_rate=0.1, validate_every=1, seed=7)
    checkpoints = KeptCheckpoints(tmp_path)
    network, _, _ = train_counter(graph, settings, Staged(settings), checkpoints=checkpoints)
    assert [batch.nodes.tolist() for batch in network.seen] == [[7, 1], [30], [7, 2], [30], [7, 3], [30]]
    assert all(batch.edges is None and len(batch.negatives) == 0 for batch in network.seen)
    assert (network.value.item(), network.other.item()) == (pytest.approx(-0.3), pytest.approx(-0.3))
    # After steps 1..6 the two parameters stood at -.1 0, -.1 -.1, -.2 -.1, -.2 -.2, -.3 -.2, -.3 -.3.
    assert network.trace.tolist() == pytest.approx([-(0.1 * 3 + 0.2 * 7 + 0.3 * 11), -(0.1 * 5 + 0.2 * 9 + 0.3 * 6)])
    resumed, _, _ = train_counter(graph, settings, Staged(settings), resume_from=checkpoints.load(2))
    for name, value in network.state_dict().items():
        assert torch.equal(value, resumed.state_dict()[name]), name
