"""Factors by weighted alternating least squares, with L2 regularization scaled by frequency.

Hu, Koren and Volinsky, ICDM 2008; Rendle, Krichene, Zhang and Koren, RecSys 2022 (the scaling):

    minimise  sum_{u,i} c_ui (a_ui - x_u . y_i)^2 + sum_u lambda_u |x_u|^2 + sum_i lambda_i |y_i|^2
    lambda_u = (c - 1) lambda (d_u + a0 m)^nu,   lambda_i = (c - 1) lambda (d_i + a0 n)^nu,   a0 = 1 / (c - 1)

with a = 1 and c = `weight` on the training interactions, a = 0 and c = 1 on all other pairs; duplicates weigh again.
With the items fixed, each user solves A_u x_u = b_u,

    A_u = Y^T Y + lambda_u I + (c - 1) sum_{e in u} w_e y_i y_i^T,     b_u = c sum_{e in u} w_e y_i,

and likewise the items; w_e is the weight of an interaction, 1 in a graph without weights: it counts as w_e duplicates.
Two steps of conjugate gradients from the last iteration's solution do, all rows of a side at once (Takacs, Pilaszy and
Tikk, RecSys 2011), in the basis of the eigenvectors of Y^T Y: there the first two terms of A_u are diagonal. They cost
no matrix product in a step, and as a preconditioner they leave only the few interactions of a row to be solved for. A x
is one `edge_dot` and one sum over edges, and p . A p needs only the former: with D the diagonal terms and r the
residual, p . D p = r . D^-1 r + beta^2 (p . D p of the step before), since r and the direction before are orthogonal.
All of this is the same in any orthonormal basis, so both sides stay in the last one and are turned back at the end.
"""

import math

import torch
from torch import Tensor

from rankformer.graph.bipartite import BipartiteGraph
from rankformer.graph.random_rows import drawn_rows
from rankformer.graph.sparse_ops import edge_dot, item_sums, row_dot, side_sums, user_sums

_STEPS = 2  # of conjugate gradients, per half iteration; a third changed no metric


def least_squares_factors(
    graph: BipartiteGraph,
    dim: int,
    seed: int,
    *,
    weight: float,
    regularization: float,
    frequency_exponent: float,
    iterations: int,
    start: Tensor | None = None,
) -> Tensor:
    """Return the factors of all users and items, (n+m, dim), users first.

    `weight` is c, above 1, `regularization` lambda and `frequency_exponent` nu; each side is solved for `iterations`
    times, from random factors or those of `start`, (n+m, dim).
    """
    n, m = graph.num_users, graph.num_items
    generator = torch.Generator().manual_seed(seed)
    if start is None:
        drawn = drawn_rows(graph.all_users + m, dim, graph.node_ranges, lambda rows: rows.normal_(generator=generator))
        start = drawn * (0.1 / math.sqrt(dim))
    factors = start.to(graph.device, copy=True)
    others = torch.cat([graph.degree.new_full((n,), m), graph.degree.new_full((m,), graph.all_users)])
    strength = row_regularization(graph.degree, others, weight, regularization, frequency_exponent).to(factors.dtype)
    turned = torch.eye(dim, dtype=torch.float64, device=graph.device)  # the product of all bases
    for _ in range(iterations):
        for side in (slice(0, n), slice(n, n + m)):
            factors, basis = _solve(graph, factors, side, weight, strength[side, None])
            turned = turned @ basis
    return factors @ turned.T.to(factors.dtype)


def row_regularization(
    degree: Tensor, others: Tensor | int, weight: float, regularization: float, exponent: float
) -> Tensor:
    """Return (c - 1) lambda (d + a0 m)^nu for rows with `degree` interactions, of `others` possible ones."""
    result: Tensor = (degree + others / (weight - 1)) ** exponent * ((weight - 1) * regularization)
    return result


def _solve(
    graph: BipartiteGraph, factors: Tensor, side: slice, weight: float, strength: Tensor
) -> tuple[Tensor, Tensor]:
    """Return all factors in a new basis, those of one side improved, and that basis (d, d) in float64.

    The other side's are fixed; `strength` (rows, 1) is lambda_u.
    """
    of_users, n, weights = side.start == 0, graph.num_users, graph.edge_weights
    fixed = factors[n:] if of_users else factors[:n]
    gram = fixed.T @ fixed
    if not of_users:
        graph.ranks.sum_(gram)
    values, basis = torch.linalg.eigh(gram.double())
    factors = factors @ basis.to(factors.dtype)  # (n+m, d)
    x, direction = factors[side].clone(), factors[side]  # what stands in these rows is multiplied by A
    diagonal = values.clamp(min=0).to(factors.dtype) + strength  # (rows, d)

    def sums(values: Tensor) -> Tensor:
        """Return the sum of value times y_i, times the weight, over the edges of each row; overwrites the values."""
        return side_sums(graph, of_users, values if weights is None else values.mul_(weights), factors)

    # b - A x in one sum over edges: each brings (c - (c - 1) x . y) y.
    dots = edge_dot(graph, factors, factors)  # (E,)
    residual = sums(dots.mul_(1 - weight).add_(weight)).addcmul_(diagonal, x, value=-1)
    torch.div(residual, diagonal, out=direction)
    size = row_dot(residual, direction)[:, None]  # (rows, 1) r . D^-1 r
    on_diagonal = size  # (rows, 1) p . D p
    for step in range(_STEPS):
        dots = edge_dot(graph, factors, factors)
        squares = dots.square() if weights is None else dots.square().mul_(weights)
        on_edges = (user_sums if of_users else item_sums)(graph, squares)[:, None]
        if not of_users:
            graph.ranks.sum_(on_edges)
        # A row that is solved has no residual left; its step is 0 / 0.
        length = (size / on_edges.mul_(weight - 1).add_(on_diagonal)).nan_to_num_(0.0, 0.0, 0.0)
        x.addcmul_(direction, length)
        if step + 1 < _STEPS:
            image = sums(dots.mul_(weight - 1)).addcmul_(diagonal, direction)
            residual.addcmul_(image, length, value=-1)
            scaled = torch.div(residual, diagonal, out=image)
            new_size = row_dot(residual, scaled)[:, None]
            beta = (new_size / size).nan_to_num_(0.0, 0.0, 0.0)
            direction.mul_(beta).add_(scaled)
            on_diagonal, size = beta.square().mul_(on_diagonal).add_(new_size), new_size
    direction.copy_(x)
    return factors, basis
