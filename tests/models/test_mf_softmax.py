"""MF-softmax: what it scores by, the power that it chooses, and how it embeds new users."""

import numpy as np
import pytest
import torch
from tests.repeated_logs import repeated_log

from rankformer import MFSoftmax, evaluate
from rankformer.data.demo import demo_log
from rankformer.errors import ConfigError
from rankformer.graph.bipartite import BipartiteGraph
from rankformer.models.fold_in_rules import LAMBDAS, expansion_rule
from rankformer.models.mf_softmax import EXPONENTS
from rankformer.scoring.histories import Histories

pytestmark = pytest.mark.usefixtures("one_thread")

LOG = repeated_log(40, 25, 220, repeats=20)
VALID = repeated_log(40, 25, 60, seed=9)
SMALL = {"embedding_dim": 4, "epochs": 6, "validate_every": 2, "learning_rate": 0.05, "batch_size": 64, "tune": False}


@pytest.mark.parametrize("exponent", [0.0, 0.5, 1.0])
def test_scores_are_inner_products_with_items_of_the_given_power_of_their_length(exponent):
    model = MFSoftmax(norm_exponent=exponent, **SMALL).fit(LOG, VALID)
    z = model.parameters()["table"]
    users, items = z[:40].double(), z[40:].double()
    lengths = items.norm(dim=1, keepdim=True)
    expected = users @ (items / lengths * lengths**exponent).T
    assert torch.allclose(model.embeddings.scores(torch.arange(40)).double(), expected, rtol=1e-5, atol=1e-7)


def test_the_power_of_lengths_is_chosen_on_the_validation_part():
    model = MFSoftmax(**SMALL).fit(LOG, VALID)
    chosen, value = model.choices()["norm_exponent"], evaluate(model, VALID, metrics="ndcg@20").metrics["ndcg@20"]
    best = [event for event in model.log if event["event"] == "validation" and event["best"]][-1]
    assert value == best["ndcg@20"]
    given = MFSoftmax(norm_exponent=0.5, **SMALL).fit(LOG, VALID)
    usual = max(event["ndcg@20"] for event in given.log if event["event"] == "validation")
    assert value > usual  # so 0.5, where it begins, is not the best here
    assert chosen in EXPONENTS
    assert chosen != 0.5
    refitted = model.refitted(LOG)
    assert refitted.choices()["norm_exponent"] == chosen
    z = refitted.parameters()["table"][40:]
    expected = torch.nn.functional.normalize(z, dim=1) * z.norm(dim=1, keepdim=True) ** chosen
    assert torch.allclose(refitted.embeddings.items, expected, atol=1e-6)


def test_a_training_that_was_stopped_chooses_the_same_power(tmp_path):
    whole = MFSoftmax(**SMALL).fit(LOG, VALID)

    def stop(event):
        if event["event"] == "epoch" and event["epoch"] == 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        MFSoftmax(**SMALL).fit(LOG, VALID, run_folder=tmp_path, on_event=stop)
    resumed = MFSoftmax(**SMALL).fit(LOG, VALID, run_folder=tmp_path, resume=True)
    assert torch.equal(resumed.embeddings.items, whole.embeddings.items)
    assert torch.equal(resumed.embeddings.users, whole.embeddings.users)


@pytest.mark.parametrize("value", [-0.1, "much", None, float("nan")])
def test_a_power_that_cannot_be_is_refused(value):
    with pytest.raises(ConfigError, match=r"norm_exponent=.*expected a number from 0, or auto"):
        MFSoftmax(norm_exponent=value)


def solved_one_by_one(graph, table, strength):
    """The rule of the module docstring, one user after the other."""
    n = graph.num_users
    x = torch.nn.functional.normalize(table[n:].double(), dim=1)
    x = x - x.mean(0)
    covariance = torch.cov(x.T, correction=0)
    system = covariance / covariance.diagonal().mean() + strength * torch.eye(len(covariance), dtype=torch.float64)
    rows = []
    for user in range(n):
        items = (graph.edge_items[graph.edge_users == user] - n).long()
        rows.append(torch.linalg.solve(system, x[items].sum(0)) / max(len(items), 1) ** 0.5)
    return torch.stack(rows)


def test_new_users_are_embedded_as_the_equation_says():
    graph = BipartiteGraph.from_interactions(LOG)
    table = torch.randn(65, 4, generator=torch.Generator().manual_seed(1))
    users = table[:40].double()
    candidates = {strength: solved_one_by_one(graph, table, strength) for strength in LAMBDAS}
    folded = max(candidates.values(), key=lambda rows: float(torch.cosine_similarity(rows, users, dim=1).mean()))
    scale = (folded * users).sum() / folded.square().sum()
    rule = expansion_rule(graph, table)
    histories = Histories.of(LOG.users, LOG.items, 40)
    assert torch.allclose(rule.total(histories), folded * scale, atol=1e-6)


def test_the_rule_of_items_that_are_all_alike_is_zero():
    graph = BipartiteGraph.from_interactions(LOG)
    rule = expansion_rule(graph, torch.ones(65, 4))
    assert torch.equal(rule.vectors, torch.zeros(25, 4))


def test_training_users_folded_in_are_like_those_that_were_trained():
    parts = demo_log(seed=3).split(seed=0)
    model = MFSoftmax(embedding_dim=16, tune=False).fit(parts.train, parts.valid)
    trained = model.recommend(k=20, mask="train")
    log = parts.train
    histories = {
        user: log.item_ids.take(log.items[log.users == at]).to_pylist()
        for at, user in enumerate(log.user_ids.ids.to_pylist())
    }
    new = model.recommend(histories=histories, k=20)
    shared = [
        len(set(one) & set(other)) / 20
        for one, other in zip(
            np.array(trained.table["item_id"].to_pylist()).reshape(-1, 20),
            np.array(new.table["item_id"].to_pylist()).reshape(-1, 20),
            strict=True,
        )
    ]
    assert np.mean(shared) > 0.8


@pytest.mark.parametrize(
    ("settings", "sizes"), [({}, {64}), ({"least_batches": 8}, {30}), ({"batch_size": None}, {240})]
)
def test_small_logs_have_the_least_number_of_batches(settings, sizes):
    model = MFSoftmax(**{**SMALL, **settings}).fit(LOG)
    graph = BipartiteGraph.from_interactions(LOG)
    batches = list(model.network.batches(graph, 1))
    assert {len(LOG) if batch is None else len(batch) for batch in batches[:-1] or batches} == sizes
