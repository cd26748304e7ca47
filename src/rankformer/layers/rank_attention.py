"""The Rankformer layer in linear time, with its backward written by hand (Sec. 3.3, App. A.3).

Equals `rank_attention_reference(..., estimate=True)`, outputs and gradients. Why it is linear: Omega is a low-rank
matrix on all pairs plus a correction on the edges, the same for both directions,

    Omega_ui = [ g_u s_ui - r_u ]  on every pair   +   w_ui  on edges only,
    s_ui = x_u . x_i,   x = v / |v|,   g_u = 1/e_u,   r_u = g_u (b+_u + alpha),   w_e = omega+_e - omega-_e,

so with M = X_i^T V_i, M' = (g X_u)^T V_u (d x d) and s_V, s_X, s_R, h column sums,

    y_u = sum_{e in u} w_e v_i + g_u x_u M - r_u s_V          s_V = sum_i v_i      s_X = sum_i x_i
    y_i = sum_{e in i} w_e v_u +     x_i M' - s_R             s_R = sum_u r_u v_u  h   = sum_u g_u x_u
    b+_u = S_u / d_u,  b-_u = (x_u . s_X - S_u) / e_u         S_u = sum_{e in u} s_e
    P_u  = sum_{e in u} |omega+_e|                            P_i = sum_{e in i} |omega+_e|
    N_u  = (m - d_u) r_u - g_u (x_u . s_X - S_u)              N_i = sum_u r_u - x_i . h + sum_{e in i} omega-_e
    C    = P + N,   R = y / C,   out = (1 - tau) v + tau R

With a curvature kappa, x_u = kappa v_u / |v_u| and nothing else changes, in the backward pass neither.

In a graph with weights an edge of weight a_e counts a_e among the positives, omega+_e holds the factor a_e, d_u is the
sum of the user's weights and b+_u = sum_{e in u} a_e s_e / d_u: a weighted mean. Negatives are pairs without an edge,
weights or not: e_u is m less the number of edges. So only the ratios of a user's weights matter, not their size.

The positive sums P are exact for every alpha. N = sum |Omega-| holds while no Omega- changes sign, which alpha >= 2
guarantees; below that N is the clamped estimate max(N, floor), and so it is for `negatives="pull"`, where every sign
of N flips. One `edge_dot`, one `spmm` (both directions at once) and four thin products forward; two `edge_dot`, two
`spmm` and six thin products backward. Nothing of size E x d or N x d x d is made.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from rankformer.errors import ConfigError
from rankformer.graph.bipartite import BipartiteGraph
from rankformer.graph.row_blocks import item_blocks, row_blocks
from rankformer.graph.sparse_ops import at_items, at_users, edge_dot, item_sums, row_dot, spmm, two_way, user_sums
from rankformer.layers.rank_weights import RankWeights


def rank_attention(graph: BipartiteGraph, z: Tensor, weights: RankWeights | None = None, tau: float = 1.0) -> Tensor:
    """Return (1 - tau) z + tau R(z), Eq. 5, (n+m, d) with users first, in O(E d + (n+m) d^2).

    Exact for alpha >= 2, for `negatives="none"` and without normalisation; otherwise the negative sums of Eq. 8 are
    clamped estimates (module docstring). Parallel edges weigh as in the reference; should a user's duplicates outnumber
    its other items, exactness needs alpha >= 1 + sum_i |1 - c_ui| / e_u, which is 2 without duplicates. The terms of
    Omega are those of `weights`, Eq. 6 by default; tau is the step size.
    """
    return _RankAttention.apply(graph, z, weights or RankWeights(), tau)  # type: ignore[no-any-return, no-untyped-call]


class RankAttention(nn.Module):
    """`rank_attention` as a module; it has no parameters of its own."""

    def __init__(self, tau: float = 0.5, weights: RankWeights | None = None) -> None:
        super().__init__()
        if not 0 <= tau <= 1:
            raise ConfigError(f"tau={tau}: the step size must lie in 0..1")
        self.tau = tau
        self.weights = weights or RankWeights()

    def forward(self, graph: BipartiteGraph, z: Tensor) -> Tensor:
        """Return the next layer's (n+m, d) rows, users first."""
        return rank_attention(graph, z, self.weights, self.tau)

    def extra_repr(self) -> str:
        return f"tau={self.tau}, weights={self.weights}"


