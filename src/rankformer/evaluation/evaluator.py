"""`evaluate`: the metrics of a model on a test part, together with the protocol that produced them."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any
from typing import Protocol as TypingProtocol

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray

from rankformer.data.id_map import IdMap
from rankformer.data.interactions import Interactions
from rankformer.errors import ConfigError, DataError
from rankformer.evaluation.metrics import METRICS, Metric, Outcome, parse_metrics
from rankformer.evaluation.protocol import Protocol, installed_versions
from rankformer.graph.collectives import ALONE, Ranks
from rankformer.scoring.html import html_table
from rankformer.scoring.options import RankingOptions
from rankformer.scoring.recommender import Recommender
from rankformer.scoring.seen_items import SeenItems
from rankformer.scoring.top_k import share_of

DEFAULT_METRICS = ("ndcg@20", "recall@20", "recall_capped@20")
MASKS = ("train", "train+valid", "none", "known")


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
        warm_metrics: the same over the users with training interactions; empty where all of them have some.
        per_user: (U,) value of each user, for every metric that has one (not coverage, novelty, gini).
        users: (U,) user indices of the model, aligned with `per_user`; -1 for a user it does not know.
        user_ids: (U,) their raw ids.
        lists: (U, K) their lists as item indices, -1 for a missing item.
        protocol: how the numbers came about.
    """

    metrics: dict[str, float]
    warm_metrics: dict[str, float]
    per_user: dict[str, NDArray[np.float64]] = field(repr=False)
    users: NDArray[np.int64] = field(repr=False)
    user_ids: pa.Array = field(repr=False)
    lists: NDArray[np.int64] = field(repr=False)
    protocol: Protocol

    def __str__(self) -> str:
        lines = [("", self.metrics), ("warm users: ", self.warm_metrics)]
        shown = [
            name + "  ".join(f"{key} {value:.4f}" for key, value in values.items()) for name, values in lines if values
        ]
        return "\n".join([*shown, f"[{self.protocol.line()}]"])

    def _repr_html_(self) -> str:
        headings = ["metric", "all users", *(["warm users"] if self.warm_metrics else [])]
        warm = [(self.warm_metrics.get(name),) if self.warm_metrics else () for name in self.metrics]
        rows = [(*row, *more) for row, more in zip(self.metrics.items(), warm, strict=True)]
        return html_table(headings, rows, f"Evaluation on {self.protocol.split}", self.protocol.line())

    def to_dict(self) -> dict[str, Any]:
        """Return metrics and protocol as values that JSON can hold."""
        warm = {"warm_metrics": dict(self.warm_metrics)} if self.warm_metrics else {}
        return {"metrics": dict(self.metrics), **warm, "protocol": self.protocol.to_dict()}


