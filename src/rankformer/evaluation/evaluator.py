"""`evaluate`: the metrics of a model on a test part, together with the protocol that produced them."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any
from typing import Protocol as TypingProtocol

import numpy as np
import torch
from numpy.typing import NDArray

from rankformer.data.interactions import Interactions
from rankformer.errors import ConfigError
from rankformer.evaluation.ground_truth import GroundTruth, translate
from rankformer.evaluation.metrics import OVER_LISTS, PER_USER, Metric, Outcome, parse_metrics
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
        test: the interactions to be found.
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
    _check_mask(mask, valid)
    recommender = model if isinstance(model, Recommender) else model.recommender
    truth = GroundTruth.of(test, recommender.user_ids, recommender.item_ids)
    learned_from = recommender.history if train is None else train
    trained = recommender.seen if train is None else seen_by(recommender, train)
    seen = {"none": None, "train": trained}.get(mask)
    if mask == "train+valid" and valid is not None:
        seen = seen_by(recommender, learned_from, valid)
    popularity = _popularity(recommender, learned_from)
    outcome, backend = rank(recommender, truth, seen, popularity, max(metric.cutoff for metric in wanted))
    values = {str(metric): measure(metric, outcome) for metric in wanted}
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
            test_interactions=truth.num_interactions,
            users_unknown=truth.users_unknown,
            test_interactions_unknown=truth.interactions_unknown,
            seed=seed,
            versions=installed_versions(),
            backend=backend,
        ),
    )


def rank(
    recommender: Recommender,
    truth: GroundTruth,
    seen: SeenItems | None,
    popularity: NDArray[np.int64],
    cutoff: int,
) -> tuple[Outcome, str]:
    """Return the outcome of the lists for the users of the truth, and the device that scored them.

    Args:
        recommender: what answers.
        truth: the test part.
        seen: what is left out of the lists, None for nothing.
        popularity: (m,) training interactions of each item.
        cutoff: length of the lists.
    """
    options = RankingOptions(cutoff, include_seen=seen is None)
    lists = recommender.rank(torch.from_numpy(truth.users), options, seen=seen)
    items = np.pad(lists.items.cpu().numpy(), ((0, 0), (0, cutoff - lists.items.shape[1])), constant_values=-1)
    return Outcome(truth.hits(items), items, truth.counts, truth.distinct, popularity), str(lists.scores.device)


def measure(metric: Metric, outcome: Outcome) -> NDArray[np.float64] | float:
    """Return the metric's value for each user, or its one value over all lists."""
    cut = outcome.at(metric.cutoff)
    return PER_USER[metric.name](cut) if metric.name in PER_USER else OVER_LISTS[metric.name](cut)


def seen_by(recommender: Recommender, *parts: Interactions) -> SeenItems:
    """Return the distinct interactions of the parts in the recommender's numbering, without those it does not know."""
    translated = [translate(part, recommender.user_ids, recommender.item_ids) for part in parts]
    users = np.concatenate([pair[0] for pair in translated])
    items = np.concatenate([pair[1] for pair in translated])
    known = (users >= 0) & (items >= 0)
    return SeenItems.from_pairs(users[known], items[known], len(recommender.user_ids), len(recommender.item_ids))


def _check_mask(mask: str, valid: Interactions | None) -> None:
    if mask not in MASKS:
        raise ConfigError(f"mask={mask!r} is not known; choose one of {', '.join(MASKS)}")
    if mask == "train+valid" and valid is None:
        raise ConfigError("mask='train+valid' needs the validation part; pass valid=..., or use mask='train'")


def _popularity(recommender: Recommender, train: Interactions) -> NDArray[np.int64]:
    """Return the training interactions of each item, (m,)."""
    _, items = translate(train, recommender.user_ids, recommender.item_ids)
    return np.bincount(items[items >= 0], minlength=len(recommender.item_ids))


def _split_hash(recommender: Recommender, trained: SeenItems, truth: GroundTruth) -> str:
    """Return 16 hexadecimal digits that two evaluations share when ids, training and test interactions are equal."""
    digest = hashlib.sha256()
    digest.update(recommender.user_ids.fingerprint.encode())
    digest.update(recommender.item_ids.fingerprint.encode())
    for keys in (trained.keys, truth.keys):
        digest.update(len(keys).to_bytes(8, "little"))
        digest.update(keys.astype("<i8", copy=False).tobytes())
    return digest.hexdigest()[:16]
