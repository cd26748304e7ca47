"""`ClosedFormModel`: a model that is solved for rather than trained."""

import time
from abc import abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, Literal

from rankformer.errors import ConfigError, TrainingError
from rankformer.graph.bipartite import BipartiteGraph
from rankformer.initialization import NOT_SOLVED
from rankformer.models.base import Model
from rankformer.models.quick_search import quick_search
from rankformer.scoring.base import Scorer
from rankformer.settings import ModelSettings
from rankformer.training.context import FitContext, WarmStart


class ClosedFormSettings(ModelSettings):
    """What every such method has."""

    metric: str = "ndcg@20"
    """Metric that is measured on the validation part; it chooses the settings that are tuned."""


class ItemWeightSettings(ClosedFormSettings):
    """What every method has that scores histories by weights between items.

    Where interactions have weights, x_ui is the largest weight of u with i ("once"; all scaled to a mean square of 1,
    so that other hyperparameters keep their meaning), or the sum of these weights ("count"): `interaction_matrix`.
    """

    duplicates: Literal["once", "count"] = "once"
    """Whether a duplicate interaction counts once, or as often as it occurs; weights add up in the same way."""

    @property
    def count_duplicates(self) -> bool:
        return self.duplicates == "count"


class ClosedFormModel(Model):
    """A model that one computation gives; a fit that was interrupted starts again."""

    settings: ClosedFormSettings
    settings_class: ClassVar[type[ClosedFormSettings]]

    @abstractmethod
    def solve(self, graph: BipartiteGraph) -> Scorer:
        """Return what the method makes of the training interactions."""

    def solve_from(self, graph: BipartiteGraph, warm: WarmStart) -> Scorer:
        """Return the same, given what an earlier fit found; a method that iterates starts there."""
        del warm
        return self.solve(graph)

    def learn(self, graph: BipartiteGraph, context: FitContext) -> Scorer:
        started = time.perf_counter()

        def record(**event: Any) -> None:
            context.record({**event, "seconds": round(time.perf_counter() - started, 3)})

        scorer = None
        if self.searched and context.validate is not None:
            scorer = self._tuned(graph, context.validate, record)
        scorer = scorer or self.solve_finite(graph, context.warm)
        record(event="solved")
        if context.validate is not None:
            record(event="validation", epoch=1, **context.validate(scorer), best=True)
        return scorer

    def solve_finite(self, graph: BipartiteGraph, warm: WarmStart | None = None) -> Scorer:
        """Return what `solve` does, or `solve_from` where there is an earlier fit.

        Raises:
            TrainingError: it is not finite.
        """
        try:
            scorer = self.solve(graph) if warm is None else self.solve_from(graph, warm)
            solved = not graph.ranks.total(float(not scorer.is_finite()))[0]  # on every rank
        except NOT_SOLVED:
            solved = False
        if not solved:
            raise TrainingError(f"{self.name} has no finite solution here; {self.settings.likely_cause()}")
        return scorer

    def _tuned(
        self, graph: BipartiteGraph, validate: Callable[[Scorer], dict[str, float]], record: Callable[..., None]
    ) -> Scorer | None:
        """Take the best settings of a quick search; return the scorer with them, None where nothing could be solved."""
        given = {name: getattr(self.settings, name) for name in self.settings.model_fields_set}
        best: tuple[float, Scorer] | None = None

        def value_of(changes: dict[str, Any]) -> float | None:
            nonlocal best
            record(event="fitting", member=self.name, settings=changes)
            try:
                scorer = type(self)(**{**given, **changes}).solve_finite(graph)
            except (ConfigError, TrainingError, MemoryError):
                return None
            value = validate(scorer)[self.settings.metric]
            record(event="trial", member=self.name, settings=changes, value=value)
            if self.fidelity not in changes and (best is None or value > best[0]):
                best = value, scorer
            return value

        searched = sorted(self.searched)
        self.settings = self.settings.replace(**quick_search(type(self), given, value_of))
        record(event="chosen", settings={name: getattr(self.settings, name) for name in searched})
        return None if best is None else best[1]
