"""The weights of a blend, chosen on the validation part by bagged greedy selection.

Caruana et al., "Ensemble Selection from Libraries of Models", ICML 2004. One greedy run starts empty and adds, again
and again, the member whose addition helps the mean NDCG most; the counts at the best moment are its weights. Several
runs on random halves of the validation users are averaged, which keeps a member that helped some users by chance small;
one that the others do clearly better without is then left out, and none gets more than half unless that is clearly
worse. Where validation cannot tell, several members are safer than one: the test part is never quite like it.

Users without a training interaction do not vote: popularity answers for them, whatever the weights.

What a weight vector is worth takes milliseconds: each user keeps only the best candidates of every member. A candidate
outside all of these would have to be low with every member and high in their sum.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rankformer.evaluation.evaluator import GroundTruth
from rankformer.graph.collectives import ALONE, Ranks
from rankformer.scoring.base import Scorer
from rankformer.scoring.blend import BlendScorer, Member, Weighed
from rankformer.scoring.seen_items import SeenItems

CUTOFF = 20
CANDIDATES = 100  # best items that each member proposes per user
MOST_USERS = 12_000  # validation users that are looked at, a random sample: with half of them weights vary
MOST_INTERACTIONS = 60_000  # of theirs: fewer users where each has many
STEPS = 12
LEAST_BAGS, MOST_BAGS = 6, 24
BAGGED_PAIRS = 20_000_000  # over all bags: the smaller the validation part, the more bags, and the less chance decides
LEAST_WEIGHT = 0.02  # a smaller one is noise that would cost time in every request
MOST_WEIGHT = 0.5  # of one member
TOLERANCE = 0.005  # of the validation NDCG, below its standard error: less does not speak against several members
_BLOCK_NUMBERS = 2**25  # scores held at once


@dataclass(frozen=True)
class Ballot:
    """What members say of the relevant candidates of validation users, each beside the other candidates of its user.

    The rank of a relevant candidate under a weight vector is the number of others whose difference to it, weighted, is
    positive, or 0 with a lower item index: so that nothing has to be sorted. Most need not even be looked at: one that
    every member puts ahead is ahead under all weights, one that every member puts behind never is, and with CUTOFF of
    the former a relevant candidate is in no list. What remains are P pairs in doubt.
    """

    differences: Tensor  # (K, P) of the other candidate's standardized score to the relevant one's, by relevant one
    earlier: Tensor  # (P,) whether the other wins ties
    doubtful: Tensor  # (h,) pairs of each relevant candidate
    ahead: Tensor  # (h,) candidates that are ahead of it under all weights
    user: Tensor  # (h,) whose the relevant candidate is, from 0
    share: Tensor  # (h,) 1 / the DCG of a perfect list of its user
    users: int  # the mean is over so many

    @classmethod
    def of(
        cls, scorers: Sequence[Scorer], truth: GroundTruth, seen: SeenItems, seed: int, ranks: Ranks = ALONE
    ) -> "Ballot":
        """Return what the scorers say of the items that users have not `seen`, those of all ranks.

        The users are those of `truth` that have seen something.
        """
        is_known = seen.counts[truth.users] > 0
        users, interactions = truth.users[is_known], int(truth.counts[is_known].sum())
        first, total = ranks.before(len(users))
        most = max(1, min(MOST_USERS, int(MOST_INTERACTIONS * total / max(1, ranks.total(interactions)[0]))))
        if total > most:
            chosen = np.sort(np.random.default_rng(seed).choice(total, most, replace=False)) - first
            users = users[chosen[(chosen >= 0) & (chosen < len(users))]]
        rows = max(1, _BLOCK_NUMBERS // (scorers[0].num_items * len(scorers)))
        alone = [BlendScorer((Member.of("", scorer, 1.0),)) for scorer in scorers]
        blocks = [_beside(alone, users[at : at + rows], truth, seen) for at in range(0, max(1, len(users)), rows)]
        differences, earlier, doubtful, ahead, user = (np.concatenate(each) for each in zip(*blocks, strict=True))
        discounts = 1 / np.log2(np.arange(CUTOFF) + 2)
        share = 1 / discounts.cumsum()[truth.counts[np.searchsorted(truth.users, user)].clip(max=CUTOFF) - 1]
        numbers = np.searchsorted(users, user) + ranks.before(len(users))[0]
        found = (differences, earlier, doubtful, ahead, numbers, share.astype(np.float32))
        pairs, ties, lengths, before, user_of, share_of = (torch.from_numpy(ranks.joined(each)) for each in found)
        count = ranks.before(len(users))[1]
        return cls(pairs.T.contiguous(), ties, lengths, before, user_of, share_of, count)

    def of_users(self, chosen: NDArray[np.bool_]) -> "Ballot":
        """Return the ballot of some of the users."""
        kept = torch.from_numpy(chosen)[self.user]
        pairs = kept.repeat_interleave(self.doubtful)
        return Ballot(
            self.differences[:, pairs],
            self.earlier[pairs],
            self.doubtful[kept],
            self.ahead[kept],
            self.user[kept],
            self.share[kept],
            int(chosen.sum()),
        )

    def ndcg(self, weights: Sequence[float] | NDArray[np.float64]) -> float:
        """Return the mean NDCG of the lists that a weight vector (K,) gives."""
        return self._mean_ndcg(torch.as_tensor(weights, dtype=self.differences.dtype) @ self.differences)

    def greedy(self, steps: int = STEPS) -> NDArray[np.float64]:
        """Return the weights of one greedy run, which sum to 1."""
        count = len(self.differences)
        total, added = torch.zeros(len(self.earlier)), np.zeros(count)
        best_value, best = 0.0, np.ones(count) / count
        for _ in range(steps):
            values = [self._mean_ndcg(total + each) for each in self.differences]
            chosen = int(np.argmax(values))
            total = total + self.differences[chosen]
            added[chosen] += 1
            if values[chosen] > best_value:
                best_value, best = values[chosen], added / added.sum()
        return best

    def _mean_ndcg(self, differences: Tensor) -> float:
        """Return the mean NDCG under weighted differences, (P,)."""
        is_ahead = (differences > 0) | ((differences == 0) & self.earlier)
        until = torch.nn.functional.pad(is_ahead.cumsum(0, dtype=torch.int32), (1, 0))
        ends = self.doubtful.cumsum(0)
        rank = self.ahead + until[ends] - until[ends - self.doubtful]
        gains = torch.where(rank < CUTOFF, self.share / torch.log2(rank + 2.0), 0.0)
        return float(gains.sum(dtype=torch.float64)) / max(1, self.users)


def choose_weights(
    scorers: Sequence[Scorer], truth: GroundTruth, seen: SeenItems, seed: int = 0, ranks: Ranks = ALONE
) -> Weighed:
    """Return the weight of each scorer, and the validation NDCG of the blend, without each scorer and of each alone.

    Args:
        scorers: the members.
        truth: the validation part.
        seen: what is left out of the lists.
        seed: of the sample of users and of the bags.
        ranks: who shares the users; each has those of its own scorers.
    """
    ballot = Ballot.of(scorers, truth, seen, seed, ranks)
    weights = bagged_greedy(ballot, seed)
    without = []
    for k in range(len(scorers)):
        others = np.where(np.arange(len(weights)) == k, 0.0, weights)
        without.append(ballot.ndcg(others) if others.any() else 0.0)
    alone = [ballot.ndcg(only) for only in np.eye(len(scorers))]
    return Weighed(weights.tolist(), ballot.ndcg(weights), without, alone)


def bagged_greedy(ballot: Ballot, seed: int = 0, bags: int | None = None) -> NDArray[np.float64]:
    """Return the mean weights of greedy runs on random halves of the users; tiny ones become 0.

    `bags` is the number of runs, by default as many as a bounded time allows.
    """
    count = ballot.users
    if count < 4:  # too few to halve
        return ballot.greedy()
    if bags is None:
        bags = min(MOST_BAGS, max(LEAST_BAGS, BAGGED_PAIRS // max(1, len(ballot.earlier))))
    draws, runs = np.random.default_rng(seed), []
    for _ in range(bags // 2):  # halves in pairs: every user counts equally often
        half = np.zeros(count, dtype=bool)
        half[draws.permutation(count)[: count // 2]] = True
        runs += [ballot.of_users(half).greedy(), ballot.of_users(~half).greedy()]
    weights: NDArray[np.float64] = np.mean(runs, axis=0)
    weights[weights < LEAST_WEIGHT] = 0
    return _capped(ballot, _pruned(ballot, weights / weights.sum()))


def _pruned(ballot: Ballot, weights: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the weights without members, one after the other, that the others do clearly better without."""
    value = ballot.ndcg(weights)
    while np.count_nonzero(weights) > 1:
        fewer = [np.where(np.arange(len(weights)) == k, 0.0, weights) for k in np.flatnonzero(weights)]
        values = [ballot.ndcg(each) for each in fewer]
        if max(values) <= (1 + TOLERANCE) * value:
            break
        value, weights = max(values), fewer[int(np.argmax(values))]
    scaled: NDArray[np.float64] = weights / weights.sum()
    return scaled