class UserConstants(NamedTuple):
    """What the weights of a user need beside similarities, (n,) each."""

    p: Tensor  # 1 / d_u, the scale of omega+
    e_inv: Tensor  # 1 / e_u, the scale of b-
    g: Tensor  # the scale of omega-: 1/e_u (push), 1 / number of positives (pull), 0 (none)
    num_negatives: Tensor  # m less the number of positives
    d: Tensor  # d_u


def user_constants(
    d_u: Tensor, num_positives: Tensor, num_items: int, weights: RankWeights, dtype: torch.dtype
) -> UserConstants:
    """Return the constants of users with so many positives (float64), whose weights sum to `d_u`."""
    p, e_inv = 1 / torch.where(d_u > 0, d_u, 1.0), 1 / (num_items - num_positives).clamp(min=1)
    g = {"push": e_inv, "pull": 1 / num_positives.clamp(min=1), "none": torch.zeros_like(p)}[weights.negatives]
    return UserConstants(*(value.to(dtype) for value in (p, e_inv, g, num_items - num_positives, d_u)))


class UserTerms(NamedTuple):
    """Eq. 6 and 7 for some users: per user (n,) or per edge (E,)."""

    b_pos: Tensor  # (n,) Eq. 7
    b_neg: Tensor
    r: Tensor  # (n,) what omega- has besides the similarity
    omega_pos: Tensor  # (E,) Eq. 6 on edges
    omega_neg: Tensor  # (E,) what Eq. 6 gives a negative, at edges
    sum_neg: Tensor  # (n,) N_u


def user_terms(
    s: Tensor,
    s_total: Tensor,
    k: UserConstants,
    weights: RankWeights,
    at_edges: Callable[[Tensor], Tensor],
    sum_edges: Callable[[Tensor], Tensor],
    edge_weights: Tensor | None = None,
) -> UserTerms:
    """Return the weights of users from the similarities with their items; fold-in of new users computes the same.

    Args:
        s: (E,) similarity on each edge.
        s_total: (n,) x_u . s_X, the sum of similarities with all items.
        k: constants of the users.
        weights: the terms of Omega.
        at_edges: maps user values (n,) to the value of each edge's user (E,).
        sum_edges: maps edge values (E,) to the sum over each user's edges (n,).
        edge_weights: (E,) weight of each edge among the positives, None for 1 each.
    """
    beta, alpha = float(weights.benchmark), weights.alpha
    row_sum = sum_edges(s)
    rest = s_total - row_sum  # (n,) sum of s over the user's negatives
    weighted_sum = row_sum if edge_weights is None else sum_edges(s * edge_weights)
    b_pos, b_neg = weighted_sum * k.p, rest * k.e_inv  # Eq. 7
    r = k.g * (beta * b_pos + alpha)
    omega_pos = torch.addcmul(at_edges(k.p * (alpha - beta * b_neg)), s, at_edges(k.p))  # Eq. 6
    omega_pos = omega_pos if edge_weights is None else omega_pos.mul_(edge_weights)
    omega_neg = torch.addcmul(at_edges(-r), s, at_edges(k.g))
    return UserTerms(b_pos, b_neg, r, omega_pos, omega_neg, k.num_negatives * r - k.g * rest)


