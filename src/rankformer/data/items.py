"""What is known about items beside their ids: titles."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray


def first_titles(
    columns: Sequence[tuple[pa.ChunkedArray | None, int]], items: NDArray[np.int32], num_items: int
) -> pa.Array | None:
    """Return the first title known of each item (null where none is), or None without any title column.

    Args:
        columns: of each file, the titles of its interactions (None without them) and the number of interactions.
        items: item index of every interaction, file after file.
        num_items: size of the item map.
    """
    if all(column is None for column, _ in columns):
        return None
    chunks: list[pa.Array] = []
    for column, size in columns:
        chunks += [pa.nulls(size, pa.string())] if column is None else column.chunks
    titles = pa.chunked_array(chunks, type=pa.string())
    filled = np.flatnonzero(pc.fill_null(pc.greater(pc.utf8_length(titles), 0), False).to_numpy())
    first_row = np.full(num_items, -1, dtype=np.int64)
    first_row[items[filled[::-1]]] = filled[::-1]  # the last assignment wins: the earliest row with a title
    return pc.take(titles, pa.array(first_row, mask=first_row < 0)).combine_chunks()
