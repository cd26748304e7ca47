"""Factors by weighted alternating least squares, with L2 regularization scaled by frequency.

Hu, Koren and Volinsky, ICDM 2008; Rendle, Krichene, Zhang and Koren, RecSys 2022 (the scaling):

    minimise  sum_{u,i} c_ui (a_ui - x_u . y_i)^2 + sum_u lambda_u |x_u|^2 + sum_i lambda_i |y_i|^2
    lambda_u = (c - 1) lambda (d_u + a0 m)^nu,   lambda_i = (c - 1) lambda (d_i + a0 n)^nu,   a0 = 1 / (c - 1)

with a = 1 and c = `weight` on the training interactions, a = 0 and c = 1 on all other pairs; duplicates weigh again.
With the items fixed, each user solves A_u x_u = b_u,

    A_u = Y^T Y + lambda_u I + (c - 1) sum_{e in u} w_e y_i y_i^T,     b_u = c sum_{e in u} w_e y_i,

and likewise the items; w_e is the weight of an interaction, 1 in a graph without weights: it counts as w_e duplicates.
A few steps from the last iteration's solution do, all rows of a side at once (Takacs, Pilaszy and Tikk, RecSys 2011),
in the basis of the eigenvectors of Y^T Y: there the first two terms of A_u are diagonal, D_u. They cost no matrix
product in a step, and as a preconditioner they leave only the few interactions of a row to be solved for. All of this
is the same in any orthonormal basis, so both sides stay in the last one and are turned back at the end.

Two kinds of steps. Those of conjugate gradients come closest, but their lengths follow the residual: in a row that
converges slowly a difference, rounding included, grows from iteration to iteration. Chebyshev's are fixed beforehand:
with the other side fixed they are linear in x and shrink differences. So conjugate gradients begin, while differences
have not grown, and Chebyshev's steps finish.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from rankformer.graph.bipartite import BipartiteGraph
from rankformer.graph.random_rows import drawn_rows
from rankformer.graph.sparse_ops import edge_dot, item_sums, row_dot, side_sums, user_sums

_GRADIENT_STEPS = 2  # of conjugate gradients, per half iteration; a third changed no metric
_CHEBYSHEV_STEPS = 4  # of which each reads the edges as often as one of conjugate gradients


def least_squares_factors(
    graph: BipartiteGraph,
    dim: int,
    seed: int,
    *,
    weight: float,
    regularization: float,
    frequency_exponent: float,
    iterations: int,
    linear_iterations: int = 0,
    start: Tensor | None = None,
) -> Tensor:
    """Return the factors of all users and items, (n+m, dim), users first.

    `weight` is c, above 1, `regularization` lambda and `frequency_exponent` nu; each side is solved for `iterations`
    times, from random factors or those of `start`, (n+m, dim); the last `linear_iterations` by Chebyshev's steps.
    """
    n, m = graph.num_users, graph.num_items
    generator = torch.Generator().manual_seed(seed)
    if start is None:
        drawn = drawn_rows(graph.all_users + m, dim, graph.node_ranges, lambda rows: rows.normal_(generator=generator))
        start = drawn * (0.1 / math.sqrt(dim))
    factors = start.to(graph.device, copy=True)
    others = torch.cat([graph.degree.new_full((n,), m), graph.degree.new_full((m,), graph.all_users)])
    strength, least = (
        row_regularization(degree, others, weight, regularization, frequency_exponent).to(factors.dtype)
        for degree in (graph.degree, torch.zeros_like(graph.degree))
    )
    turned = torch.eye(dim, dtype=torch.float64, device=graph.device)  # the product of all bases
    for iteration in range(iterations):
        improve_ = _chebyshev_ if iteration >= iterations - linear_iterations else _conjugate_gradients_
        for of_users in (True, False):
            equations, basis = _normal_equations(graph, factors, of_users, weight, strength, least)
            improve_(equations)
            factors, turned = equations.factors, turned @ basis
    return factors @ turned.T.to(factors.dtype)


def row_regularization(
    degree: Tensor, others: Tensor | int, weight: float, regularization: float, exponent: float
) -> Tensor:
    """Return (c - 1) lambda (d + a0 m)^nu for rows with `degree` interactions, of `others` possible ones."""
    result: Tensor = (degree + others / (weight - 1)) ** exponent * ((weight - 1) * regularization)
    return result


@dataclass(frozen=True, eq=False)
class _Equations:
    """A x = b of every row of a side, in the basis in which Y^T Y is diagonal; x stands in the rows of that side."""

    graph: BipartiteGraph
    of_users: bool  # or of items
    factors: Tensor  # (n+m, d)
    weight: float
    squares: Tensor  # (d,) the diagonal of Y^T Y
    strength: Tensor  # (rows, 1) lambda_u
    least: Tensor  # () lambda of a row without interactions

    @property
    def rows(self) -> Tensor:
        """The rows that are solved for, (rows, d), a view of the factors."""
        return self.factors[_side(self.graph, self.of_users)]

    def diagonal(self) -> Tensor:
        """Return D, (rows, d)."""
        return self.squares + self.strength

    def dots(self) -> Tensor:
        """Return x . y of every edge, (E,)."""
        return edge_dot(self.graph, self.factors, self.factors)

    def sums(self, values: Tensor) -> Tensor:
        """Return the sum of w_e value_e y_i over the edges of each row, (rows, d); overwrites the values (E,)."""
        weights = self.graph.edge_weights
        values = values if weights is None else values.mul_(weights)
        return side_sums(self.graph, self.of_users, values, self.factors)

    def totals(self, values: Tensor) -> Tensor:
        """Return the sum of w_e value_e over the edges of each row, (rows, 1); overwrites the values (E,)."""
        weights = self.graph.edge_weights
        values = values if weights is None else values.mul_(weights)
        result = (user_sums if self.of_users else item_sums)(self.graph, values)[:, None]
        if not self.of_users:
            self.graph.ranks.sum_(result)
        return result

    def residual(self, diagonal: Tensor) -> Tensor:
        """Return b - A x, (rows, d), in one sum over edges: each brings (c - (c - 1) x . y) y."""
        sums = self.sums(self.dots().mul_(1 - self.weight).add_(self.weight))
        return sums.addcmul_(diagonal, self.rows, value=-1)


def _side(graph: BipartiteGraph, of_users: bool) -> slice:
    """Return the nodes of the users or of the items."""
    return slice(0, graph.num_users) if of_users else slice(graph.num_users, graph.num_nodes)


def _normal_equations(
    graph: BipartiteGraph, factors: Tensor, of_users: bool, weight: float, strength: Tensor, least: Tensor
) -> tuple[_Equations, Tensor]:
    """Return the equations of one side, the other side's factors being fixed, and their basis (d, d) in float64."""
    fixed, side = factors[_side(graph, not of_users)], _side(graph, of_users)
    gram = fixed.T @ fixed
    if not of_users:
        graph.ranks.sum_(gram)
    values, basis = torch.linalg.eigh(gram.double())
    squares, turned = values.clamp(min=0).to(factors.dtype), factors @ basis.to(factors.dtype)
    return _Equations(graph, of_users, turned, weight, squares, strength[side, None], least[side.start]), basis


