"""The only training loop: full batch or mini-batch, early stopping, checkpoints, bitwise resume.

Nothing in it has hidden state. Negatives are a pure function of (seed, step, edge), batches of (seed, epoch), so that
parameters, buffers, Adam's moments and five numbers are the whole state of a run.

A step learns from pairs, each with a negative, and moves every parameter. A `StagedNetwork` departs from both: its
steps learn from the nodes that `own_batches` gives, and `after_step` may overwrite buffers. A parameter that a loss
does not reach is not moved, nor are its moments.
"""

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from rankformer.errors import TrainingError
from rankformer.graph.bipartite import BipartiteGraph
from rankformer.graph.negatives import NegativeSampler, random_bits
from rankformer.runs.checkpoint import CheckpointStore
from rankformer.training.adam import Adam
from rankformer.training.memory import kept_memory
from rankformer.training.settings import TrainingSettings

Event = dict[str, Any]


@dataclass(frozen=True)
class Batch:
    """What one step learns from.

    Attributes:
        edges: (B,) edge numbers, or None for all edges in user order.
        negatives: (B,) item node of each edge's negative.
        seed: of the run.
        step: number of this step, from 1; with the seed it decides every random draw of the step.
        nodes: (b,) what a network's own batch consists of, in place of edges and negatives.
    """

    edges: Tensor | None
    negatives: Tensor
    seed: int
    step: int
    nodes: Tensor | None = None


class Answer(Protocol):
    """What a network gives to be validated, `Embeddings` or another scorer."""

    def is_finite(self) -> bool:
        """Whether every number is finite."""


class Network(Protocol):
    """What the loop can train: an `nn.Module` with these two methods."""

    def loss(self, graph: BipartiteGraph, batch: Batch, l2: float) -> Tensor:
        """Return the scalar to minimise on a batch."""

    def embeddings(self, graph: BipartiteGraph) -> Answer:
        """Return the final vectors, without noise."""


class StagedNetwork(Network, Protocol):
    """A network that says what its steps learn from, and has state besides its parameters."""

    def own_batches(self, graph: BipartiteGraph, seed: int, epoch: int) -> Iterator[Tensor]:
        """Yield the nodes of each step of an epoch, decided by these numbers alone."""

    def after_step(self, graph: BipartiteGraph, batch: Batch) -> None:
        """Overwrite buffers, as the parameters now say; every draw is decided by the batch's seed and step."""


@dataclass
class Progress:
    """The numbers of a run; with the tensors they are all there is to resume."""

    epoch: int = 0
    step: int = 0
    best_epoch: int = 0
    best_value: float | None = None
    validations_since_best: int = 0
    seconds: float = 0.0


@kept_memory()
def train(
    network: nn.Module,
    graph: BipartiteGraph,
    settings: TrainingSettings,
    *,
    seed: int,
    validate: Callable[[Any], dict[str, float]] | None = None,
    on_event: Callable[[Event], None] = lambda event: None,
    store: CheckpointStore | None = None,
    resume_from: tuple[dict[str, Tensor], dict[str, Any]] | None = None,
    extra_numbers: Callable[[], dict[str, Any]] = dict,
) -> Progress:
    """Train the network in place and return where the run ended; it holds the parameters of the best validation.

    Args:
        network: an `nn.Module` that fulfils `Network`, or `StagedNetwork`.
        graph: the training pairs.
        settings: the knobs of the loop.
        seed: decides negatives and batches.
        validate: gives the metrics of what the network answers; without it the last epoch counts as the best.
        on_event: called with one dictionary per epoch and per validation.
        store: where checkpoints go; None keeps none.
        resume_from: what `store.load()` returned.
        extra_numbers: further numbers to keep in each checkpoint.

    Raises:
        TrainingError: a loss, gradient or embedding is not finite; the message has the step.
    """
    run = TrainingLoop(network, graph, settings, seed)
    if resume_from is not None:
        run.restore(*resume_from)
    started = time.perf_counter() - run.progress.seconds
    progress = run.progress
    while progress.epoch < settings.epochs and progress.validations_since_best < settings.patience:
        progress.epoch += 1
        loss = run.one_epoch()
        progress.seconds = time.perf_counter() - started
        on_event({"event": "epoch", "epoch": progress.epoch, "loss": loss, "seconds": round(progress.seconds, 3)})
        if progress.epoch % settings.validate_every == 0 or progress.epoch == settings.epochs:
            if validate is not None:
                run.note_validation(validate(run.embeddings()), on_event, started)
            if store is not None:
                store.save(progress.epoch, run.tensors(), {**asdict(progress), **extra_numbers()})
    run.finish()
    return progress