@dataclass(frozen=True, eq=False)
class GroundTruth:
    """The test interactions of every user.

    Users unknown to the model are cold like those without a training interaction. Interactions with unknown items are
    never hit, yet they are in every denominator.
    """

    users: NDArray[np.int64]  # (U,) indices, ascending, of the users with test interactions; unknown ones past the map
    user_ids: pa.Array  # (U,) their raw ids
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
        if not len(test) and test.block is None:  # a block may have none where others have some
            raise DataError(f"{test.name} has no interactions; evaluation needs at least one test interaction")
        users, items = translate(test, user_ids, item_ids)
        known = users >= 0
        if len(test) and not known.any():
            raise DataError(f"not one user of {test.name} is known to the model; are both from one data set?")
        users_unknown = len(np.unique(test.users[~known]))
        interactions_unknown = int((items < 0).sum())
        # An unknown item keeps a number of its own past the catalogue, where no list can reach it; so does a user.
        items = np.where(items < 0, len(item_ids) + test.items, items)
        users = np.where(known, users, len(user_ids) + test.users)
        num_items = len(item_ids) + test.num_items
        counted, first, counts = np.unique(users, return_index=True, return_counts=True)
        truth = SeenItems.from_pairs(users, items, len(user_ids) + test.num_users, num_items)
        names = test.user_ids.take(test.users[first])
        keys = np.sort(users * num_items + items)
        return cls(counted, names, counts, truth.counts[counted], truth, keys, users_unknown, interactions_unknown)


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
    lists: NDArray[np.int64] | None = None,
    **columns: Any,
) -> Evaluation:
    """Return the metrics of the model's lists on the test part, over all users with at least one test interaction.

    Parts numbered by other id maps than the model's are translated by raw id. Cold users, whether the model knows their
    id or not, get the most popular items and are in every mean; their number is in the protocol, and `warm_metrics`
    leaves them out. Items unknown to it can never be hit but stay in the denominators.

    Args:
        model: a fitted model, or a recommender.
        test: the interactions to be found: `Interactions`, a frame, or whatever else `Interactions.of` takes.
        metrics: names such as "ndcg@20".
        train: the training interactions; what the model was fitted on by default.
        valid: the validation interactions, needed only for mask="train+valid".
        mask: which interactions are left out of the lists: "train" (as the paper), "train+valid", "known" (all that
            the model's run knows of) or "none".
        seed: seed of the training run, for the protocol.
        split_name: what to call the test part in the protocol; its own name by default.
        lists: (U, K) what an earlier evaluation of the same test part listed; the model ranks by default.
        **columns: user=, item=, ... name the columns of a test part that is a table or file, as for `Interactions.of`.

    Raises:
        DataError: the test part is empty, shares no user with the model, or is left out of the lists altogether.
        ConfigError: a metric or mask is unknown, or the mask needs a part that was not given.
    """
    wanted = parse_metrics(metrics)
    if mask not in MASKS:
        raise ConfigError(f"mask={mask!r} is not known; choose one of {', '.join(MASKS)}")
    if mask == "train+valid" and valid is None:
        raise ConfigError("mask='train+valid' needs the validation part; pass valid=..., or use mask='train'")
    recommender = model if isinstance(model, Recommender) else model.recommender
    test = Interactions.of(test, **columns)
    truth = GroundTruth.of(test, recommender.user_ids, recommender.item_ids)
    learned_from = recommender.history if train is None else train
    trained = recommender.fitted if train is None else seen_by(recommender, train)
    seen = {"none": None, "train": trained, "known": recommender.seen}.get(mask)
    if mask == "train+valid" and valid is not None:
        seen = seen_by(recommender, learned_from, valid)
    known = truth.users < len(recommender.user_ids)
    users = np.where(known, truth.users, -1)
    masked = 0 if seen is None else int(_is_masked(truth, seen).sum())
    ranks = ranks_of(recommender.history)
    masked, size, count = map(int, ranks.total(masked, len(truth.keys), len(users)))
    if masked == size:
        raise DataError(
            f"every interaction of {test.name} is left out of the lists by mask={mask!r}, so nothing can be hit; "
            "a model that was refitted on the whole log needs newer interactions"
        )
    _, items = translate(learned_from, recommender.user_ids, recommender.item_ids)
    popularity = item_counts(learned_from, items=items[items >= 0], count=len(recommender.item_ids))
    cutoff, backend = max(metric.cutoff for metric in wanted), "stored lists"
    if lists is None:
        lists, backend = ranked(recommender, users, seen, cutoff)
    elif lists.shape[0] != len(users) or lists.shape[1] < cutoff:
        raise DataError(f"the stored lists have shape {lists.shape}; expected ({len(users)}, {cutoff}) or longer ones")
    values = measure(lists, truth, popularity, wanted, ranks)
    per_user = {name: value for name, value in values.items() if isinstance(value, np.ndarray)}
    warm = ranks.joined(known & (trained.counts[users] > 0))
    first = 0 if recommender.history.block is None else recommender.history.block.first_user
    return Evaluation(
        metrics={name: float(np.mean(value)) for name, value in values.items()},
        warm_metrics={}
        if warm.all()
        else {name: float(value[warm].mean()) for name, value in per_user.items() if warm.any()},
        per_user=per_user,
        users=ranks.joined(users + first),
        user_ids=truth.user_ids,
        lists=ranks.joined(lists[:, :cutoff]),
        protocol=Protocol(
            split=split_name or test.name,
            split_hash=_split_hash(recommender, trained, truth),
            k=tuple(sorted({metric.cutoff for metric in wanted})),
            mask=mask,
            users=count,
            test_interactions=size,
            users_unknown=truth.users_unknown,
            test_interactions_unknown=truth.interactions_unknown,
            seed=seed,
            versions=installed_versions(),
            backend=backend,
            test_interactions_masked=masked,
            users_cold=int((~warm).sum()),
        ),
    )