class _RankAttention(torch.autograd.Function):
    """Full (n+m, d) arrays: v, x and `out` forward, of which v and `out` are kept; backward the gradient, x, gy,
    `result` and `gx` besides. All else is per node, per edge or per block of rows.

    Unit rows x and the gradient gy at y are made once for all edges that read them; a factor per edge in their place
    would be two gathers over all edges each time.
    """

    @staticmethod
    def forward(ctx: Any, graph: BipartiteGraph, v: Tensor, weights: RankWeights, tau: float) -> Tensor:
        n, d, beta = graph.num_users, v.shape[1], float(weights.benchmark)
        num_positives = (graph.degree if graph.weights is None else graph.num_entries)[:n]
        k = user_constants(graph.degree[:n], num_positives, graph.num_items, weights, v.dtype)
        inv_norm = safe_inverse_(torch.linalg.vector_norm(v, dim=1)) * float(weights.similarity)  # 0: no similarity
        inv_norm[:n] *= weights.curvature  # x_u = kappa v_u / |v_u|: every s has the sign kappa
        x = v * inv_norm[:, None]
        s_x, m_items = x[n:].sum(0), x[n:].T @ v[n:]
        wide = v.dtype if weights.exact_normalizer else torch.float64  # the terms of an estimate nearly cancel
        h, m_users = v.new_zeros(d, dtype=wide), v.new_zeros(d, d)
        for rows in row_blocks(0, n):
            g_x = x[rows] * k.g[rows, None]
            m_users.addmm_(g_x.T, v[rows])
            h.add_(g_x.sum(0, dtype=wide))

        s = edge_dot(graph, x, x)  # (E,)
        sums = partial(at_users, graph), partial(user_sums, graph)
        t = user_terms(s, x[:n] @ s_x, k, weights, *sums, graph.edge_weights)
        r, w = t.r, two_way(graph, t.omega_pos - t.omega_neg)  # (n,), (2E,)
        h, sum_r = h.to(v.dtype), r.sum(dtype=wide).to(v.dtype)
        out, s_r, edge_sums = spmm(graph, w, v), r @ v[:n], _edge_sums(graph, weights, t, wide)
        graph.ranks.sum_(out[n:], m_users, h, s_r, sum_r, *edge_sums)  # all that sums over users, at once
        dense_neg = torch.cat([t.sum_neg, sum_r - x[n:] @ h])
        # The users' sum of omega+ where none is negative: p sums to 1 over a user's edges.
        user_pos = t.b_pos + k.p * k.d * (weights.alpha - beta * t.b_neg)
        inv_c, signs, passes = _normalizer(graph, weights, t, user_pos, dense_neg, *edge_sums)

        s_v = v[n:].sum(0)
        scale = tau * inv_c  # (n+m,)
        for rows in row_blocks(0, n):
            out[rows].addmm_(x[rows] * k.g[rows, None], m_items).addr_(r[rows], s_v, alpha=-1)
            out[rows].mul_(scale[rows, None]).add_(v[rows], alpha=1 - tau)
        for rows in row_blocks(n, graph.num_nodes):
            out[rows].addmm_(x[rows], m_users).sub_(s_r)
            out[rows].mul_(scale[rows, None]).add_(v[rows], alpha=1 - tau)
        ctx.fixed = graph, weights, tau, k
        ctx.save_for_backward(v, out, inv_norm, w, r, inv_c, signs, passes, s_x, s_v, h, m_items, m_users)
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[None, Tensor, None, None]:
        graph, weights, tau, k = ctx.fixed
        v, out, inv_norm, w, r, inv_c, signs, passes, s_x, s_v, h, m_items, m_users = ctx.saved_tensors
        n, beta = graph.num_users, float(weights.benchmark)
        grad = graph.whole_gradient(grads[0].contiguous())

        # gy = scale G is the gradient at y = C R;  gC = -(tau G . R) / C, where tau R = out - (1 - tau) v.
        x, gy = v * inv_norm[:, None], grad * (tau * inv_c)[:, None]
        gc, gm_items, gm_users = torch.empty_like(inv_c), torch.zeros_like(m_items), x[n:].T @ gy[n:]
        for rows in row_blocks(0, graph.num_nodes):
            minus_tau_r = (v[rows] * (1 - tau)).sub_(out[rows])
            gc[rows] = row_dot(grad[rows], minus_tau_r, scratch=minus_tau_r)
        for rows in row_blocks(0, n):
            gm_items.addmm_((x[rows] * k.g[rows, None]).T, gy[rows])
        gp = gc * inv_c * float(weights.normalize)  # gradient at P
        gn = gp * passes  # gradient at N: 0 where N was clamped
        gn_u, gn_i = gn[:n], gn[n:]

        gw = edge_dot(graph, v, gy, add_to=edge_dot(graph, gy, v))  # (E,)
        gn_e, gp_u, a = at_items(graph, gn), gp[:n], graph.edge_weights
        gq, sum_gn, s_gy_i = user_sums(graph, gw), user_sums(graph, gn_e), gy[n:].sum(0)
        # Gradient at omega+ through P: that of the user and of the item. Where no sign can change, gp and gn are one,
        # and the edge's part joins that of gn.
        if signs is None:
            sum_ga, ga_user = _weighted_sums(graph, gn_e, sum_gn) + k.d * gp_u, k.p * gp_u
        else:
            ga = (at_users(graph, gp) + at_items(graph, gp)).mul_(signs)
            sum_ga, ga_user = _weighted_sums(graph, ga), torch.zeros_like(gp_u)
        gr = gq - gy[:n] @ s_v - v[:n] @ s_gy_i
        gr += gn_i.sum() - sum_gn + k.num_negatives * gn_u
        gb_pos, gb_neg = beta * k.g * gr, -beta * k.p * (_weighted_sums(graph, gw, gq) + sum_ga)
        t = k.e_inv * gb_neg - k.g * gn_u  # gradient at x_u . s_X, and with the other sign at S_u
        if a is None:
            gs = at_users(graph, k.p * gb_pos - t + ga_user).addcmul_(gw, at_users(graph, k.p - k.g))  # gradient at s
            if signs is None:
                gs.addcmul_(gn_e, at_users(graph, k.p + k.g))
            else:
                gs.addcmul_(gn_e, at_users(graph, k.g)).addcmul_(ga, at_users(graph, k.p))
        else:  # (E,) the same, what came through the positives times the weights
            g_pos = gw + (gn_e if signs is None else ga)
            gs = at_users(graph, k.p * gb_pos + ga_user).addcmul_(g_pos, at_users(graph, k.p))
            gs = gs.mul_(a).sub_(at_users(graph, t)).addcmul_(gn_e - gw, at_users(graph, k.g))

        result, gx = spmm(graph, w, gy), spmm(graph, two_way(graph, gs), x)
        # Sums over the other side that every row shares: of the values, and of the unit rows.
        users_values, users_unit, items_unit = r @ gy[:n], t @ x[:n], gn_i @ x[n:]
        for rows in row_blocks(0, n):
            g = k.g[rows, None]
            # x and v are parallel, so both factors of M' (and M) give x (gM + gM^T) at once, of which the half that
            # came through x loses its component along x; all of gx does.
            through_m = (x[rows] * g) @ (gm_users + gm_users.T)
            gx[rows].addcmul_((gy[rows] @ m_items).sub_(items_unit), g).addr_(t[rows], s_x)
            result[rows].addr_(r[rows], s_gy_i, alpha=-1)
            _through_unit_rows_(result[rows], gx[rows], through_m, x[rows], inv_norm[rows], scratch=gy[rows])
            result[rows].add_(grad[rows], alpha=1 - tau)
        for rows, is_own in item_blocks(graph):
            # Every rank adds what comes through its users, and the owner of an item the rest.
            through_m = x[rows] @ (gm_items + gm_items.T)
            if is_own:
                gx[rows].addmm_(gy[rows], m_users).add_(users_unit).addr_(gn[rows], h, alpha=-1)
            else:
                gx[rows].add_(users_unit)
            result[rows].sub_(users_values)
            _through_unit_rows_(result[rows], gx[rows], through_m, x[rows], inv_norm[rows], scratch=gy[rows])
            if is_own:
                result[rows].add_(grad[rows], alpha=1 - tau)
        return None, result, None, None


