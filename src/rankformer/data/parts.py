"""`Parts`: train, valid and test of a log; `Block`: where a rank's block of users lies in the whole log."""

import hashlib
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from rankformer.data.splits import Labels
from rankformer.errors import ConfigError

if TYPE_CHECKING:
    from rankformer.data.interactions import Interactions


class Block(NamedTuple):
    """Where the interactions of a block of users come from; the users are numbered from 0 within it."""

    first_user: int  # number of its first user in the whole log
    own_users: int  # how many it has
    num_users: int  # of the whole log
    fingerprint: str  # of the whole log
    user_ids_fingerprint: str  # of all its users' ids
    log_fingerprint: str = ""  # of the log with all its parts


class Parts(NamedTuple):
    """The three parts of a log, over the same id maps."""

    train: "Interactions"
    valid: "Interactions"
    test: "Interactions"

    @classmethod
    def of(cls, log: "Interactions", labels: Labels) -> "Parts":
        """Return the parts of a log, given the part of each interaction: 0 train, 1 valid, 2 test."""
        log = replace(log, labels=None)
        return cls(*(log.rows(labels == label, f"{log.name}/{part}") for label, part in enumerate(cls._fields)))

    @property
    def whole(self) -> "Interactions":
        """All interactions in one log with the part of each as its label; train comes first and test last."""
        shared = set.intersection(*(set(part.columns()) for part in self)) - {"labels"}
        columns: dict[str, Any] = {name: np.concatenate([getattr(part, name) for part in self]) for name in shared}
        labels = np.repeat(np.arange(3, dtype=np.int8), [len(part) for part in self])
        name = self.train.name.removesuffix("/train")
        block = self.train.block
        if block is not None:
            block = block._replace(fingerprint=block.log_fingerprint)
        return replace(self.train, **{"times": None, "weights": None, **columns}, labels=labels, name=name, block=block)

    def block_of(self, rank: int, count: int) -> "Parts":
        """Return the parts of one of `count` contiguous blocks of users with about as many training interactions.

        Raises:
            ConfigError: there are fewer users with training interactions than blocks.
        """
        ends = np.cumsum(np.bincount(self.train.users, minlength=self.train.num_users))
        cuts = np.searchsorted(ends, ends[-1] * np.arange(1, count) / count) + 1
        bounds = [0, *cuts.tolist(), len(ends)]
        if any(ends[high - 1] <= (ends[low - 1] if low else 0) for low, high in pairwise(bounds)):
            raise ConfigError(f"{count} ranks: {self.train.name} has too few users to give each some; use fewer ranks")
        whole = self.whole.fingerprint
        parts = (part.block_of(bounds[rank], bounds[rank + 1]) for part in self)
        return Parts(*(replace(part, block=part.block._replace(log_fingerprint=whole)) for part in parts))  # type: ignore[union-attr]

    @property
    def fingerprint(self) -> str:
        """SHA-256 over the fingerprints of the three parts: names the split in reports."""
        return hashlib.sha256(" ".join(part.fingerprint for part in self).encode()).hexdigest()
