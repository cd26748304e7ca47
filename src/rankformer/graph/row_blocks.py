"""Rows in pieces that bound the temporaries of a pass over them."""

from collections.abc import Iterator
from itertools import pairwise

from rankformer.graph.bipartite import BipartiteGraph


def row_blocks(first: int, last: int, size: int = 4096) -> Iterator[slice]:
    """Yield the rows from first to last in pieces that bound the temporaries of a pass.

    Smaller pieces stay in the cache, and 2048 rows are a tenth faster on idle cores. But every piece is another dozen
    of parallel regions, and when another process holds a core each region waits for the scheduler: then 2048 rows
    took three times as long as 16384.
    """
    for start in range(first, last, size):
        yield slice(start, min(start + size, last))


def item_blocks(graph: BipartiteGraph) -> Iterator[tuple[slice, bool]]:
    """Yield the rows of the items in pieces, and whether this rank owns them."""
    bounds = graph.num_users, graph.own_items.start, graph.own_items.stop, graph.num_nodes
    for number, (first, last) in enumerate(pairwise(bounds)):
        for rows in row_blocks(first, last):
            yield rows, number == 1
