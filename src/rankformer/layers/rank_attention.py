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

The positive sums P are exact for every alpha. N = sum |Omega-| holds while no Omega- changes sign, which alpha >= 2
guarantees; below that N is the clamped estimate max(N, floor), and so it is for `negatives="pull"`, where every sign
of N flips. One `edge_dot`, one `spmm` (both directions at once) and four thin products forward; two `edge_dot`, two
`spmm` and six thin products backward. Nothing of size E x d or N x d x d is made.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from rankformer.errors import ConfigError
from rankformer.graph.bipartite import BipartiteGraph
from rankformer.graph.sparse_ops import (
    at_items,
    at_neighbours,
    at_users,
    edge_dot,
    item_sums,
    row_dot,
    spmm,
    two_way,
    user_sums,
)
from rankformer.layers.weights import RankWeights


def rank_attention(graph: BipartiteGraph, z: Tensor, weights: RankWeights | None = None, tau: float = 1.0) -> Tensor:
    """Return (1 - tau) z + tau R(z), Eq. 5, (n+m, d) with users first, in O(E d + (n+m) d^2).

    Exact for alpha >= 2, for `negatives="none"` and without normalisation; otherwise the negative sums of Eq. 8 are
    clamped estimates (module docstring). Parallel edges weigh as in the reference; should a user's repeats outnumber
    its other items, exactness asks for alpha >= 1 + sum_i |1 - c_ui| / e_u, which is 2 without repeats.

    Args:
        graph: the training pairs.
        z: (n+m, d) layer input, users first.
        weights: the terms of Omega; Eq. 6 by default.
        tau: step size.
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
        """Return the settings for `print(module)`."""
        return f"tau={self.tau}, weights={self.weights}"


@dataclass(frozen=True)
class _Constants:
    """Per-user constants of one graph and choice of weights, (n,) each."""

    p: Tensor  # 1 / d_u, the scale of omega+
    e_inv: Tensor  # 1 / e_u, the scale of b-
    g: Tensor  # the scale of omega-: 1/e_u (push), 1/d_u (pull), 0 (none)
    num_negatives: Tensor  # m - d_u

    @classmethod
    def of(cls, graph: BipartiteGraph, weights: RankWeights, dtype: torch.dtype) -> "_Constants":
        d_u = graph.degree[: graph.num_users]
        p, e_inv = 1 / d_u.clamp(min=1), 1 / (graph.num_items - d_u).clamp(min=1)
        g = {"push": e_inv, "pull": p, "none": torch.zeros_like(p)}[weights.negatives]
        return cls(*(value.to(dtype) for value in (p, e_inv, g, graph.num_items - d_u)))


class _RankAttention(torch.autograd.Function):
    """Unit rows x are never stored: wherever one is needed it is v with a factor, on the edge or on a block of rows.

    Full (n+m, d) arrays: v and `out` forward; the gradient, `result` and `gx` backward. All else is per node, per edge
    or per block of rows.
    """

    @staticmethod
    def forward(ctx: Any, graph: BipartiteGraph, v: Tensor, weights: RankWeights, tau: float) -> Tensor:
        n, d, beta = graph.num_users, v.shape[1], float(weights.benchmark)
        k = _Constants.of(graph, weights, v.dtype)
        inv_norm = _safe_inverse_(torch.linalg.vector_norm(v, dim=1)) * float(weights.similarity)  # 0: no similarity
        unit = torch.cat([k.g * inv_norm[:n], inv_norm[n:]])[:, None]  # v times this: g_u x_u, and x_i
        m_items, m_users = v.new_zeros(d, d), v.new_zeros(d, d)
        s_x, h = v.new_zeros(d), v.new_zeros(d)
        for rows in row_blocks(graph):
            x_b = v[rows] * unit[rows]
            (m_users if rows.start < n else m_items).addmm_(x_b.T, v[rows])
            (h if rows.start < n else s_x).add_(x_b.sum(0))

        s = edge_dot(graph, v, v).mul_(at_users(graph, inv_norm)).mul_(at_items(graph, inv_norm))  # (E,)
        row_sum = user_sums(graph, s)
        rest = inv_norm[:n] * (v[:n] @ s_x) - row_sum  # (n,) sum of s over the user's negatives
        b_pos, b_neg = row_sum * k.p, rest * k.e_inv  # Eq. 7
        r = k.g * (beta * b_pos + weights.alpha)
        omega_pos = torch.addcmul(at_users(graph, k.p * (weights.alpha - beta * b_neg)), s, at_users(graph, k.p))
        omega_neg = torch.addcmul(at_users(graph, -r), s, at_users(graph, k.g))
        w = two_way(graph, omega_pos - omega_neg)  # (2E,)
        dense_neg = torch.cat([k.num_negatives * r - k.g * rest, r.sum() - inv_norm[n:] * (v[n:] @ h)])
        inv_c, signs, passes = _normalizer(graph, weights, omega_pos, omega_neg, dense_neg)

        s_v, s_r = v[n:].sum(0), r @ v[:n]
        scale = tau * inv_c  # (n+m,)
        out = spmm(graph, w, v)
        for rows in row_blocks(graph):
            out_b, x_b = out[rows], v[rows] * unit[rows]
            if rows.start < n:
                out_b.addmm_(x_b, m_items).addr_(r[rows], s_v, alpha=-1)
            else:
                out_b.addmm_(x_b, m_users).sub_(s_r)
            out_b.mul_(scale[rows, None]).add_(v[rows], alpha=1 - tau)
        ctx.fixed = graph, weights, tau, k
        ctx.save_for_backward(v, out, inv_norm, unit, w, r, inv_c, signs, passes, s_x, s_v, h, m_items, m_users)
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[None, Tensor, None, None]:
        graph, weights, tau, k = ctx.fixed
        v, out, inv_norm, unit, w, r, inv_c, signs, passes, s_x, s_v, h, m_items, m_users = ctx.saved_tensors
        n, beta = graph.num_users, float(weights.benchmark)
        grad = grads[0].contiguous()

        # gy = scale G is the gradient at y = C R;  gC = -(tau G . R) / C, where tau R = out - (1 - tau) v.
        scale = tau * inv_c  # (n+m,)
        gc = torch.empty_like(scale)
        gm_items, gm_users = torch.zeros_like(m_items), torch.zeros_like(m_users)  # (d, d)
        for rows in row_blocks(graph):
            minus_tau_r = (v[rows] * (1 - tau)).sub_(out[rows])
            gc[rows] = row_dot(grad[rows], minus_tau_r, scratch=minus_tau_r)
            weighted = v[rows] * (unit[rows] * scale[rows, None])
            (gm_items if rows.start < n else gm_users).addmm_(weighted.T, grad[rows])
        gp = gc * inv_c * float(weights.normalize)  # gradient at P
        gn = gp * passes  # gradient at N: 0 where N was clamped
        gn_u, gn_i = gn[:n], gn[n:]

        gw = edge_dot(graph, grad, v).mul_(at_users(graph, scale))
        gw.addcmul_(edge_dot(graph, v, grad), at_items(graph, scale))  # (E,)
        gn_e, gp_u = at_items(graph, gn), gp[:n]
        gq, sum_gn, s_gy_i = user_sums(graph, gw), user_sums(graph, gn_e), scale[n:] @ grad[n:]
        # Gradient at omega+ through P: that of the user and of the item. Where no sign can change, gp and gn are one,
        # and the edge's share joins that of gn.
        if signs is None:
            sum_ga, ga_user = sum_gn + (graph.num_items - k.num_negatives) * gp_u, k.p * gp_u
        else:
            ga = (at_users(graph, gp) + at_items(graph, gp)).mul_(signs)
            sum_ga, ga_user = user_sums(graph, ga), torch.zeros_like(gp_u)
        gr = gq - scale[:n] * (grad[:n] @ s_v) - v[:n] @ s_gy_i
        gr += gn_i.sum() - sum_gn + k.num_negatives * gn_u
        gb_pos, gb_neg = beta * k.g * gr, -beta * k.p * (gq + sum_ga)
        t = k.e_inv * gb_neg - k.g * gn_u  # gradient at x_u . s_X, and with the other sign at S_u
        gs = at_users(graph, k.p * gb_pos - t + ga_user).addcmul_(gw, at_users(graph, k.p - k.g))  # (E,) gradient at s
        if signs is None:
            gs.addcmul_(gn_e, at_users(graph, k.p + k.g))
        else:
            gs.addcmul_(gn_e, at_users(graph, k.g)).addcmul_(ga, at_users(graph, k.p))

        result = spmm(graph, w * at_neighbours(graph, scale), grad)
        gx = spmm(graph, two_way(graph, gs).mul_(at_neighbours(graph, inv_norm)), v)
        # Sums over the other side that every row shares: of the values, and of the unit rows.
        users_values, users_unit = (r * scale[:n]) @ grad[:n], (t * inv_norm[:n]) @ v[:n]
        items_unit = (gn_i * inv_norm[n:]) @ v[n:]
        sum_m_items, sum_m_users = gm_items + gm_items.T, gm_users + gm_users.T
        for rows in row_blocks(graph):
            v_b, gx_b, out_b, inv = v[rows], gx[rows], result[rows], inv_norm[rows]
            gy_b, x_b = grad[rows] * scale[rows, None], v_b * unit[rows]
            # x and v are parallel, so both factors of M (and M') give x (gM + gM^T) at once, of which the half that
            # came through x loses its component along x; all of gx does.
            if rows.start < n:
                through_m = x_b @ sum_m_users
                gx_b.addcmul_((gy_b @ m_items).sub_(items_unit), k.g[rows, None]).addr_(t[rows], s_x)
                out_b.addr_(r[rows], s_gy_i, alpha=-1)
            else:
                through_m = x_b @ sum_m_items
                gx_b.addmm_(gy_b, m_users).add_(users_unit).addr_(gn[rows], h, alpha=-1)
                out_b.sub_(users_values)
            lost = gx_b.mul_(inv[:, None]).add_(through_m, alpha=0.5)
            along = row_dot(v_b, lost, scratch=gy_b) * (inv * inv)
            out_b.add_(lost).add_(through_m, alpha=0.5).addcmul_(v_b, along[:, None], value=-1)
            out_b.add_(grad[rows], alpha=1 - tau)
        return None, result, None, None


def row_blocks(graph: BipartiteGraph, size: int = 16384) -> Iterator[slice]:
    """Yield the rows of users, then of items, in pieces that bound the temporaries of a pass.

    Smaller pieces stay in the cache, and 2048 rows are a tenth faster on idle cores. But every piece is another few
    dozen parallel regions, and when another process holds a core each region waits for the scheduler: then 2048 rows
    took three times as long as these.
    """
    n, total = graph.num_users, graph.num_nodes
    for first, last in ((0, n), (n, total)):
        for start in range(first, last, size):
            yield slice(start, min(start + size, last))


def _normalizer(
    graph: BipartiteGraph, weights: RankWeights, omega_pos: Tensor, omega_neg: Tensor, dense_neg: Tensor
) -> tuple[Tensor, Tensor | None, Tensor]:
    """Return 1/C (n+m,), the sign of each omega+ (None when none can change), and how N passes gradient on (n+m,).

    Args:
        graph: the edges.
        weights: the terms of Omega.
        omega_pos: (E,) omega+ on the edges.
        omega_neg: (E,) omega- on the edges.
        dense_neg: (n+m,) N of the users, and of the items before their edge sums.
    """
    n = graph.num_users
    if not weights.normalize:
        return torch.ones_like(dense_neg), None, torch.zeros_like(dense_neg)
    if weights.negatives == "push" and weights.alpha >= 2:
        total = torch.cat([user_sums(graph, omega_pos), item_sums(graph, omega_pos + omega_neg)]) + dense_neg
        return _safe_inverse_(total), None, torch.ones_like(total)
    magnitude = omega_pos.abs()
    sum_pos = torch.cat([user_sums(graph, magnitude), item_sums(graph, magnitude)])
    sum_neg = torch.cat([dense_neg[:n], dense_neg[n:] + item_sums(graph, omega_neg)])
    if weights.exact_normalizer:
        return _safe_inverse_(sum_pos + sum_neg), omega_pos.sign(), torch.ones_like(sum_neg)
    flip = -1.0 if weights.negatives == "pull" else 1.0
    passes = torch.where(flip * sum_neg > weights.floor, flip, 0.0)
    return _safe_inverse_(sum_pos + (flip * sum_neg).clamp(min=weights.floor)), omega_pos.sign(), passes


def _safe_inverse_(values: Tensor) -> Tensor:
    """Return 1/x in place of x, and 0 where x is 0."""
    return values.reciprocal_().nan_to_num_(nan=0.0, posinf=0.0, neginf=0.0)
