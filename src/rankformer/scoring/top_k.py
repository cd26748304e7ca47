"""The k best items of each user: exact, in bounded memory, with ties settled by the lower item index.

Never more than one block of users is scored at a time, so no (n, m) matrix exists. Inside a block most of the time
would go into `torch.topk` over full rows; two facts avoid it without giving up exactness.

1. Columns are put into groups and the largest score of each group is found in one vectorised pass. Let g be the
   (k+1)-th largest group maximum of a row. The k+1 groups at or above it hold k+1 scores >= g, and no score outside
   them exceeds g: so the k+1 largest *values* of the row are among the candidates of these groups.
2. If the k-th value exceeds the (k+1)-th, the set of the k best items is unique. Only the other rows are ambiguous;
   they keep what lies above the k-th value and take the lowest-numbered items at it, found on the full row.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from rankformer.errors import ConfigError, DataError
from rankformer.graph.collectives import Ranks
from rankformer.scoring.base import ScoreMatrix
from rankformer.scoring.filters import ListRules
from rankformer.scoring.seen_items import SeenItems

DEFAULT_BLOCK_BYTES = 16 * 2**20  # a block that stays near the last-level cache; larger ones measured slower
_GROUP = 16  # columns per group; 32 and 64 measured a tenth slower, a second level of groups no faster
_NEG_INF = float("-inf")


class TopK(NamedTuple):
    """Ranked lists, best first."""

    items: Tensor  # (b, k) int64 item indices; -1 where fewer than k items remained
    scores: Tensor  # (b, k) their scores; -inf beside each -1


def top_k(
    scorer: ScoreMatrix,
    users: Tensor,
    k: int,
    *,
    seen: SeenItems | None = None,
    allow: Tensor | None = None,
    block: Tensor | None = None,
    rules: ListRules | None = None,
    max_block_bytes: int = DEFAULT_BLOCK_BYTES,
) -> TopK:
    """Return the k best items of each user, by score downwards and then by item index upwards.

    Equal to `top_k_reference`. The same call gives the same answer every time; a score may differ in its last bit
    from that of a call with other users, because matrix products round by block shape.

    Args:
        scorer: where the scores come from.
        users: (b,) user indices, in any order, duplicates allowed.
        k: length of the lists.
        seen: interactions whose items must not be returned.
        allow: (a,) item indices; when given, nothing else is returned.
        block: item indices that are never returned.
        rules: filters, boosts and limits of the lists; boosts count before anything is left out.
        max_block_bytes: bound on the score matrix held at once (one row is always allowed).

    Raises:
        DataError: a score that could be returned is NaN, or indices do not fit.
        ConfigError: k is below 1.
    """
    _check(scorer, users, k, seen)
    forbidden = _forbidden(scorer.num_items, allow, block)
    rows = block_rows(scorer, max_block_bytes)
    with torch.no_grad():
        buffer = scorer.score_buffer(min(rows, len(users)))
        parts = []
        for start in range(0, max(1, len(users)), rows):  # no users: one empty block, for the shapes
            chunk = users[start : start + rows]
            scores = _as_floating(scorer.scores(chunk, None if buffer is None else buffer[: len(chunk)]))
            if rules is not None:
                rules.apply(scores)
            _mask(scores, chunk, seen, forbidden)
            parts.append(best_columns(scores, k, rules))
    return TopK(torch.cat([part.items for part in parts]), torch.cat([part.scores for part in parts]))


def block_rows(scorer: ScoreMatrix, max_block_bytes: int = DEFAULT_BLOCK_BYTES) -> int:
    """Return how many users are scored at once."""
    sample = scorer.score_buffer(0)
    score_bytes = 8 if sample is None else sample.element_size()
    return max(1, max_block_bytes // max(1, scorer.num_items * score_bytes))


def share_of(scorer: ScoreMatrix, count: int, ranks: Ranks) -> slice:
    """Return which of `count` users a rank answers: whole blocks, so that scores have the bits they have alone."""
    rows = block_rows(scorer)
    share = ranks.slice_of(-(-count // rows))
    return slice(share.start * rows, share.stop * rows)


def merge_top_k(lists: Sequence[TopK], k: int) -> TopK:
    """Return the k best items out of the k best of each of several sets of items: exact, ties by the lower index.

    So items that do not fit one machine are ranked in two stages: each rank its own, then the few best of all. What is
    not among the k best of its own set has k items before it there, so it is not among the k best of all.
    """
    items, scores = (torch.cat([getattr(each, name) for each in lists], dim=1) for name in TopK._fields)
    items, order = items.sort(dim=1, stable=True)  # a missing item, -1, has the score -inf and ends up last
    scores, order = scores.gather(1, order).sort(dim=1, descending=True, stable=True)
    return TopK(items.gather(1, order)[:, :k], scores[:, :k])


def top_k_on_ranks(scorer: ScoreMatrix, users: Tensor, k: int, ranks: Ranks, **options: Any) -> TopK:
    """Return the k best of all items for the same users on every rank, each of which has a slice of the items.

    Slices follow each other in the order of the ranks; `options` are those of `top_k`, for the slice.
    """
    first, _ = ranks.before(scorer.num_items)
    own = top_k(scorer, users, k, **options)
    numbers = torch.where(own.items >= 0, own.items + first, -1).cpu().numpy()
    lists = zip(ranks.in_turn(numbers), ranks.in_turn(own.scores.cpu().numpy()), strict=True)
    return merge_top_k([TopK(torch.from_numpy(items), torch.from_numpy(scores)) for items, scores in lists], k)


def top_k_reference(
    scorer: ScoreMatrix,
    users: Tensor,
    k: int,
    *,
    seen: SeenItems | None = None,
    allow: Tensor | None = None,
    block: Tensor | None = None,
    rules: ListRules | None = None,
) -> TopK:
    """Return what `top_k` returns by one stable sort of the full matrix: for tests and small data."""
    _check(scorer, users, k, seen)
    with torch.no_grad():
        scores = _as_floating(scorer.scores(users))
        if rules is not None:
            rules.apply(scores)
        _mask(scores, users, seen, _forbidden(scorer.num_items, allow, block))
        _refuse_nan(scores)
        values, items = scores.sort(dim=1, descending=True, stable=True)
        limits = () if rules is None else rules.limits
        for ranked, left in zip(items.tolist() if limits else [], values, strict=False):
            held: Counter[tuple[int, int]] = Counter()  # how many of the list have a value, by limit and value
            for position, item in enumerate(ranked):
                kinds = [(number, int(codes[item])) for number, (codes, _) in enumerate(limits)]
                kinds = [kind for kind in kinds if kind[1] >= 0]
                if any(held[kind] >= limits[kind[0]][1] for kind in kinds):
                    left[position] = _NEG_INF
                elif left[position] > _NEG_INF:
                    held.update(kinds)
        values, order = values.sort(dim=1, descending=True, stable=True)
        return _finish(values[:, :k], items.gather(1, order)[:, :k], k)


def _check(scorer: ScoreMatrix, users: Tensor, k: int, seen: SeenItems | None) -> None:
    if k < 1:
        raise ConfigError(f"k={k}: a list needs at least one item; use k >= 1")
    if users.ndim != 1:
        raise DataError(f"users must be a flat list of indices; found shape {tuple(users.shape)}")
    if len(users) and int(users.min()) < 0:
        raise DataError(f"user indices start at 0; found {int(users.min())}")
    if seen is None:
        return
    if seen.num_items != scorer.num_items:
        raise DataError(f"`seen` has {seen.num_items} items and the scorer {scorer.num_items}; use one log")
    if len(users) and int(users.max()) >= seen.num_users:
        raise DataError(f"user index {int(users.max())} is outside the {seen.num_users} users of `seen`")


def _forbidden(num_items: int, allow: Tensor | None, block: Tensor | None) -> Tensor | None:
    """Return the indices of the items no list may hold, None where all may appear."""
    if allow is None and block is None:
        return None
    for label, listed in (("allow", allow), ("block", block)):
        if listed is not None and len(listed) and not (int(listed.min()) >= 0 and int(listed.max()) < num_items):
            raise DataError(f"{label}: item indices must lie in 0..{num_items - 1}; look the ids up first")
    closed = torch.full((num_items,), allow is not None)
    if allow is not None:
        closed[allow.long().cpu()] = False
    if block is not None:
        closed[block.long().cpu()] = True
    return closed.nonzero().squeeze(1)


def _as_floating(scores: Tensor) -> Tensor:
    """Return scores that can hold -inf and be written as one flat run of memory."""
    return (scores if scores.is_floating_point() else scores.to(torch.get_default_dtype())).contiguous()


def _mask(scores: Tensor, users: Tensor, seen: SeenItems | None, forbidden: Tensor | None) -> None:
    """Overwrite with -inf, in place, the scores (b, m) of seen and forbidden items."""
    if forbidden is not None:
        scores.index_fill_(1, forbidden.to(scores.device), _NEG_INF)
    if seen is not None:
        rows, items = seen.rows(users.cpu().numpy())
        flat = torch.from_numpy(rows * scores.shape[1] + items).to(scores.device)
        scores.view(-1).index_fill_(0, flat, _NEG_INF)


def best_columns(scores: Tensor, k: int, rules: ListRules | None = None) -> TopK:
    """Return the k best columns of each row of `scores` (b, m), the lower of two equal ones first.

    Under limits of `rules` they are the first k that these let pass.
    """
    if rules is not None and rules.limits:
        return _within_limits(scores, k, rules)
    values, items = _largest(scores, min(k + 1, scores.shape[1]))  # (b, k + 1), values downwards
    if values.shape[1] <= k:
        return _finish(values, items, k)  # every item fits: nothing can be cut off at a tie
    last = values[:, k - 1]
    # Rows where an item just outside ties with the last one inside; -inf stands for "no item" and needs no care.
    tied = ((last == values[:, k]) & (last > _NEG_INF)).nonzero().squeeze(1)
    values, items = values[:, :k].contiguous(), items[:, :k].contiguous()
    if len(tied):
        items[tied] = _settle_ties(scores[tied], values[tied], items[tied])
    return _finish(values, items, k)


def _within_limits(scores: Tensor, k: int, rules: ListRules) -> TopK:
    """Return the first k columns of each row that the limits let pass, looking deeper only where too few do."""
    rows, m = scores.shape
    lists = TopK(torch.full((rows, k), -1), scores.new_full((rows, k), _NEG_INF))
    left, depth = torch.arange(rows), 2 * k + 16
    while len(left):
        depth = min(m, depth)
        found = best_columns(scores[left.to(scores.device)], depth)
        items = found.items.cpu()
        taken, sizes = rules.within_limits(items, k)
        position = (~taken).byte().argsort(dim=1, stable=True)[:, :k]  # (b, k) those taken, then others
        missing = torch.arange(position.shape[1]) >= sizes[:, None]
        width = slice(0, position.shape[1])
        lists.items[left, width] = items.gather(1, position).masked_fill(missing, -1)
        best = found.scores.gather(1, position.to(scores.device)).masked_fill(missing.to(scores.device), _NEG_INF)
        lists.scores[left.to(scores.device), width] = best
        left = left[(sizes < k) & (items[:, -1] >= 0)] if depth < m else left[:0]
        depth *= 4
    return TopK(lists.items.to(scores.device), lists.scores)


def _largest(scores: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Return the `count` largest values of each row, downwards, and columns that hold them (any among equals)."""
    rows, m = scores.shape
    groups = m // _GROUP
    if groups <= 4 * count:  # too few groups for the detour to pay
        _refuse_nan(scores)
        return scores.topk(count, dim=1)
    # Column j < groups * _GROUP belongs to group j % groups; the few columns after that are always candidates.
    grouped = scores[:, : groups * _GROUP].view(rows, _GROUP, groups)
    tail = scores[:, groups * _GROUP :]
    best, chosen = grouped.amax(1).topk(count, dim=1)  # (b, count)
    # amax hands NaN on and topk ranks it first, so one look at the best of each row is enough.
    _refuse_nan(best[:, 0])
    _refuse_nan(tail)
    candidates = grouped.gather(2, chosen[:, None, :].expand(-1, _GROUP, -1)).view(rows, -1)  # (b, _GROUP * count)
    values, positions = torch.cat([candidates, tail], dim=1).topk(count, dim=1)
    layer = positions.div(count, rounding_mode="floor")
    columns = layer * groups + chosen.gather(1, positions % count)
    from_tail = positions - candidates.shape[1]  # >= 0 where the winner is one of the last columns
    return values, torch.where(from_tail >= 0, from_tail + groups * _GROUP, columns)


