"""Methods that are solved for rather than trained: nothing is chosen on a validation part, but it is measured."""

import time
from abc import abstractmethod
from typing import ClassVar, Literal

from rankformer.data.interactions import Interactions
from rankformer.evaluation.evaluator import evaluate
from rankformer.evaluation.metrics import parse_metrics
from rankformer.models.base import Learned, Model, Workplace
from rankformer.scoring.recommender import Recommender
from rankformer.settings import Settings


class ClosedFormSettings(Settings):
    """What every such method has."""

    metric: str = "ndcg@20"
    """What is measured on the validation part and written to the log; nothing is chosen by it."""


class ItemWeightSettings(ClosedFormSettings):
    """What every method has that scores histories by weights between items."""

    repeats: Literal["once", "count"] = "once"
    """Whether a pair that is repeated counts once, or as often as it occurs."""

    @property
    def count_repeats(self) -> bool:
        """Whether repeated pairs count each time."""
        return self.repeats == "count"


class ClosedFormModel(Model):
    """A model that one computation gives; a fit that was cut off starts again."""

    settings: ClosedFormSettings
    settings_class: ClassVar[type[ClosedFormSettings]]

    @abstractmethod
    def solve(self, train: Interactions) -> Learned:
        """Return what the method makes of the training part."""

    def learn(self, train: Interactions, valid: Interactions | None, place: Workplace) -> Learned:
        """Return the solution; seconds and the validation's metric go to the log."""
        parse_metrics(self.settings.metric)  # a slip is found before the work, not after it
        place.log.rewind(0)
        started = time.perf_counter()
        learned = self.solve(train)
        place.log.append({"event": "solved", "seconds": _seconds_since(started)})
        if valid is not None:
            recommender = Recommender(learned.scorer, train.user_ids, train.item_ids, train)
            found = evaluate(recommender, valid, metrics=self.settings.metric).metrics
            event = {"event": "validation", "epoch": 1, **found, "best": True, "seconds": _seconds_since(started)}
            place.log.append(event)
        return learned


def _seconds_since(started: float) -> float:
    return round(time.perf_counter() - started, 3)
