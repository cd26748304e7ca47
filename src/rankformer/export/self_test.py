"""The test that an export answers as the run does, made on the files after they were written."""

from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray

from rankformer.errors import RankformerError
from rankformer.export.contents import Contents, VectorTable
from rankformer.export.targets import Target
from rankformer.scoring.embeddings import Embeddings
from rankformer.scoring.top_k import top_k

USERS, LENGTH, SEED = 100, 20, 0
TOLERANCE = 1e-6  # of |z_u| |z_i|, with which the rounding error of a 32-bit inner product scales


class SelfTest(NamedTuple):
    """What was compared and found equal.

    Attributes:
        users: how many lists were compared, of users drawn with a fixed seed.
        k: their length.
        searches: what searched the export.
        ties: ranks that hold another item with the same score, over all searches.
    """

    users: int
    k: int
    searches: list[str]
    ties: int


def self_test(contents: Contents, target: Target, folder: Path) -> SelfTest:
    """Return what was compared between the files in `folder` and the run.

    Every id, title and number must have come through, and the k best items of the drawn users, seen ones included,
    must be the run's own at every rank, save for items whose scores differ by no more than rounding.

    Raises:
        RankformerError: the export differs; it must not be used.
    """
    try:
        read = target.read(folder)
        for kind, ours, theirs in zip(("user", "item"), contents.tables, read, strict=True):
            _check_same(kind, ours, theirs)
    except (pa.ArrowException, KeyError, ValueError) as error:
        raise _failure(f"what was written cannot be read back: {error}") from error
    embeddings = contents.embeddings
    users = np.sort(np.random.default_rng(SEED).permutation(embeddings.num_users)[:USERS])
    k = min(LENGTH, embeddings.num_items)
    own = top_k(embeddings, torch.from_numpy(users), k).items.cpu().numpy()
    found = target.searches(folder, read, users, k)
    ties = sum(count_ties(embeddings, users, own, lists, search) for search, lists in found.items())
    return SelfTest(len(users), k, list(found), ties)


def count_ties(
    embeddings: Embeddings, users: NDArray[np.int64], own: NDArray[np.int64], found: NDArray[np.int64], search: str
) -> int:
    """Return at how many ranks two lists (b, k) hold different items of equal score, or refuse any other difference.

    Scores are taken in 64 bits from the run's vectors, so that neither side's rounding decides.
    """
    if found.shape != own.shape or found.min() < 0 or (np.diff(np.sort(found, axis=1), axis=1) == 0).any():
        raise _failure(f"{search} found fewer than {own.shape[1]} different items for a user")
    rows, ranks = np.nonzero(own != found)
    u = embeddings.users[users[rows]].double()  # (differences, d)
    ours, theirs = (embeddings.items[lists[rows, ranks]].double() for lists in (own, found))
    allowed = TOLERANCE * u.norm(dim=1) * torch.maximum(ours.norm(dim=1), theirs.norm(dim=1))
    wrong = ((u * (ours - theirs)).sum(1).abs() > allowed).numpy()
    if wrong.any():
        lists = len(np.unique(rows[wrong]))
        raise _failure(f"{search} ranks otherwise than the run for {lists} of {len(users)} users")
    return len(rows)


def _check_same(kind: str, ours: VectorTable, theirs: VectorTable) -> None:
    """Refuse a table that is not the one handed to the writer; a target may have widened the type of the ids."""
    for column in ("ids", "vectors", "titles"):
        written, read = getattr(ours, column), getattr(theirs, column)
        if isinstance(written, pa.Array) and isinstance(read, pa.Array):
            same = read.cast(written.type).equals(written)
        else:
            same = np.array_equal(read, written)  # vectors, or titles that one of the two lacks
        if not same:
            raise _failure(f"{kind} {column} did not come through")


def _failure(what: str) -> RankformerError:
    return RankformerError(f"the export failed its self-test: {what}; nothing was kept, please report this")
