"""The only training loop: full batch or mini-batch, early stopping, checkpoints, bitwise resume.

Nothing in it has hidden state. Negatives are a pure function of (seed, step, edge), batches of (seed, epoch), so that
parameters, buffers, Adam's moments and a few numbers are the whole state of a training. A parameter that a loss does
not reach is not moved, nor are its moments.
"""

import math
import time
from dataclasses import asdict, dataclass

import torch
from torch import Tensor, nn

from rankformer.errors import TrainingError
from rankformer.graph.batch import Batch
from rankformer.graph.bipartite import BipartiteGraph
from rankformer.graph.negatives import NegativeSampler
from rankformer.scoring.base import Scorer
from rankformer.training.adam import Adam
from rankformer.training.context import FitContext, TrainingState
from rankformer.training.memory import kept_memory
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

    Without a validation part the last epoch counts as the best.

    Args:
        network: what to train.
        graph: the training interactions.
        settings: of the loop.
        context: how to validate, where events and checkpoints go, what to resume.

    Raises:
        TrainingError: a loss, gradient or embedding is not finite; the message has the step.
    """
    context = context or FitContext()
    run = TrainingLoop(network, graph, settings)
    if context.resume_from is not None:
        run.restore(context.resume_from)
    started = time.perf_counter() - run.progress.seconds
    progress = run.progress
    while progress.epoch < settings.epochs and progress.validations_since_best < settings.patience:
        progress.epoch += 1
        loss = run.one_epoch()
        progress.seconds = time.perf_counter() - started
        context.record({"event": "epoch", "epoch": progress.epoch, "loss": loss, "seconds": round(progress.seconds, 3)})
        if progress.epoch % settings.validate_every == 0 or progress.epoch == settings.epochs:
            if context.validate is not None:
                metrics = context.validate(run.scorer())
                improved = run.note_validation(metrics)
                progress.seconds = time.perf_counter() - started
                event = {"event": "validation", "epoch": progress.epoch, **metrics, "best": improved}
                context.record({**event, "seconds": round(progress.seconds, 3)})
            if context.checkpoints is not None:
                context.checkpoints.save(progress.epoch, run.state())
    run.finish()
    return progress


class TrainingLoop:
    """Parameters, optimiser and best parameters of one training."""

    def __init__(self, network: Network, graph: BipartiteGraph, settings: TrainingSettings) -> None:
        self.network, self.graph, self.settings = network, graph, settings
        self.sampler = NegativeSampler.of(graph) if network.learns_from == "interactions" else None
        self.parameters = list(network.parameters())
        self.optimizer = Adam(self.parameters)
        self.best: dict[str, Tensor] = {}
        self.progress = Progress()

    def one_epoch(self) -> float:
        """Do all steps of one epoch; return the mean loss."""
        losses = [self.one_step(chosen) for chosen in self.network.batches(self.graph, self.progress.epoch)]
        return sum(losses) / len(losses)

    def one_step(self, chosen: Tensor | None) -> float:
        """Do one optimiser step; return its loss, or stop if anything is not finite.

        Args:
            chosen: edge numbers, None for all, or nodes, whichever the network learns from.
        """
        self.progress.step += 1
        step = self.progress.step
        batch = self._batch(chosen)
        self.optimizer.clear_gradients()
        loss = self.network.loss(self.graph, batch)
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
        self.network.after_step(self.graph, batch)
        return value

    def scorer(self) -> Scorer:
        """Return what scores now, or stop if any number of it is not finite."""
        with torch.no_grad():
            result = self.network.scorer(self.graph)
        if not result.is_finite():
            raise TrainingError(
                f"step {self.progress.step} (epoch {self.progress.epoch}): the embeddings are not finite; "
                f"try a smaller learning_rate than {self.settings.learning_rate}"
            )
        return result

    def note_validation(self, metrics: dict[str, float]) -> bool:
        """Return whether this validation is the best so far; if so its parameters are kept."""
        progress = self.progress
        value = metrics[self.settings.metric]
        if not math.isfinite(value):
            raise TrainingError(f"step {progress.step} (epoch {progress.epoch}): {self.settings.metric} is {value}")
        if progress.best_value is not None and value <= progress.best_value:
            progress.validations_since_best += 1
            return False
        progress.best_value, progress.best_epoch, progress.validations_since_best = value, progress.epoch, 0
        self.best = {name: tensor.detach().clone() for name, tensor in self.network.state_dict().items()}
        return True

    def finish(self) -> None:
        """Leave the network with its best parameters."""
        if self.best:
            self.network.load_state_dict(self.best)
        else:
            self.progress.best_epoch = self.progress.epoch
        self.scorer()

    def state(self) -> TrainingState:
        """Return the whole state of the training."""
        named = {f"network.{name}": value for name, value in self.network.state_dict().items()}
        named |= {f"best.{name}": value for name, value in self.best.items()}
        named |= {f"adam.{name}": value for name, value in self.optimizer.tensors().items()}
        return TrainingState(named, asdict(self.progress))

    def restore(self, state: TrainingState) -> None:
        """Continue from a state."""
        groups: dict[str, dict[str, Tensor]] = {"network": {}, "best": {}, "adam": {}}
        for name, value in state.tensors.items():
            group, _, rest = name.partition(".")
            groups[group][rest] = value
        self.network.load_state_dict(groups["network"])
        self.best = {name: value.to(self.graph.device) for name, value in groups["best"].items()}
        self.optimizer.restore(groups["adam"])
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
        return Batch(chosen, self.sampler.draw(seed, step, chosen), seed, step)
