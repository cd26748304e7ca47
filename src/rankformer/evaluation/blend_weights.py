"""The weights of a blend, chosen on the validation part by bagged greedy selection.

Caruana et al., "Ensemble Selection from Libraries of Models", ICML 2004. One greedy run starts empty and adds, again
and again, the member whose addition helps the mean NDCG most; the counts at the best moment are its weights. Several
runs on random halves of the validation users are averaged, which keeps a member that helped some users by chance small;
one that the others do better without is then left out.

What a weight vector is worth takes milliseconds: each user keeps only the best candidates of every member. A candidate
outside all of these would have to be low with every member and high in their sum.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rankformer.evaluation.evaluator import GroundTruth
from rankformer.graph.collectives import ALONE, Ranks
from rankformer.scoring.base import Scorer
from rankformer.scoring.blend import BlendScorer, Member
from rankformer.scoring.seen_items import SeenItems

CUTOFF = 20
CANDIDATES = 100  # best items that each member proposes per user
MOST_USERS = 8000  # validation users that are looked at, a random sample
MOST_INTERACTIONS = 24_000  # of theirs: fewer users where each has many
BAGS, STEPS = 6, 12
LEAST_WEIGHT = 0.02  # a smaller one is noise that would cost time in every request
_BLOCK_NUMBERS = 2**23  # scores held at once
_HITS_AT_ONCE = 4096


@dataclass(frozen=True)
class Ballot:
    """What members say of the candidates of validation users.

    A relevant candidate is one row of `hits`. Its rank under a weight vector is the number of candidates of its user
    that score higher, or as high with a lower item index, so that nothing has to be sorted.
    """

    scores: Tensor  # (U, c, K) standardized, items ascending; padded with -inf
    hit_user: Tensor  # (h,) row of each relevant candidate
    hit_column: Tensor  # (h,) its column
    ideal: Tensor  # (U,) the DCG of a perfect list

    @classmethod
    def of(
        cls, scorers: Sequence[Scorer], truth: GroundTruth, seen: SeenItems, seed: int, ranks: Ranks = ALONE
    ) -> "Ballot":
        """Return what the scorers say of the items that the users of `truth` have not `seen`, those of all ranks."""
        users, (first, total) = truth.users, ranks.before(len(truth.users))
        most = max(1, min(MOST_USERS, int(MOST_INTERACTIONS / (ranks.total(int(truth.counts.sum()))[0] / total))))
        if total > most:
            chosen = np.sort(np.random.default_rng(seed).choice(total, most, replace=False)) - first
            users = users[chosen[(chosen >= 0) & (chosen < len(users))]]
        rows = max(1, _BLOCK_NUMBERS // (scorers[0].num_items * len(scorers)))
        alone = [BlendScorer((Member.of("", scorer, 1.0),)) for scorer in scorers]
        blocks = [_candidates(alone, users[at : at + rows], seen) for at in range(0, len(users), rows)]
        blocks.append((torch.zeros(0, 1, dtype=torch.int64), torch.zeros(0, 1, len(scorers))))  # where there is none
        width = int(ranks.joined(np.array([max(items.shape[1] for items, _ in blocks)])).max())
        items = torch.cat([_pad(items, width, -1) for items, _ in blocks])
        scores = torch.cat([_pad(scores, width, -math.inf) for _, scores in blocks])
        relevant = truth.relevant.contains(users[:, None], items.numpy())
        hit_user, hit_column = (torch.from_numpy(each) for each in np.nonzero(relevant))
        discounts = 1 / torch.log2(torch.arange(CUTOFF) + 2.0)
        counts = truth.counts[np.searchsorted(truth.users, users)]
        ideal = torch.cumsum(discounts, 0)[torch.from_numpy(counts).clamp(max=CUTOFF) - 1]
        found = scores, hit_user + ranks.before(len(users))[0], hit_column, ideal
        return cls(*(torch.from_numpy(ranks.joined(each.numpy())) for each in found))

    def rows(self, chosen: NDArray[np.bool_]) -> "Ballot":
        """Return the ballot of some of the users."""
        position = torch.from_numpy(np.cumsum(chosen) - 1)
        mask = torch.from_numpy(chosen)
        kept = mask[self.hit_user]
        return Ballot(self.scores[mask], position[self.hit_user[kept]], self.hit_column[kept], self.ideal[mask])

    def ndcg(self, weights: Sequence[float] | NDArray[np.float64]) -> float:
        """Return the mean NDCG of the lists that a weight vector (K,) gives."""
        return self._mean_ndcg(self._weighted(weights)[..., None])[0]

    def greedy(self, steps: int = STEPS) -> NDArray[np.float64]:
        """Return the weights of one greedy run, which sum to 1."""
        count = self.scores.shape[-1]
        total, added = torch.zeros(self.scores.shape[:2]), np.zeros(count)
        best_value, best = 0.0, np.ones(count) / count
        for _ in range(steps):
            values = self._mean_ndcg(total[..., None] + self.scores)
            chosen = int(np.argmax(values))
            total = total + self.scores[..., chosen]
            added[chosen] += 1
            if values[chosen] > best_value:
                best_value, best = values[chosen], added / added.sum()
        return best

    def _weighted(self, weights: Sequence[float] | NDArray[np.float64]) -> Tensor:
        # 0 times the padding's -inf would be NaN.
        parts = [self.scores[..., k] * weight for k, weight in enumerate(weights) if weight]
        return torch.stack(parts).sum(dim=0)

    def _mean_ndcg(self, scores: Tensor) -> list[float]:
        """Return the mean NDCG under each of several scores, (U, c, V)."""
        gains = torch.zeros(len(self.ideal), scores.shape[-1])
        for at in range(0, len(self.hit_user), _HITS_AT_ONCE):
            user, column = (each[at : at + _HITS_AT_ONCE] for each in (self.hit_user, self.hit_column))
            own = scores[user]  # (h, c, V)
            mine = own[torch.arange(len(user)), column][:, None]
            earlier = (torch.arange(own.shape[1]) < column[:, None])[..., None]  # wins ties
            rank = ((own > mine) | ((own == mine) & earlier)).sum(dim=1)
            gain = torch.where(rank < CUTOFF, 1 / torch.log2(rank + 2.0), 0.0)
            gains.index_add_(0, user, gain)
        means: list[float] = (gains / self.ideal[:, None]).mean(dim=0).tolist()
        return means


def choose_weights(
    scorers: Sequence[Scorer], truth: GroundTruth, seen: SeenItems, seed: int = 0, ranks: Ranks = ALONE
) -> tuple[list[float], list[float]]:
    """Return the weight of each scorer, and the validation NDCG of the blend, then of the blend without each scorer.

    Args:
        scorers: the members.
        truth: the validation part.
        seen: what is left out of the lists.
        seed: of the sample of users and of the bags.
        ranks: who shares the users; each has those of its own scorers.
    """
    ballot = Ballot.of(scorers, truth, seen, seed, ranks)
    weights = bagged_greedy(ballot, seed)
    values = [ballot.ndcg(weights)]
    for k in range(len(scorers)):
        others = [0.0 if j == k else float(weight) for j, weight in enumerate(weights)]
        values.append(ballot.ndcg(others) if any(others) else 0.0)
    return [float(weight) for weight in weights], values


def bagged_greedy(ballot: Ballot, seed: int = 0, bags: int = BAGS) -> NDArray[np.float64]:
    """Return the mean weights of greedy runs on random halves of the users; tiny ones become 0."""
    count = len(ballot.ideal)
    if count < 4:  # too few to halve
        return ballot.greedy()
    draws, runs = np.random.default_rng(seed), []
    for _ in range(bags // 2):  # halves in pairs: every user counts equally often
        half = np.zeros(count, dtype=bool)
        half[draws.permutation(count)[: count // 2]] = True
        runs += [ballot.rows(half).greedy(), ballot.rows(~half).greedy()]
    weights: NDArray[np.float64] = np.mean(runs, axis=0)
    weights[weights < LEAST_WEIGHT] = 0
    return _pruned(ballot, weights / weights.sum())


def _pruned(ballot: Ballot, weights: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the weights without members, one after the other, that the others do better without."""
    value = ballot.ndcg(weights)
    while np.count_nonzero(weights) > 1:
        fewer = [np.where(np.arange(len(weights)) == k, 0.0, weights) for k in np.flatnonzero(weights)]
        values = [ballot.ndcg(each) for each in fewer]
        if max(values) <= value:
            break
        value, weights = max(values), fewer[int(np.argmax(values))]
    scaled: NDArray[np.float64] = weights / weights.sum()
    return scaled