def _conjugate_gradients_(equations: _Equations) -> None:
    """Improve the rows in place by steps along conjugate directions, each of the best length.

    p . A p needs no sum of rows: with r the residual, p . D p = r . D^-1 r + beta^2 (p . D p of the step before), since
    r and the direction before are orthogonal.
    """
    weight, diagonal, direction = equations.weight, equations.diagonal(), equations.rows
    x, residual = direction.clone(), equations.residual(diagonal)
    torch.div(residual, diagonal, out=direction)  # what stands in these rows is multiplied by A
    size = row_dot(residual, direction)[:, None]  # (rows, 1) r . D^-1 r
    on_diagonal = size  # (rows, 1) p . D p
    for step in range(_GRADIENT_STEPS):
        dots = equations.dots()
        on_edges = equations.totals(dots.square())
        # A row that is solved has no residual left; its step is 0 / 0.
        length = (size / on_edges.mul_(weight - 1).add_(on_diagonal)).nan_to_num_(0.0, 0.0, 0.0)
        x.addcmul_(direction, length)
        if step + 1 < _GRADIENT_STEPS:
            image = equations.sums(dots.mul_(weight - 1)).addcmul_(diagonal, direction)
            residual.addcmul_(image, length, value=-1)
            scaled = torch.div(residual, diagonal, out=image)
            new_size = row_dot(residual, scaled)[:, None]
            beta = (new_size / size).nan_to_num_(0.0, 0.0, 0.0)
            direction.mul_(beta).add_(scaled)
            on_diagonal, size = beta.square().mul_(on_diagonal).add_(new_size), new_size
    direction.copy_(x)


def _chebyshev_(equations: _Equations) -> None:
    """Improve the rows in place by Chebyshev's semi-iteration.

    The eigenvalues of D^-1 A lie in [1, 1 + t], t = (c - 1) sum_e w_e y_i . D^-1 y_i, the trace of the rest. With
    theta = 1 + t/2 and delta = t/2 the middle and half of that range, and g_1 = 1 / theta,

        x += p_k,   p_k = a_k D^-1 r + b_k p_(k-1),   p_1 = g_1 D^-1 r,
        g_k = 1 / (2 theta - delta^2 g_(k-1)),   a_k = 2 g_k,   b_k = delta^2 g_k g_(k-1)
    """
    diagonal, x = equations.diagonal(), equations.rows
    half = _trace(equations) / 2  # (rows, 1) delta
    g = 1 / (1 + half)
    step = equations.residual(diagonal).div_(diagonal).mul_(g)
    x.add_(step)
    for _ in range(_CHEBYSHEV_STEPS - 1):
        before, g = g, 1 / (2 + 2 * half - half.square() * g)
        step.mul_(half.square() * g * before).addcmul_(equations.residual(diagonal).div_(diagonal), 2 * g)
        x.add_(step)


def _trace(equations: _Equations) -> Tensor:
    """Return (c - 1) sum_e w_e y_i . D^-1 y_i of each row, (rows, 1), or a bound of it where lambda_u differ.

    With l the least lambda_u and s the largest value of Y^T Y, D_u >= (Y^T Y + l I) (s + lambda_u) / (s + l).
    """
    graph, squares, least = equations.graph, equations.squares, equations.least
    largest = squares.amax()
    per_row = equations.factors.square() @ (1 / (squares + least))  # (n+m,)
    far = graph.edge_items if equations.of_users else graph.edge_users
    total = equations.totals(per_row.index_select(0, far)) * (equations.weight - 1)
    return total.mul_((largest + least) / (largest + equations.strength))
