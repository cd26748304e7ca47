"""`Cell`: one training or computation, and the identity under which its result is kept."""

import hashlib
import json
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any, Literal

from rankformer.data.interactions import Parts
from rankformer.data.source import DataSource
from rankformer.models.registry import model_class
from rankformer.research.code_version import code_version

Kind = Literal["training", "untrained", "lemma"]
Result = dict[str, Any]


@dataclass(frozen=True)
class DataCard:
    """A dataset that is there, as it was when the reproduction began.

    Attributes:
        name: what reports call it.
        source: where to load it from again.
        fingerprint: over the ids and pairs of its three parts.
        users: size of the user map.
        items: size of the item map.
        pairs: lines of train, valid and test.
    """

    name: str
    source: DataSource
    fingerprint: str
    users: int
    items: int
    pairs: tuple[int, int, int]

    @classmethod
    def of(cls, source: DataSource) -> "DataCard":
        """Return the card of a source, after loading it."""
        parts = load_parts(source)
        pairs = (len(parts.train), len(parts.valid), len(parts.test))
        return cls(source.name, source, parts.fingerprint, parts.train.num_users, parts.train.num_items, pairs)


@lru_cache(maxsize=2)
def load_parts(source: DataSource) -> Parts:
    """Return the parts of a source, kept for the next cell on the same data."""
    return source.load()


@dataclass(frozen=True, eq=False)
class Cell:
    """One computation. Its `key` is a hash over all that decides the result; the label and the data's name are not.

    Attributes:
        kind: what is computed.
        settings: every setting, defaults included, so that a changed default is another cell.
        seed: of its random draws.
        code: version of the code that computes it.
        model: registered name of the method, for trainings.
        data: what it is computed on.
        label: how progress lines and reports call it.
    """

    kind: Kind
    settings: dict[str, Any]
    seed: int
    code: str
    model: str | None = None
    data: DataCard | None = None
    label: str = field(default="")

    @property
    def identity(self) -> dict[str, Any]:
        """All that decides the result, as values that JSON can hold."""
        return {
            "kind": self.kind,
            "model": self.model,
            "settings": self.settings,
            "seed": self.seed,
            "data": self.data.fingerprint if self.data else None,
            "code": self.code,
        }

    @cached_property
    def key(self) -> str:
        """SHA-256 of the identity, in hexadecimal."""
        return hashlib.sha256(json.dumps(self.identity, sort_keys=True).encode()).hexdigest()

    @property
    def current_code(self) -> str:
        """The version of the code as this process sees it."""
        return _code_of(self.kind, self.model)


def training_cell(data: DataCard, model: str, settings: dict[str, Any], seed: int, variant: str = "") -> Cell:
    """Return the cell of one training and its evaluation on the test part."""
    label = f"{model}{f' {variant}' if variant else ''} on {data.name}, seed {seed}"
    return Cell("training", settings, seed, _code_of("training", model), model, data, label)


def untrained_cell(data: DataCard, settings: dict[str, Any], seed: int) -> Cell:
    """Return the cell of random rows sent through layers."""
    label = f"untrained {settings['variant']} on {data.name}, seed {seed}"
    return Cell("untrained", settings, seed, _code_of("untrained", None), None, data, label)


def lemma_cell(settings: dict[str, Any], seed: int) -> Cell:
    """Return the cell of the lemma's check on one random graph."""
    return Cell("lemma", settings, seed, _code_of("lemma", None), label=f"lemma on a random graph, seed {seed}")


def _code_of(kind: Kind, model: str | None) -> str:
    home = {"training": "trained", "untrained": "untrained", "lemma": "lemma"}[kind]
    modules = [f"rankformer.research.{home}"]
    if model is not None:
        modules.append(model_class(model).__module__)
    return code_version(*modules)
