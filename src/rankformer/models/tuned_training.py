"""The quick search before a training: what `tune=true` does in a model that is trained.

Every trial is a training of its own (`models.quick_search`); then the model is trained with the best settings, as if
they had been given. The trials and what they chose are kept in the training's checkpoints: a search that was stopped
begins again with the trial that it was in.
"""

import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from rankformer.errors import ConfigError, TrainingError
from rankformer.graph.bipartite import BipartiteGraph
from rankformer.models.quick_search import quick_search
from rankformer.training.context import CheckpointWriter, Event, FitContext, TrainingState
from rankformer.training.settings import TrainingSettings

if TYPE_CHECKING:
    from rankformer.models.trained import TrainedModel

KEPT = "search"  # where a checkpoint's numbers have the search


@dataclass
class Search:
    """A quick search: what it came to, as JSON can hold it."""

    given: list[str]  # settings that stay as they are
    trials: list[tuple[dict[str, Any], float | None]] = field(default_factory=list)  # settings and value, None: failed
    chosen: dict[str, Any] | None = None  # the best settings, None before the end
    seconds: float = 0.0


def searched(model: "TrainedModel", graph: BipartiteGraph, context: FitContext) -> tuple[TrainingSettings, FitContext]:
    """Return the settings to train with and the context of that training, after a search where the settings ask for it.

    There is none without a validation part, with settings that an earlier fit chose, or where all that could be
    searched is given.
    """
    state, settings = context.resume_from, model.settings
    found = Search(sorted(settings.model_fields_set))
    if state is not None:
        if KEPT not in state.numbers:
            return settings, context
        found = Search(**state.numbers[KEPT])
    elif not model.searched or context.validate is None or context.choices is not None:
        return settings, context
    if found.chosen is None:
        found.chosen = _search(model, graph, context, found)
        state = None  # of the search: the training has none yet

    def record(event: Event) -> None:
        context.record({**event, "seconds": round(event["seconds"] + found.seconds, 3)})

    checkpoints = context.checkpoints and _Noted(context.checkpoints, found)
    after = replace(context, record=record, checkpoints=checkpoints, resume_from=state)
    return settings.replace(**found.chosen), after


def _search(model: "TrainedModel", graph: BipartiteGraph, context: FitContext, search: Search) -> dict[str, Any]:
    """Return the best settings, as changes of those that are given."""
    given = {name: getattr(model.settings, name) for name in search.given}
    started = time.perf_counter() - search.seconds

    def record(kind: str, changes: dict[str, Any], **more: Any) -> None:
        search.seconds = round(time.perf_counter() - started, 3)
        context.record({"event": kind, "member": model.name, "settings": changes, **more, "seconds": search.seconds})

    def value_of(changes: dict[str, Any]) -> float | None:
        for settings, value in search.trials:  # before a resume
            if settings == changes:
                return value
        record("fitting", changes)
        events = list[Event]()
        try:
            trial = type(model)(**{**given, **changes, "tune": False})
            trial.learn(graph, FitContext(context.validate, events.append))
            value = max(event[model.settings.metric] for event in events if event["event"] == "validation")
        except (ConfigError, TrainingError, MemoryError):
            value = None
        else:
            record("trial", changes, value=value)
        search.trials.append((changes, value))
        if context.checkpoints is not None:
            _Noted(context.checkpoints, search).save(len(search.trials), TrainingState({}, {"epoch": 0}))
        return value

    best = quick_search(type(model), given, value_of)
    chosen = model.settings.replace(**best)
    record("chosen", {name: getattr(chosen, name) for name in sorted(model.searched)})
    return best


@dataclass(frozen=True)
class _Noted:
    """Checkpoints that hold the search, too."""

    checkpoints: CheckpointWriter
    search: Search

    def save(self, epoch: int, state: TrainingState) -> None:
        self.checkpoints.save(epoch, state._replace(numbers={**state.numbers, KEPT: vars(self.search)}))
