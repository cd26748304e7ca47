"""`RankingOptions`: what lists should be like, in item indices; `ListFilters`: the same in the caller's own ids."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import isfinite
from typing import Any, TypedDict

import numpy as np

from rankformer.errors import ConfigError

FALLBACKS = ("popularity", "none")


@dataclass(frozen=True)
class RankingOptions:
    """What lists should be like; equal options can be answered together."""

    k: int = 10  # length of a list
    include_seen: bool = False  # whether items of the user's history may be in it
    allow: tuple[int, ...] | None = None  # item indices; when given, nothing else is returned
    block: tuple[int, ...] | None = None  # item indices that are never returned
    where: tuple[str, ...] = ()  # expressions over attributes that every item meets: see `scoring.filters`
    at_most: tuple[tuple[str, int], ...] = ()  # (attribute, N): at most N items of a list have the same value of it
    boost: tuple[tuple[str, float], ...] = ()  # (expression, w): w standard deviations of the user's scores are added
    include_cold: bool = False  # whether items without interactions are scored by their attributes and listed too

    def __post_init__(self) -> None:
        if not isinstance(self.k, int | np.integer) or isinstance(self.k, bool) or self.k < 1:
            raise ConfigError(f"k={self.k!r}: a list needs at least one item; use an integer k >= 1")
        for name, most in self.at_most:
            if isinstance(most, bool) or not isinstance(most, int) or most < 1:
                raise ConfigError(f"at_most {name}={most!r}: expected an integer from 1")
        for text, weight in self.boost:
            if isinstance(weight, bool) or not isinstance(weight, int | float) or not isfinite(weight):
                raise ConfigError(f"boost {text!r}: {weight!r}: expected a finite number, below 0 to bury")

    @property
    def warm(self) -> "RankingOptions":
        """The same without cold items."""
        return replace(self, include_cold=False)


class ListFilters(TypedDict, total=False):
    """What callers may ask of lists in their own ids; `Recommender.recommend` says what each means."""

    include_seen: bool
    allow: Sequence[Any] | None
    block: Sequence[Any] | None
    where: str | None
    at_most: Mapping[str, int] | None
    boost: Mapping[str, float] | None
    include_cold: bool