def _candidates(scorers: Sequence[Scorer], users: NDArray[np.int64], seen: SeenItems) -> tuple[Tensor, Tensor]:
    """Return the union of the members' best items of users (b, c), padded with -1, and the scores of each (b, c, K)."""
    asked = torch.from_numpy(users)
    scores = torch.stack([scorer.scores(asked) for scorer in scorers], dim=-1)  # (b, m, K)
    rows, items = (torch.from_numpy(each.astype(np.int64)) for each in seen.rows(users))
    scores[rows, items] = -math.inf
    proposed = scores.topk(min(CANDIDATES, scores.shape[1]), dim=1).indices  # (b, CANDIDATES, K)
    chosen = torch.zeros(scores.shape[:2], dtype=torch.bool)
    chosen.scatter_(1, proposed.flatten(1), True)
    chosen[rows, items] = False
    counts = chosen.sum(dim=1)
    user, item = chosen.nonzero(as_tuple=True)  # items ascending within each user
    column = torch.arange(len(user)) - (counts.cumsum(0) - counts)[user]
    candidates = torch.full((len(users), max(1, int(counts.max()))), -1)
    candidates[user, column] = item
    values = torch.full((*candidates.shape, len(scorers)), -math.inf)
    values[user, column] = scores[user, item]
    return candidates, values


def _pad(values: Tensor, width: int, filling: float) -> Tensor:
    missing = (0, 0) * (values.ndim - 2) + (0, width - values.shape[1])
    return torch.nn.functional.pad(values, missing, value=filling)
