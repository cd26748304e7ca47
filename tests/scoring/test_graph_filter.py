"""The filter of GF-CF: what may be read back, and that nothing of m x m is made."""

import numpy as np
import pytest
import torch

from rankformer.errors import DataError
from rankformer.graph.bipartite import interaction_matrix
from rankformer.scoring.graph_filter import GraphFilter

INTERACTIONS = interaction_matrix(np.array([0, 0, 1, 1, 1]), np.array([0, 2, 2, 1, 1]), (3, 4), count_duplicates=True)
VECTORS = torch.linalg.qr(torch.randn(4, 2, generator=torch.Generator().manual_seed(0))).Q


def test_products_and_columns_are_those_of_the_dense_filter():
    """By hand: users 0, 1 weigh 2 and 3, items 0, 1, 2 weigh 1, 2, 2; user 2 and item 3 have nothing."""
    r = np.array([[1, 0, 1, 0], [0, 2, 1, 0], [0, 0, 0, 0]]) / np.sqrt(np.array([[2], [3], [1]]) * [1, 2, 2, 1])
    v, root = VECTORS.numpy(), np.sqrt([1, 2, 2, 1])
    dense = r.T @ r + 0.7 * (v @ v.T) * root / root[:, None]
    matrix = GraphFilter(INTERACTIONS, VECTORS, 0.7)
    found = matrix.product(INTERACTIONS)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, INTERACTIONS.toarray() @ dense, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(np.stack([matrix.column(i) for i in range(4)], axis=1), dense, rtol=1e-5, atol=1e-6)


def test_it_survives_its_tensors_and_metadata():
    matrix = GraphFilter(INTERACTIONS, VECTORS, 0.7)
    again = GraphFilter.restore(matrix.tensors(), matrix.metadata(), INTERACTIONS)
    assert np.array_equal(again.product(INTERACTIONS), matrix.product(INTERACTIONS))


@pytest.mark.parametrize(
    ("vectors", "weight", "message"),
    [
        (torch.zeros(5, 2), 0.3, r"expected \(4, 2\)"),
        (torch.zeros(4), 0.3, "shape"),
        (torch.full((4, 2), float("nan")), 0.3, "finite"),
        (VECTORS.double(), 0.3, "type float32"),
        (VECTORS, float("nan"), "weight is 'nan'; expected a number"),
    ],
)
def test_what_does_not_fit_is_rejected(vectors, weight, message):
    with pytest.raises(DataError, match=message):
        GraphFilter.restore({"vectors": vectors}, {"weight": weight}, INTERACTIONS)
