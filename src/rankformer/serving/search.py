"""Finding users and items by what their id or title contains, in Arrow's loops rather than Python's."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray


class SearchIndex:
    """Users or items by their ids and titles, in the order in which they are shown."""

    def __init__(self, texts: Sequence[pa.Array], counts: NDArray[Any], *, popular_first: bool) -> None:
        """Build the index.

        Args:
            texts: one array per searched column (id, title), position = index.
            counts: how many interactions each entry has.
            popular_first: whether the most frequent come first; otherwise the order of the index.
        """
        self.counts = counts
        self._texts = [pc.fill_null(pc.utf8_lower(column.cast(pa.large_string())), "") for column in texts]
        self._order = np.argsort(-counts, kind="stable") if popular_first else np.arange(len(counts))

    def find(self, query: str, limit: int) -> list[int]:
        """Return up to `limit` indices whose texts contain the query, those that begin with it first."""
        if not query:
            return [int(index) for index in self._order[:limit]]
        wanted = pc.utf8_lower(pa.scalar(query, pa.large_string())).as_py()
        begins = self._where(pc.starts_with, wanted)
        contains = self._where(pc.match_substring, wanted) & ~begins
        found = np.concatenate([self._order[begins[self._order]], self._order[contains[self._order]]])
        return [int(index) for index in found[:limit]]

    def _where(self, matches: Any, wanted: str) -> NDArray[np.bool_]:
        mask = np.zeros(len(self.counts), dtype=np.bool_)
        for column in self._texts:
            mask |= matches(column, wanted).to_numpy(zero_copy_only=False)
        return mask
