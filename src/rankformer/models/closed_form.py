"""`ClosedFormModel`: a model that is solved for rather than trained."""

import time
from abc import abstractmethod
from typing import ClassVar, Literal

import torch

from rankformer.errors import TrainingError
from rankformer.graph.bipartite import BipartiteGraph
from rankformer.models.base import Model
from rankformer.scoring.base import Scorer
from rankformer.settings import ModelSettings
from rankformer.training.context import FitContext


class ClosedFormSettings(ModelSettings):
    """What every such method has."""

    metric: str = "ndcg@20"
    """Metric that is measured on the validation part and logged; nothing is chosen by it."""


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

    def learn(self, graph: BipartiteGraph, context: FitContext) -> Scorer:
        started = time.perf_counter()
        try:
            scorer = self.solve(graph)
            solved = not graph.ranks.total(float(not scorer.is_finite()))[0]  # on every rank
        except torch.linalg.LinAlgError:  # type: ignore[attr-defined]
            solved = False
        if not solved:
            raise TrainingError(f"{self.name} has no finite solution here; {self.settings.likely_cause()}")
        context.record({"event": "solved", "seconds": round(time.perf_counter() - started, 3)})
        if context.validate is not None:
            event = {"event": "validation", "epoch": 1, **context.validate(scorer), "best": True}
            context.record({**event, "seconds": round(time.perf_counter() - started, 3)})
        return scorer
