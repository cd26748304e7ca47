"""Factors by weighted alternating least squares (Hu, Koren and Volinsky, ICDM 2008), without a d x d matrix per row.

    minimise  sum_{u,i} c_ui (a_ui - x_u . y_i)^2 + lambda (sum_u |x_u|^2 + sum_i |y_i|^2)

with a = 1 and c = `weight` on the training interactions, a = 0 and c = 1 on all others; duplicates weigh again.
With the items fixed, each user solves A_u x_u = b_u,

    A_u = Y^T Y + lambda I + (c - 1) sum_{e in u} y_i y_i^T,     b_u = c sum_{e in u} y_i,

and likewise the items. A few steps of conjugate gradients from the last iteration's solution do (Takacs, Pilaszy and
Tikk, RecSys 2011): all rows of a side step together, and A x is one thin product, one `edge_dot` and one sum over
edges.
"""

import torch
from torch import Tensor

from rankformer.graph.bipartite import BipartiteGraph
from rankformer.graph.sparse_ops import edge_dot, side_sums

_STEPS = 3  # of conjugate gradients, per half iteration


def least_squares_factors(
    graph: BipartiteGraph, dim: int, seed: int, *, weight: float, regularization: float, iterations: int
) -> Tensor:
    """Return the factors of all users and items, (n+m, dim), users first.

    `weight` is c, `regularization` lambda; each side is solved for in each iteration, from a random initialization.
    """
    n = graph.num_users
    generator = torch.Generator().manual_seed(seed)
    factors = (torch.randn(graph.num_nodes, dim, generator=generator) * 0.01).to(graph.device)
    for _ in range(iterations):
        for side in (slice(0, n), slice(n, graph.num_nodes)):
            _solve(graph, factors, side, weight, regularization)
    return factors


def _solve(graph: BipartiteGraph, factors: Tensor, side: slice, weight: float, regularization: float) -> None:
    """Improve the factors of one side in place, the other side's being fixed."""
    of_users = side.start == 0
    fixed = factors[graph.num_users :] if of_users else factors[: graph.num_users]
    gram = fixed.T @ fixed
    gram.diagonal().add_(regularization)

    def apply(rows: Tensor) -> Tensor:
        """Return A x for every row x of the side."""
        stacked = factors.clone()
        stacked[side] = rows
        dots = edge_dot(graph, stacked, factors) if of_users else edge_dot(graph, factors, stacked)
        return side_sums(graph, of_users, dots, factors).mul_(weight - 1).addmm_(rows, gram)

    x = factors[side]
    ones = torch.ones(graph.num_edges, dtype=factors.dtype, device=factors.device)
    residual = side_sums(graph, of_users, ones, factors).mul_(weight).sub_(apply(x))
    direction = residual.clone()
    size = residual.square().sum(1, keepdim=True)  # (rows, 1)
    for _ in range(_STEPS):
        image = apply(direction)
        # A row that is solved has no residual left; its step is 0 / 0.
        step = (size / (direction * image).sum(1, keepdim=True)).nan_to_num_(0.0, 0.0, 0.0)
        x.addcmul_(direction, step)
        residual.addcmul_(image, step, value=-1)
        new_size = residual.square().sum(1, keepdim=True)
        direction.mul_((new_size / size).nan_to_num_(0.0, 0.0, 0.0)).add_(residual)
        size = new_size