def _capped(ballot: Ballot, weights: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the weights with no member above half of them all, unless the validation part tells that this is worse."""
    largest = weights.max()
    if not MOST_WEIGHT < largest < 1:
        return weights
    capped = np.where(weights == largest, MOST_WEIGHT, weights * (1 - MOST_WEIGHT) / (1 - largest))
    return capped if ballot.ndcg(capped) >= (1 - TOLERANCE) * ballot.ndcg(weights) else weights


def _beside(
    scorers: Sequence[Scorer], users: NDArray[np.int64], truth: GroundTruth, seen: SeenItems
) -> tuple[NDArray[Any], ...]:
    """Return the part of a ballot for some users: differences (P, K), ties (P,), and for each relevant one (h,)
    its pairs in doubt, how many are ahead of it, and whose it is.

    The candidates of a user are the best items of all members.
    """
    asked, (rows, items) = torch.from_numpy(users), seen.rows(users)
    left_out = torch.from_numpy(rows.astype(np.int64)), torch.from_numpy(items.astype(np.int64))
    chosen = torch.zeros(len(users), scorers[0].num_items, dtype=torch.bool)
    scores = []
    for scorer in scorers:
        mine = scorer.scores(asked)  # (b, m)
        mine[left_out] = -math.inf
        chosen.scatter_(1, mine.topk(min(CANDIDATES, mine.shape[1])).indices, True)
        scores.append(mine)
    chosen[left_out] = False
    counts = chosen.sum(dim=1)
    user, item = chosen.nonzero(as_tuple=True)  # items ascending within each user
    column = torch.arange(len(user)) - (counts.cumsum(0) - counts)[user]
    values = torch.full((len(scorers), len(users), max(1, int(counts.max() if len(users) else 0))), -math.inf)
    for mine, kept in zip(scores, values, strict=True):
        kept[user, column] = mine[user, item]
    relevant = torch.from_numpy(truth.relevant.contains(users[user.numpy()], item.numpy()))
    hit, place = user[relevant], column[relevant]
    others = values[:, hit]  # (K, h, c); -inf beyond a user's candidates
    differences = others - others.gather(2, place.expand(len(scorers), -1)[..., None])
    earlier = torch.arange(values.shape[2]) < place[:, None]
    least, most = differences.aminmax(dim=0)
    is_ahead = (least > 0) | ((least == 0) & earlier)
    can_be_listed = is_ahead.sum(dim=1) < CUTOFF
    in_doubt = ((most > 0) | ((most == 0) & earlier)) & ~is_ahead & can_be_listed[:, None]
    of_each = (in_doubt.sum(dim=1)[can_be_listed], is_ahead.sum(dim=1)[can_be_listed])
    owners = users[hit[can_be_listed].numpy()]
    return differences[:, in_doubt].T.numpy(), earlier[in_doubt].numpy(), *(each.numpy() for each in of_each), owners