def _settle_ties(scores: Tensor, values: Tensor, items: Tensor) -> Tensor:
    """Return `items` (t, k) with those at the row's k-th value replaced by the lowest-numbered items at that value.

    Args:
        scores: (t, m) the full rows.
        values: (t, k) their k largest values, downwards.
        items: (t, k) columns holding these values.
    """
    k, m = items.shape[1], scores.shape[1]
    last = values[:, -1:]
    above = (values > last).sum(1, keepdim=True)  # (t, 1), at most k - 1
    # Number the columns downwards from m, so that the largest numbers at the value are the lowest columns.
    downwards = torch.arange(m, 0, -1, dtype=torch.int32, device=scores.device)
    lowest = m - torch.where(scores == last, downwards, 0).topk(k, dim=1).values.long()  # (t, k) ascending columns
    position = torch.arange(k, device=scores.device)
    return torch.where(position < above, items, lowest.gather(1, (position - above).clamp(min=0)))


def _finish(values: Tensor, items: Tensor, k: int) -> TopK:
    """Return the lists with equal scores ordered by item index, and every missing item up to k marked -1."""
    if bool((values[:, 1:] == values[:, :-1]).any()):
        items, order = items.sort(dim=1)
        values, order = values.gather(1, order).sort(dim=1, descending=True, stable=True)
        items = items.gather(1, order)
    items = items.masked_fill(values == _NEG_INF, -1)
    missing = k - items.shape[1]
    if missing > 0:
        items = torch.nn.functional.pad(items, (0, missing), value=-1)
        values = torch.nn.functional.pad(values, (0, missing), value=_NEG_INF)
    return TopK(items, values)


def _refuse_nan(scores: Tensor) -> None:
    if bool(torch.isnan(scores).any()):
        raise DataError("a score is not a number (NaN); the model has diverged or was damaged, train or load it anew")