def ranked(
    recommender: Recommender, users: NDArray[np.int64], seen: SeenItems | None, cutoff: int
) -> tuple[NDArray[np.int64], str]:
    """Return the lists (U, cutoff) of user indices without what is `seen`, and the device that scored them."""
    options = RankingOptions(cutoff, include_seen=seen is None)
    # Ranks that all have the whole model share the users; where each has a block, these are its own.
    ranks = Ranks.current if recommender.history.block is None else ALONE
    mine = users[share_of(recommender.scorer, len(users), ranks)]
    found = recommender.rank(torch.from_numpy(mine), options, seen=seen)
    missing = cutoff - found.items.shape[1]
    lists = np.pad(found.items.cpu().numpy(), ((0, 0), (0, missing)), constant_values=-1)
    return ranks.joined(lists), str(found.scores.device)


def ranks_of(log: Interactions) -> Ranks:
    """Return the ranks that hold the blocks of a log; `ALONE` if it is the whole."""
    return ALONE if log.block is None else Ranks.current


def item_counts(
    log: Interactions,
    weights: NDArray[Any] | None = None,
    items: NDArray[Any] | None = None,
    count: int | None = None,
) -> NDArray[Any]:
    """Return the interactions of each item, or their weights, (m,), those of the blocks of all ranks together."""
    items, count = log.items if items is None else items, log.num_items if count is None else count
    counts = np.bincount(items, weights, minlength=count)
    if log.block is not None:
        ranks_of(log).sum_(torch.from_numpy(counts), exact=True)
    return counts


def measure(
    lists: NDArray[np.int64],
    truth: GroundTruth,
    popularity: NDArray[np.int64],
    metrics: Sequence[Metric],
    ranks: Ranks = ALONE,
) -> dict[str, NDArray[np.float64] | float]:
    """Return the value of each metric, per user (U,) or one over all lists (U, K), those of all ranks together.

    `popularity` (m,) has the training interactions of each item.
    """
    hits = truth.relevant.contains(truth.users[:, None], lists)  # (U, K)
    hits, lists, counts, relevant = map(ranks.joined, (hits, lists, truth.counts, truth.distinct))
    outcome = Outcome(hits, lists, counts, relevant, popularity)
    return {str(metric): METRICS[metric.name](outcome.at(metric.cutoff)) for metric in metrics}


def _is_masked(truth: GroundTruth, seen: SeenItems) -> NDArray[np.bool_]:
    """Return whether each test interaction is left out of the lists."""
    users, items = np.divmod(truth.keys, truth.relevant.num_items)
    inside = (users < seen.num_users) & (items < seen.num_items)
    return seen.contains(users, np.where(inside, items, -1))


def seen_by(recommender: Recommender, *parts: Interactions) -> SeenItems:
    """Return the distinct interactions of the parts in the recommender's numbering, without those it does not know."""
    translated = [translate(part, recommender.user_ids, recommender.item_ids) for part in parts]
    users = np.concatenate([each[0] for each in translated])
    items = np.concatenate([each[1] for each in translated])
    known = (users >= 0) & (items >= 0)
    return SeenItems.from_pairs(users[known], items[known], len(recommender.user_ids), len(recommender.item_ids))


def _split_hash(recommender: Recommender, trained: SeenItems, truth: GroundTruth) -> str:
    """Return 16 hexadecimal digits that two evaluations share when ids, training and test interactions are equal."""
    digest, block, ranks = hashlib.sha256(), recommender.history.block, ranks_of(recommender.history)
    digest.update((recommender.user_ids.fingerprint if block is None else block.user_ids_fingerprint).encode())
    digest.update(recommender.item_ids.fingerprint.encode())
    for keys, columns in ((trained.keys, trained.num_items), (truth.keys, truth.relevant.num_items)):
        digest.update(ranks.before(len(keys))[1].to_bytes(8, "little"))
        for part in ranks.in_turn(keys + (0 if block is None else block.first_user * columns)):
            digest.update(part.astype("<i8", copy=False).tobytes())
    return digest.hexdigest()[:16]


def translate(part: Interactions, user_ids: IdMap, item_ids: IdMap) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the interactions of a log as int64 indices into the given maps, -1 for an id that is not in them."""

    def renumber(indices: NDArray[Any], old: IdMap, new: IdMap) -> NDArray[np.int64]:
        same = old is new or old == new
        renumbered: NDArray[np.int64] = indices if same else new.index_of(old.ids.to_pylist())[indices]
        return renumbered.astype(np.int64)

    return renumber(part.users, part.user_ids, user_ids), renumber(part.items, part.item_ids, item_ids)
