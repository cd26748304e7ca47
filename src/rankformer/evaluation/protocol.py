"""`Protocol`: how a number came about, carried beside the number."""

import platform
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import torch


@dataclass(frozen=True)
class Protocol:
    """All that must be equal for two results to be comparable, and what is needed to reproduce one.

    Attributes:
        split: what the test part is called.
        split_hash: first 16 hexadecimal digits over ids, distinct training and test interactions, in any order.
        k: the cutoffs, ascending.
        mask: which interactions were left out of the lists: "train", "train+valid", "known" or "none".
        users: users with at least one test interaction; every mean is over these.
        test_interactions: their test interactions, duplicates counted.
        users_unknown: those of `users` that the model does not know; runs of before 0.2 have them in no mean.
        test_interactions_unknown: those of `test_interactions` on items the model does not know; they can never be hit.
        seed: seed of the training run, when known.
        versions: of rankformer, torch and python.
        backend: device the scores were computed on.
        ties: what orders equal scores.
        test_interactions_masked: those of `test_interactions` that the mask leaves out of the lists: never hit either.
        users_cold: those of `users` without a training interaction, unknown ones included; popularity answers for them.
    """

    split: str
    split_hash: str
    k: tuple[int, ...]
    mask: str
    users: int
    test_interactions: int
    users_unknown: int
    test_interactions_unknown: int
    seed: int | None
    versions: dict[str, str]
    backend: str
    ties: str = "item index"
    test_interactions_masked: int = 0
    users_cold: int = 0

    def line(self) -> str:
        """Return the protocol as one line of text."""
        unknown = [
            f"{count:,} {what} unknown"
            for count, what in ((self.users_unknown, "users"), (self.test_interactions_unknown, "test interactions"))
            if count
        ]
        cold = f" ({self.users_cold:,} cold)" if self.users_cold else ""
        parts = [
            f"split={self.split} ({self.split_hash})",
            f"k={','.join(map(str, self.k))}",
            f"mask={self.mask}",
            f"{self.users:,} users{cold}",
            f"{self.test_interactions:,} test interactions",
            *unknown,
            *([f"{self.test_interactions_masked:,} of them masked"] if self.test_interactions_masked else []),
            f"seed={'none' if self.seed is None else self.seed}",
            f"ties by {self.ties}",
            f"backend={self.backend}",
            " ".join(f"{name} {number}" for name, number in self.versions.items()),
        ]
        return ", ".join(parts)

    @classmethod
    def from_dict(cls, record: dict[str, Any]) -> "Protocol":
        """Return the protocol that `to_dict` described; runs of version 0.1 call interactions lines."""
        renamed = {key.replace("test_lines", "test_interactions"): value for key, value in record.items()}
        return cls(**{**renamed, "k": tuple(record["k"])})

    def to_dict(self) -> dict[str, Any]:
        """Return the protocol as values that JSON can hold."""
        return {**asdict(self), "k": list(self.k)}


def installed_versions() -> dict[str, str]:
    """Return the versions a number depends on."""
    try:
        own = version("rankformer")
    except PackageNotFoundError:  # run from a source tree that was never installed
        own = "unknown"
    return {"rankformer": own, "torch": str(torch.__version__), "python": platform.python_version()}
