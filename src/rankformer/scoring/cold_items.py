"""Scores of items without interactions, from the attributes they share with items that have some.

A cold item is a row of weights over known items, and its score for a user is that combination of the user's scores:
y_uc = sum_j w_cj y_uj. So every scorer can have cold items; for embeddings it is the same as z_c = sum_j w_cj z_j.

1. Each attribute becomes a block of features of length 1: a value or its words (strings), its values (lists), an angle
   (numbers and dates: cos and sin of their quantile times pi/2); an unknown value has none.
2. How much each block counts is learned by non-negative least squares: similarity of two known items by their users
   (cosine) = sum over blocks of weight * similarity in the block. An attribute that says nothing gets weight 0.
3. The weights w_c are those of the n nearest known items: their similarities, scaled to add up to 1, or the ridge
   regression of the scores on the features among these n. What n and which of them is chosen on known items that are
   held out.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from numpy.typing import NDArray
from scipy.optimize import nnls
from scipy.sparse import csr_array, diags_array, hstack, vstack
from torch import Tensor

from rankformer.data.items import Items
from rankformer.errors import DataError
from rankformer.graph.bipartite import interaction_matrix
from rankformer.scoring.base import ScoreMatrix, Scorer
from rankformer.scoring.histories import Histories
from rankformer.scoring.seen_items import SeenItems

_HELD_OUT = 0.2  # fraction of the known items on which the rule is chosen
_MOST_HELD, _MOST_USERS, _MOST_SCORES = 500, 1000, 2**24
_SAMPLES = (300, 1000)  # pairs of items from which the weights of the blocks are learned
_MOST_WORDS = 20_000
_AT_ONCE = 256
_CUTOFF = 20


class Rule(NamedTuple):
    """How a cold item is made of known ones."""

    neighbours: int  # n, the nearest by attributes
    ridge: float | None = None  # L2 regularization of a regression among them; None for the mean by similarity

    def __str__(self) -> str:
        kind = "mean" if self.ridge is None else f"ridge regression ({self.ridge:g})"
        return f"{kind} of the {self.neighbours} nearest by attributes"


RULES = tuple(Rule(n, ridge) for n in (5, 20, 80) for ridge in (None, 1.0, 0.1))


@dataclass(frozen=True, eq=False)
class ColdItems:
    """Items scored by their attributes."""

    items: NDArray[np.int64]  # (t,) their indices, ascending
    weights: csr_array  # (t, m) w, over the items of the scorer
    rule: str = ""  # how the weights were found, for people

    def __post_init__(self) -> None:
        shape = self.weights.shape
        if shape[0] != len(self.items) or not np.isfinite(self.weights.data).all():
            raise DataError(f"{len(self.items)} cold items have weights of shape {shape}; expected finite, a row each")


class WithColdItems(ScoreMatrix):
    """The scores of a scorer, and those of cold items after or in place of them."""

    def __init__(self, scorer: ScoreMatrix, cold: ColdItems, num_items: int) -> None:
        self.scorer, self.cold, self._num_items = scorer, cold, num_items

    @property
    def num_items(self) -> int:
        return self._num_items

    def scores(self, users: Tensor, out: Tensor | None = None) -> Tensor:
        del out
        known = self.scorer.scores(users)  # (b, m)
        scores = known.new_full((len(known), self.num_items), float("-inf"))
        scores[:, : known.shape[1]] = known
        combined = self.cold.weights @ known.cpu().numpy().T  # (t, b)
        scores[:, torch.from_numpy(self.cold.items)] = torch.from_numpy(combined.T).to(scores)
        return scores


def learn_cold_items(items: Items, scorer: Scorer, seen: SeenItems) -> ColdItems | None:
    """Return how items without interactions are scored, or None where no attribute says anything about one.

    Args:
        items: aligned with the scorer's, those that it does not have after them.
        scorer: what scores the others.
        seen: the interactions it learned from.
    """
    m, users = scorer.num_items, np.repeat(np.arange(seen.num_users), seen.counts)
    counts = np.bincount(seen.items, minlength=len(items))
    blocks = [block for block in _blocks(items) if block.nnz]
    if not blocks:
        return None
    matrix = interaction_matrix(users, seen.items, (seen.num_users, m)).tocsc()
    known = np.flatnonzero(counts > 0)
    features = _weighted(blocks, _block_weights(blocks, matrix, known))
    described = np.diff(features.indptr) > 0
    known, targets = known[described[known]], np.flatnonzero((counts == 0) & described)
    if not len(targets) or len(known) < 2:
        return None
    rule = _choose_rule(features, known, matrix, scorer)
    [weights] = _weights(features, known, targets, [rule], m)
    return ColdItems(targets, weights, str(rule))


def _choose_rule(features: csr_array, known: NDArray[Any], matrix: Any, scorer: Scorer) -> Rule:
    """Return the rule under which known items, held out, are ranked best among each other: by mean NDCG@20 over users.

    Where the scorer can, users are scored without what they have of the held-out items.
    """
    rng = np.random.default_rng(0)
    held = np.sort(rng.permutation(known)[: min(_MOST_HELD, max(1, int(_HELD_OUT * len(known))))])
    others = np.setdiff1d(known, held)
    relevant = matrix[:, held].tocsr()
    users = np.flatnonzero(np.diff(relevant.indptr))
    users = np.sort(rng.permutation(users)[: min(_MOST_USERS, max(50, _MOST_SCORES // scorer.num_items))])
    if scorer.can_fold_in:
        left = matrix[:, others].tocsr()[users].tocoo()
        chosen = scorer.for_histories(Histories.of(left.row, others[left.col], len(users)))
        scores = chosen.scores(torch.arange(len(users)))
    else:
        scores = scorer.scores(torch.from_numpy(users))
    numbers = scores.cpu().numpy().T
    hits = relevant[users].toarray() > 0  # (b, h)
    found = _weights(features, others, held, RULES, scorer.num_items)
    quality = [_mean_ndcg((weights @ numbers).T, hits) for weights in found]  # of (b, h) scores
    return RULES[int(np.argmax(quality))]


def _mean_ndcg(scores: NDArray[Any], hits: NDArray[np.bool_]) -> float:
    order = np.argsort(-scores, axis=1, kind="stable")[:, :_CUTOFF]
    discounts = 1 / np.log2(np.arange(2, order.shape[1] + 2))
    gains = (np.take_along_axis(hits, order, 1) * discounts).sum(1)
    ideal = np.cumsum(discounts)[np.minimum(hits.sum(1), len(discounts)) - 1]
    return float(np.mean(gains / ideal)) if len(hits) else 0.0


def _weights(
    features: csr_array, known: NDArray[Any], targets: NDArray[Any], rules: Sequence[Rule], m: int
) -> list[csr_array]:
    """Return the weights of each target over the items 0..m-1 under each rule, (t, m)."""
    base, most = features[known].T.tocsr(), min(max(rule.neighbours for rule in rules), len(known))
    found: list[list[csr_array]] = [[] for _ in rules]
    for start in range(0, len(targets), _AT_ONCE):
        chunk = targets[start : start + _AT_ONCE]
        near = torch.from_numpy((features[chunk] @ base).toarray()).topk(most, dim=1)
        similar, nearest = near.values.numpy(), known[near.indices.numpy()]  # (c, most), nearest first
        grams = np.zeros((len(chunk), 0, 0))
        if any(rule.ridge is not None for rule in rules):
            grams = np.stack([(features[row] @ features[row].T).toarray() for row in nearest])  # (c, most, most)
        for rule, parts in zip(rules, found, strict=True):
            n = min(rule.neighbours, most)
            if rule.ridge is None:
                values = similar[:, :n] / np.maximum(similar[:, :n].sum(1, keepdims=True), 1e-12)
            else:
                values = _ridge(grams[:, :n, :n], similar[:, :n], rule.ridge)
            offsets = np.arange(0, values.size + 1, n)
            parts.append(
                csr_array((values.ravel().astype(np.float32), nearest[:, :n].ravel(), offsets), (len(chunk), m))
            )
    return [csr_array(vstack(parts)) for parts in found]


def _ridge(grams: NDArray[Any], similar: NDArray[Any], ridge: float) -> NDArray[Any]:
    """Return the weights with which ridge regression, with an intercept, predicts targets from n neighbours, (c, n).

    w = 1/n + H (H K H + ridge I)^-1 H (k - K 1/n) with K = F F^T (c, n, n), k = F f (c, n), H the centring matrix.
    """
    n, rows = similar.shape[1], grams.mean(2)
    target = similar - rows
    centred = grams - rows[:, None, :] - rows[:, :, None] + rows.mean(1)[:, None, None]
    right = target - target.mean(1, keepdims=True)
    solved = np.linalg.solve(centred + ridge * np.eye(n), right[:, :, None])[:, :, 0]
    weights: NDArray[Any] = 1 / n + solved - solved.mean(1, keepdims=True)
    return weights


def _block_weights(blocks: Sequence[csr_array], matrix: Any, known: NDArray[Any]) -> NDArray[Any]:
    """Return how much each block says about which users two items have in common, (blocks,)."""
    rng = np.random.default_rng(0)
    few, many = (np.sort(rng.permutation(known)[:size]) for size in _SAMPLES)
    lengths = np.sqrt(np.maximum(np.asarray(matrix.sum(0)), 1))  # (m,)
    shared = (matrix[:, few].T @ matrix[:, many]).toarray() / np.outer(lengths[few], lengths[many])
    apart = few[:, None] != many[None]  # an item agrees with itself in everything
    similar = [(block[few] @ block[many].T).toarray()[apart] for block in blocks]
    design = np.stack([*similar, np.ones(apart.sum())], axis=1)
    if not len(design):
        return np.ones(len(blocks))
    found = nnls(design, shared[apart].astype(np.float64))[0][:-1]
    return found / found.sum() if found.sum() > 0 else np.full(len(blocks), 1 / len(blocks))


def _weighted(blocks: Sequence[csr_array], weights: NDArray[Any]) -> csr_array:
    """Return the features of all items, of length 1 or 0; their inner product is the weighted similarity."""
    used = [block * np.sqrt(weight) for block, weight in zip(blocks, weights, strict=True) if weight > 0]
    return _unit_rows(csr_array(hstack(used)))


def _unit_rows(matrix: csr_array) -> csr_array:
    lengths = np.sqrt(np.asarray(matrix.power(2).sum(1)).ravel())
    return csr_array(diags_array(1 / np.maximum(lengths, 1e-12)) @ matrix)


def _blocks(items: Items) -> Iterator[csr_array]:
    """Yield the blocks of features of all items."""
    if items.titles is not None:
        yield _bag(_words(items.titles), len(items))
    for column in items.columns.values():
        if pa.types.is_string(column.type) or pa.types.is_boolean(column.type):
            yield _bag(([] if value is None else [value] for value in column.to_pylist()), len(items))
        if pa.types.is_string(column.type):
            yield _bag(_words(column), len(items))
        elif pa.types.is_list(column.type):
            yield _bag((value or [] for value in column.to_pylist()), len(items))
        elif not pa.types.is_boolean(column.type):
            yield _angles(column)


def _words(column: pa.Array) -> Iterator[list[str]]:
    for text in column.to_pylist():
        yield re.findall(r"\w+", (text or "").lower())


def _bag(values: Iterator[Any] | Any, size: int) -> csr_array:
    """Return a block with a feature per value that several items have, weighted by how rare it is."""
    lists = [list(dict.fromkeys(each)) for each in values]
    counts = Counter(value for each in lists for value in each)
    common = [value for value, count in counts.most_common(_MOST_WORDS) if 1 < count < size]
    column_of = {value: column for column, value in enumerate(common)}
    entries = [(row, column_of[value]) for row, each in enumerate(lists) for value in each if value in column_of]
    rows, columns = np.array(entries, dtype=np.int64).reshape(-1, 2).T
    rarity = np.log(size / np.array([counts[value] for value in common], dtype=np.float64))
    return _unit_rows(csr_array((rarity[columns], (rows, columns)), shape=(size, max(1, len(common)))))


def _angles(column: pa.Array) -> csr_array:
    """Return a block of two features for numbers or dates, whose inner product falls from 1 to 0 with distance."""
    if not (pa.types.is_integer(column.type) or pa.types.is_floating(column.type)):
        column = column.cast(pa.timestamp("us")).cast(pa.int64())
    values = pc.cast(column, pa.float64(), safe=False).to_numpy(zero_copy_only=False)
    present = np.flatnonzero(np.isfinite(values))
    distinct, position = np.unique(values[present], return_inverse=True)
    below = np.concatenate([[0], np.cumsum(np.bincount(position, minlength=len(distinct)))])
    middle = (below[:-1] + below[1:]) / 2 / max(1, len(present))  # quantile of each distinct value
    angle = middle[position] * np.pi / 2
    rows, columns = np.concatenate([present, present]), np.repeat([0, 1], len(present))
    return csr_array((np.concatenate([np.cos(angle), np.sin(angle)]), (rows, columns)), shape=(len(column), 2))
