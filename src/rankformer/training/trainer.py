"""The only training loop: full batch or mini-batch, early stopping, checkpoints, bitwise resume.

Nothing in it has hidden state. Negatives are a pure function of (seed, step, edge), batches of (seed, epoch), so that
parameters, buffers, Adam's moments and a few numbers are the whole state of a training. A parameter that a loss does
not reach is not moved, nor are its moments.
"""

import math
import time
from dataclasses import asdict, dataclass

import torch
from torch import Tensor

from rankformer.errors import TrainingError
from rankformer.graph.batch import Batch
from rankformer.graph.bipartite import BipartiteGraph
from rankformer.graph.negatives import NegativeSampler
from rankformer.scoring.base import Scorer
from rankformer.training.activations import kept_memory
from rankformer.training.adam import Adam
from rankformer.training.context import Event, FitContext, TrainingState
from rankformer.training.network import Network
from rankformer.training.settings import TrainingSettings


@dataclass
class Progress:
    """The numbers of a training; with the tensors they are all there is to resume."""

    epoch: int = 0
    step: int = 0
    best_epoch: int = 0
    best_value: float | None = None
    validations_since_best: int = 0
    seconds: float = 0.0


@kept_memory()
def train(
    network: Network, graph: BipartiteGraph, settings: TrainingSettings, context: FitContext | None = None
) -> Progress:
    """Train the network in place and return where training ended; it holds the parameters of the best validation.

    Without a validation part the last epoch counts as the best. Training ends after the `epochs` that the context has
    as an earlier choice, where it has one; the schedule stays that of the settings.

    Raises:
        TrainingError: a loss, gradient or embedding is not finite; the message has the step.
    """
    context = context or FitContext()
    run = TrainingLoop(network, graph, settings)
    if context.resume_from is not None:
        run.restore(context.resume_from)
    progress, started = run.progress, time.perf_counter() - run.progress.seconds
    last = int((context.choices or {}).get("epochs", settings.epochs))

    def record(event: Event) -> None:
        progress.seconds = time.perf_counter() - started
        context.record({**event, "seconds": round(progress.seconds, 3)})

    while progress.epoch < last and progress.validations_since_best < settings.patience:
        progress.epoch += 1
        record({"event": "epoch", "epoch": progress.epoch, "loss": run.one_epoch()})
        if progress.epoch % settings.validate_every == 0 or progress.epoch == last:
            if context.validate is not None:
                metrics = network.validated(graph, context.validate, run.scorer())
                improved = run.note_validation(metrics)
                record({"event": "validation", "epoch": progress.epoch, **metrics, "best": improved})
            if context.checkpoints is not None:
                context.checkpoints.save(progress.epoch, run.state())
    if run.best:
        network.load_own(graph, run.best)
    else:
        progress.best_epoch = progress.epoch
    run.scorer()  # stops if the last step left something that is not finite
    return progress


class TrainingLoop:
    """Parameters, optimiser and best parameters of one training."""

    def __init__(self, network: Network, graph: BipartiteGraph, settings: TrainingSettings) -> None:
        self.network, self.graph, self.settings = network, graph, settings
        self.sampler = NegativeSampler.of(graph) if network.learns_from == "interactions" else None
        self.optimizer = Adam(list(network.parameters()), graph)
        self.best: dict[str, Tensor] = {}
        self.progress = Progress()

    def one_epoch(self) -> float:
        """Do all steps of one epoch; return the mean loss."""
        losses = [self.one_step(chosen) for chosen in self.network.batches(self.graph, self.progress.epoch)]
        return sum(losses) / len(losses)

    def one_step(self, chosen: Tensor | None) -> float:
        """Do one optimiser step on edge numbers (None: all) or nodes; return its loss, or stop if it is not finite."""
        self.progress.step += 1
        batch = self._batch(chosen)
        self.network.zero_grad()
        loss = self.network.loss(self.graph, batch)
        loss.backward()  # type: ignore[no-untyped-call]
        value, *sums = self.optimizer.reduce(loss.item())  # a sum is finite only if every term is: the cheapest check
        if not all(map(math.isfinite, (value, *sums))):
            raise self._not_finite("gradient is" if math.isfinite(value) else "loss is")
        if self.settings.clip_norm is not None:
            self.optimizer.clip(self.settings.clip_norm)
        self.optimizer.step(self.learning_rate)
        self.network.after_step(self.graph, batch)
        return value

    def scorer(self) -> Scorer:
        """Return what scores now, or stop if any number of it is not finite."""
        with torch.no_grad():
            result = self.network.scorer(self.graph)
        if self.graph.ranks.total(float(not result.is_finite()))[0]:
            raise self._not_finite("embeddings are")
        return result

    def note_validation(self, metrics: dict[str, float]) -> bool:
        """Return whether this validation is the best so far; if so its parameters are kept."""
        progress, value = self.progress, metrics[self.settings.metric]
        if not math.isfinite(value):
            raise TrainingError(f"step {progress.step} (epoch {progress.epoch}): {self.settings.metric} is {value}")
        if progress.best_value is not None and value <= progress.best_value:
            progress.validations_since_best += 1
            return False
        progress.best_value, progress.best_epoch, progress.validations_since_best = value, progress.epoch, 0
        self.best = {name: tensor.detach().clone() for name, tensor in self.network.own(self.graph).items()}
        return True

    def state(self) -> TrainingState:
        """Return the whole state of the training."""
        groups = {"network": self.network.own(self.graph), "best": self.best, "adam": self.optimizer.tensors()}
        named = {f"{group}.{name}": value for group, tensors in groups.items() for name, value in tensors.items()}
        return TrainingState(named, asdict(self.progress))

    def restore(self, state: TrainingState) -> None:
        """Continue from a state."""
        self.network.load_own(self.graph, state.group("network."))
        self.best = {name: value.to(self.graph.device) for name, value in state.group("best.").items()}
        self.optimizer.restore(state.group("adam."))
        self.progress = Progress(**{name: state.numbers[name] for name in asdict(Progress())})

    @property
    def learning_rate(self) -> float:
        """The learning rate of this epoch."""
        if self.settings.schedule == "constant":
            return self.settings.learning_rate
        turn = math.pi * (self.progress.epoch - 1) / self.settings.epochs
        return self.settings.learning_rate * (0.5 + 0.5 * math.cos(turn))

    def _batch(self, chosen: Tensor | None) -> Batch:
        seed, step = self.settings.seed, self.progress.step
        if self.sampler is None:
            return Batch(None, torch.empty(0), seed, step, nodes=chosen)
        total = None if chosen is None else len(chosen)
        chosen = None if chosen is None else self.graph.own_edges(chosen)
        return Batch(chosen, self.sampler.draw(seed, step, chosen), seed, step, total=total)

    def _not_finite(self, what: str) -> TrainingError:
        where = f"step {self.progress.step} (epoch {self.progress.epoch})"
        return TrainingError(f"{where}: the {what} not finite; {self.settings.likely_cause()}")
