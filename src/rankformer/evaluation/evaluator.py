"""`evaluate`: the metrics of a model on a test part, together with the protocol that produced them."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any
from typing import Protocol as TypingProtocol

import numpy as np
import torch
from numpy.typing import NDArray

from rankformer.data.id_map import IdMap
from rankformer.data.interactions import Interactions
from rankformer.errors import ConfigError, DataError
from rankformer.evaluation.metrics import METRICS, Metric, Outcome, parse_metrics
from rankformer.evaluation.protocol import Protocol, installed_versions
from rankformer.scoring.recommender import RankingOptions, Recommender
from rankformer.scoring.seen_items import SeenItems

DEFAULT_METRICS = ("ndcg@20", "recall@20", "recall_capped@20")
MASKS = ("train", "train+valid", "none")


class Fitted(TypingProtocol):
    """A fitted model: anything that holds a recommender."""

    @property
    def recommender(self) -> Recommender:
        """What the model answers with."""


@dataclass(frozen=True, eq=False)
class Evaluation:
    """The outcome of one evaluation.

    Attributes:
        metrics: the mean over users of each metric, by its name such as "ndcg@20".
        per_user: (U,) value of each user, for every metric that has one (not coverage, novelty, gini).
        users: (U,) user indices of the model, aligned with `per_user`.
        protocol: how the numbers came about.
    """

    metrics: dict[str, float]
    per_user: dict[str, NDArray[np.float64]] = field(repr=False)
    users: NDArray[np.int64] = field(repr=False)
    protocol: Protocol

    def __str__(self) -> str:
        values = "  ".join(f"{name} {value:.4f}" for name, value in self.metrics.items())
        return f"{values}\n[{self.protocol.line()}]"

    def to_dict(self) -> dict[str, Any]:
        """Return metrics and protocol as values that JSON can hold."""
        return {"metrics": dict(self.metrics), "protocol": self.protocol.to_dict()}


@dataclass(frozen=True, eq=False)
class GroundTruth:
    """The test interactions of every user that can be given a list.

    Users unknown to the model count nowhere but in `users_unknown`. Interactions of known users with unknown items
    are never hit, yet they are in every denominator.
    """

    users: NDArray[np.int64]  # (U,) indices, ascending, of the users with at least one test interaction
    counts: NDArray[np.int64]  # (U,) their test interactions, duplicates counted
    distinct: NDArray[np.int64]  # (U,) their distinct test items
    relevant: SeenItems  # the distinct test interactions
    keys: NDArray[np.int64]  # every interaction as one number, ascending: equal keys mean equal test parts
    users_unknown: int
    interactions_unknown: int

    @classmethod
    def of(cls, test: Interactions, user_ids: IdMap, item_ids: IdMap) -> "GroundTruth":
        """Return the ground truth of a test part in the numbering of the given maps, translated by raw id if needed.

        Raises:
            DataError: the part is empty, or not one of its users is in the map.
        """
        if not len(test):
            raise DataError(f"{test.name} has no interactions; evaluation needs at least one test interaction")
        users, items = translate(test, user_ids, item_ids)
        known = users >= 0
        if not known.any():
            raise DataError(f"not one user of {test.name} is known to the model; are both from one data set?")
        users_unknown = len(np.unique(test.users[~known]))
        interactions_unknown = int((items[known] < 0).sum())
        # An unknown item keeps a number of its own past the catalogue, where no list can reach it.
        items = np.where(items < 0, len(item_ids) + test.items, items)
        users, items = users[known], items[known]
        num_items = len(item_ids) + test.num_items
        truth = SeenItems.from_pairs(users, items, len(user_ids), num_items)
        counts = np.bincount(users, minlength=len(user_ids))
        counted = np.flatnonzero(counts)
        keys = np.sort(users * num_items + items)
        return cls(counted, counts[counted], truth.counts[counted], truth, keys, users_unknown, interactions_unknown)


def evaluate(
    model: Fitted | Recommender,
    test: Interactions,
    *,
    metrics: str | Sequence[str] = DEFAULT_METRICS,
    train: Interactions | None = None,
    valid: Interactions | None = None,
    mask: str = "train",
    seed: int | None = None,
    split_name: str | None = None,
) -> Evaluation:
    """Return the metrics of the model's lists on the test part, over all users with at least one test interaction.

    Parts numbered by other id maps than the model's are translated by raw id. Users unknown to the model get no list
    and are in no mean; their number is in the protocol. Items unknown to it can never be hit but stay in the
    denominators.

    Args:
        model: a fitted model, or a recommender.
        test: the interactions to be found: `Interactions`, a frame, or whatever else `Interactions.of` takes.
        metrics: names such as "ndcg@20".
        train: the training interactions; the model's own history by default.
        valid: the validation interactions, needed only for mask="train+valid".
        mask: which interactions are left out of the lists: "train" (as the paper), "train+valid" or "none".
        seed: seed of the training run, for the protocol.
        split_name: what to call the test part in the protocol; its own name by default.

    Raises:
        DataError: the test part is empty or shares no user with the model.
        ConfigError: a metric or mask is unknown, or the mask needs a part that was not given.
    """
    wanted = parse_metrics(metrics)
    if mask not in MASKS:
        raise ConfigError(f"mask={mask!r} is not known; choose one of {', '.join(MASKS)}")
    if mask == "train+valid" and valid is None:
        raise ConfigError("mask='train+valid' needs the validation part; pass valid=..., or use mask='train'")
    recommender = model if isinstance(model, Recommender) else model.recommender
    test = Interactions.of(test)
    truth = GroundTruth.of(test, recommender.user_ids, recommender.item_ids)
    learned_from = recommender.history if train is None else train
    trained = recommender.seen if train is None else seen_by(recommender, train)
    seen = {"none": None, "train": trained}.get(mask)
    if mask == "train+valid" and valid is not None:
        seen = seen_by(recommender, learned_from, valid)
    _, items = translate(learned_from, recommender.user_ids, recommender.item_ids)
    popularity = np.bincount(items[items >= 0], minlength=len(recommender.item_ids))
    values, backend = measure(recommender, truth, seen, popularity, wanted)
    return Evaluation(
        metrics={name: float(np.mean(value)) for name, value in values.items()},
        per_user={name: value for name, value in values.items() if isinstance(value, np.ndarray)},
        users=truth.users,
        protocol=Protocol(
            split=split_name or test.name,
            split_hash=_split_hash(recommender, trained, truth),
            k=tuple(sorted({metric.cutoff for metric in wanted})),
            mask=mask,
            users=len(truth.users),
            test_interactions=len(truth.keys),
            users_unknown=truth.users_unknown,
            test_interactions_unknown=truth.interactions_unknown,
            seed=seed,
            versions=installed_versions(),
            backend=backend,
        ),
    )


def measure(
    recommender: Recommender,
    truth: GroundTruth,
    seen: SeenItems | None,
    popularity: NDArray[np.int64],
    metrics: Sequence[Metric],
) -> tuple[dict[str, NDArray[np.float64] | float], str]:
    """Return the value of each metric, per user (U,) or one over all lists, and the device that scored the lists.

    What is `seen` is left out of the lists; `popularity` (m,) has the training interactions of each item.
    """
    cutoff = max(metric.cutoff for metric in metrics)
    options = RankingOptions(cutoff, include_seen=seen is None)
    lists = recommender.rank(torch.from_numpy(truth.users), options, seen=seen)
    items = np.pad(lists.items.cpu().numpy(), ((0, 0), (0, cutoff - lists.items.shape[1])), constant_values=-1)
    hits = truth.relevant.contains(truth.users[:, None], items)  # (U, K)
    outcome = Outcome(hits, items, truth.counts, truth.distinct, popularity)
    values = {str(metric): METRICS[metric.name](outcome.at(metric.cutoff)) for metric in metrics}
    return values, str(lists.scores.device)


def seen_by(recommender: Recommender, *parts: Interactions) -> SeenItems:
    """Return the distinct interactions of the parts in the recommender's numbering, without those it does not know."""
    translated = [translate(part, recommender.user_ids, recommender.item_ids) for part in parts]
    users = np.concatenate([each[0] for each in translated])
    items = np.concatenate([each[1] for each in translated])
    known = (users >= 0) & (items >= 0)
    return SeenItems.from_pairs(users[known], items[known], len(recommender.user_ids), len(recommender.item_ids))


def _split_hash(recommender: Recommender, trained: SeenItems, truth: GroundTruth) -> str:
    """Return 16 hexadecimal digits that two evaluations share when ids, training and test interactions are equal."""
    digest = hashlib.sha256()
    digest.update(recommender.user_ids.fingerprint.encode())
    digest.update(recommender.item_ids.fingerprint.encode())
    for keys in (trained.keys, truth.keys):
        digest.update(len(keys).to_bytes(8, "little"))
        digest.update(keys.astype("<i8", copy=False).tobytes())
    return digest.hexdigest()[:16]


def translate(part: Interactions, user_ids: IdMap, item_ids: IdMap) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the interactions of a log as int64 indices into the given maps, -1 for an id that is not in them."""

    def renumber(indices: NDArray[Any], old: IdMap, new: IdMap) -> NDArray[np.int64]:
        same = old is new or old == new
        renumbered: NDArray[np.int64] = indices if same else new.index_of(old.ids.to_pylist())[indices]
        return renumbered.astype(np.int64)

    return renumber(part.users, part.user_ids, user_ids), renumber(part.items, part.item_ids, item_ids)