def _weighted_sums(graph: BipartiteGraph, values: Tensor, unweighted: Tensor | None = None) -> Tensor:
    """Return the sum of each user's edge values times the weights, (n,); `unweighted` where known and none are."""
    if graph.edge_weights is not None:
        return user_sums(graph, values * graph.edge_weights)
    return user_sums(graph, values) if unweighted is None else unweighted


def _through_unit_rows_(
    result: Tensor, gx: Tensor, through_m: Tensor, x: Tensor, inv_norm: Tensor, scratch: Tensor
) -> None:
    """Add to the gradient at v what those at the unit rows x and at M mean for it: (gx - x (x . gx)) / |v|.

    Half of `through_m`, the gradient at v through M, came through x. `gx` and `scratch` are overwritten; all (b, d).
    """
    lost = gx.mul_(inv_norm[:, None]).add_(through_m, alpha=0.5)
    result.add_(lost).add_(through_m, alpha=0.5).addcmul_(x, row_dot(x, lost, scratch=scratch)[:, None], value=-1)


def _edge_sums(graph: BipartiteGraph, weights: RankWeights, t: UserTerms, wide: torch.dtype) -> tuple[Tensor, ...]:
    """Return the sums over each item's edges that its normaliser needs: of omega+ + omega-, or |omega+| and omega-."""
    if not weights.normalize:
        return ()
    if weights.negatives == "push" and weights.alpha >= 2:
        return (item_sums(graph, t.omega_pos + t.omega_neg),)
    return tuple(item_sums(graph, each.to(wide)).to(each.dtype) for each in (t.omega_pos.abs(), t.omega_neg))


