"""Triples as positions among the distinct nodes of a batch."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from rankformer.graph.batch import Triples

NODES = 12
ROWS = st.lists(st.tuples(*[st.integers(0, NODES - 1)] * 3), min_size=1, max_size=30)


@given(ROWS)
def test_positions_name_the_same_nodes(rows):
    columns = [torch.tensor(column, dtype=torch.int32) for column in zip(*rows, strict=True)]
    triples = Triples(*columns, weights=torch.ones(len(rows)), total=99)
    nodes, placed = triples.placed(NODES)
    assert nodes.tolist() == sorted({node for row in rows for node in row})
    for name in ("users", "positives", "negatives"):
        assert nodes[getattr(placed, name)].tolist() == getattr(triples, name).tolist()
    assert (placed.size, placed.graph) == (99, None)
    assert placed.weights is triples.weights