class TrainingLoop:
    """Parameters, optimiser and best parameters of one run."""

    def __init__(self, network: nn.Module, graph: BipartiteGraph, settings: TrainingSettings, seed: int) -> None:
        self.network, self.graph, self.settings, self.seed = network, graph, settings, seed
        self.staged = hasattr(network, "own_batches")
        self.sampler = None if self.staged else NegativeSampler.of(graph)
        self.parameters = list(network.parameters())
        self.optimizer = Adam(self.parameters)
        self.best: dict[str, Tensor] = {}
        self.progress = Progress()

    def one_epoch(self) -> float:
        """Do all steps of one epoch; return the mean loss."""
        losses = [self.one_step(chosen) for chosen in self._batches()]
        return sum(losses) / len(losses)

    def one_step(self, chosen: Tensor | None) -> float:
        """Do one optimiser step; return its loss, or stop if anything is not finite.

        Args:
            chosen: edge numbers, None for all, or the nodes of a network that has its own batches.
        """
        self.progress.step += 1
        step = self.progress.step
        batch = self._batch(chosen)
        self.optimizer.clear_gradients()
        loss: Tensor = self.network.loss(self.graph, batch, self.settings.l2)  # type: ignore[operator]
        loss.backward()  # type: ignore[no-untyped-call]
        value = loss.item()
        # A sum is finite only if every term is, and is the cheapest pass that tells.
        sums = [value] + [p.grad.sum().item() for p in self.parameters if p.grad is not None]
        if not all(map(math.isfinite, sums)):
            culprit = "gradient" if math.isfinite(value) else "loss"
            raise TrainingError(
                f"step {step} (epoch {self.progress.epoch}): the {culprit} is not finite; "
                f"try a smaller learning_rate than {self.settings.learning_rate}"
            )
        if self.settings.clip_norm is not None:
            nn.utils.clip_grad_norm_(self.parameters, self.settings.clip_norm)
        self.optimizer.step(self.learning_rate)
        if self.staged:
            self.network.after_step(self.graph, batch)  # type: ignore[operator]
        return value

    def embeddings(self) -> Answer:
        """Return the current final vectors, or stop if any is not finite."""
        with torch.no_grad():
            result: Answer = self.network.embeddings(self.graph)  # type: ignore[operator]
        if not result.is_finite():
            raise TrainingError(
                f"step {self.progress.step} (epoch {self.progress.epoch}): the embeddings are not finite; "
                f"try a smaller learning_rate than {self.settings.learning_rate}"
            )
        return result

    def note_validation(self, metrics: dict[str, float], on_event: Callable[[Event], None], started: float) -> None:
        """Keep the parameters if this validation is the best so far."""
        progress = self.progress
        value = metrics[self.settings.metric]
        if not math.isfinite(value):
            raise TrainingError(f"step {progress.step} (epoch {progress.epoch}): {self.settings.metric} is {value}")
        improved = progress.best_value is None or value > progress.best_value
        if improved:
            progress.best_value, progress.best_epoch, progress.validations_since_best = value, progress.epoch, 0
            self.best = {name: tensor.detach().clone() for name, tensor in self.network.state_dict().items()}
        else:
            progress.validations_since_best += 1
        progress.seconds = time.perf_counter() - started
        seconds = round(progress.seconds, 3)
        on_event({"event": "validation", "epoch": progress.epoch, **metrics, "best": improved, "seconds": seconds})

    def finish(self) -> None:
        """Leave the network with its best parameters."""
        if self.best:
            self.network.load_state_dict(self.best)
        else:
            self.progress.best_epoch = self.progress.epoch
        self.embeddings()

    def tensors(self) -> dict[str, Tensor]:
        """Return every tensor of the run's state, by name."""
        named = {f"network.{name}": value for name, value in self.network.state_dict().items()}
        named |= {f"best.{name}": value for name, value in self.best.items()}
        named |= {f"adam.{name}": value for name, value in self.optimizer.tensors().items()}
        return named

    def restore(self, tensors: dict[str, Tensor], numbers: dict[str, Any]) -> None:
        """Take up the state that `tensors()` and the progress described."""
        groups: dict[str, dict[str, Tensor]] = {"network": {}, "best": {}, "adam": {}}
        for name, value in tensors.items():
            group, _, rest = name.partition(".")
            groups[group][rest] = value
        self.network.load_state_dict(groups["network"])
        device = self.graph.device
        self.best = {name: value.to(device) for name, value in groups["best"].items()}
        self.optimizer.restore(groups["adam"])
        self.progress = Progress(**{name: numbers[name] for name in asdict(Progress())})

    @property
    def learning_rate(self) -> float:
        """The step size of this epoch."""
        if self.settings.schedule == "constant":
            return self.settings.learning_rate
        turn = math.pi * (self.progress.epoch - 1) / self.settings.epochs
        return self.settings.learning_rate * (0.5 + 0.5 * math.cos(turn))

    def _batch(self, chosen: Tensor | None) -> Batch:
        step = self.progress.step
        if self.sampler is None:
            return Batch(None, torch.empty(0), self.seed, step, nodes=chosen)
        return Batch(chosen, self.sampler.draw(self.seed, step, chosen), self.seed, step)

    def _batches(self) -> Iterator[Tensor | None]:
        if self.staged:
            yield from self.network.own_batches(self.graph, self.seed, self.progress.epoch)  # type: ignore[operator]
            return
        size = self.settings.batch_size
        if size is None or size >= self.graph.num_edges:
            yield None
            return
        numbers = torch.arange(self.graph.num_edges, device=self.graph.device)
        # Sorting random keys is a permutation that depends on (seed, epoch) alone; -epoch keeps clear of step numbers.
        order = torch.argsort(random_bits(self.seed, -self.progress.epoch, numbers), stable=True)
        yield from torch.split(order, size)