def _normalizer(
    graph: BipartiteGraph, weights: RankWeights, t: UserTerms, user_pos: Tensor, dense_neg: Tensor, *edge_sums: Tensor
) -> tuple[Tensor, Tensor | None, Tensor]:
    """Return 1/C (n+m,), the sign of each omega+ (None when none can change), and how N passes gradient on (n+m,).

    From the sum of each user's omega+ (n,), N (n+m,) before the items' edge sums, and these.
    """
    n = graph.num_users
    if not weights.normalize:
        return torch.ones_like(dense_neg), None, torch.zeros_like(dense_neg)
    if weights.negatives == "push" and weights.alpha >= 2:
        total = torch.cat([user_pos, edge_sums[0]]) + dense_neg
        return safe_inverse_(total), None, torch.ones_like(total)
    sum_pos = torch.cat([user_sums(graph, t.omega_pos.abs()), edge_sums[0]])
    sum_neg = torch.cat([dense_neg[:n], dense_neg[n:] + edge_sums[1]])
    inv_c = inverse_normalizer(sum_pos, sum_neg, weights)
    if weights.exact_normalizer:
        return inv_c, t.omega_pos.sign(), torch.ones_like(sum_neg)
    flip = -1.0 if weights.negatives == "pull" else 1.0
    return inv_c, t.omega_pos.sign(), torch.where(flip * sum_neg > weights.floor, flip, 0.0)


def inverse_normalizer(sum_pos: Tensor, sum_neg: Tensor, weights: RankWeights) -> Tensor:
    """Return 1/C (Eq. 8) from P = sum |omega+| and N, estimated where N is not exact; ones without normalisation."""
    if not weights.normalize:
        return torch.ones_like(sum_pos)
    if weights.exact_normalizer:
        return safe_inverse_(sum_pos + sum_neg)
    flip = -1.0 if weights.negatives == "pull" else 1.0
    return safe_inverse_(sum_pos + (flip * sum_neg).clamp(min=weights.floor))


def safe_inverse_(values: Tensor) -> Tensor:
    """Return 1/x in place of x, and 0 where x is 0."""
    return values.reciprocal_().nan_to_num_(nan=0.0, posinf=0.0, neginf=0.0)
