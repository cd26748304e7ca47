"""BPR, Bayesian personalized ranking, over triples (u, i, j) of user, positive and negative item.

Rendle et al., UAI 2009; Eq. 1 of the Rankformer paper with -ln sigma for sigma, as its code has it:

    L = mean w_ui softplus(y_uj - y_ui),   y = z . z on the final embeddings

w_ui is the weight of the interaction, 1 on average (`Triples.weights`), and 1 for each without weights.
"""

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import embedding, softplus

from rankformer.graph.batch import Triples
from rankformer.graph.bipartite import BipartiteGraph, csr_pattern
from rankformer.graph.sparse_ops import bag_sum, group_by_column, own_item_sums, row_dot
from rankformer.losses.settings import LossSettings


def bpr(z: Tensor, triples: Triples, settings: LossSettings | None = None) -> Tensor:
    """Return the BPR loss of the triples, row numbers in `z`: all final embeddings, (n+m, d), or the batch's.

    The full batch of a graph takes a form without E x d gathers.
    """
    del settings  # it has none
    if triples.graph is not None:
        full = triples.graph, z, triples.negatives, triples.weights
        return _FullBatchRanking.apply(*full)  # type: ignore[no-any-return, no-untyped-call]
    users, positives, negatives = (rows.long() for rows in (triples.users, triples.positives, triples.negatives))
    z_users = embedding(users, z)
    margin = row_dot(z_users, embedding(negatives, z)) - row_dot(z_users, embedding(positives, z))
    return _mean(softplus(margin), triples.weights, triples.size)


def _mean(losses: Tensor, weights: Tensor | None, size: int) -> Tensor:
    return (losses.sum() if weights is None else torch.dot(losses, weights.to(losses.dtype))) / size


class _FullBatchRanking(torch.autograd.Function):
    """mean_e w_e softplus(z_u . z_j - z_u . z_i): one SDDMM over the pairs (i, j) of each user, then one SpMM.

    With c_e = w_e sigma(y_uj - y_ui) / E:  g_u = sum_e c_e (z_j - z_i),  g_i = -sum_e c_e z_u,  g_j = +sum_e c_e z_u.
    The graph groups positives by item, a counting sort the negatives: one thread sums each row, in a fixed order.
    """

    @staticmethod
    def forward(ctx: Any, graph: BipartiteGraph, z: Tensor, negatives: Tensor, weights: Tensor | None) -> Tensor:
        n, size = graph.num_users, graph.num_edges
        pairs = torch.stack([graph.edge_items, negatives], dim=1).flatten()  # (2E,) i_0 j_0 i_1 j_1 ...
        ptr = graph.ptr[: n + 1] * 2
        columns = max(graph.num_nodes, 2 * size // n + 1)  # torch holds at most rows x columns sparse values
        pattern = csr_pattern(ptr, pairs, (n, columns), z.dtype)
        right = z if columns == graph.num_nodes else torch.cat([z, z.new_zeros(columns - graph.num_nodes, z.shape[1])])
        torch.sparse.sampled_addmm(pattern, z[:n], right.T, out=pattern)
        scores = pattern.values().view(size, 2)
        margin = scores[:, 1] - scores[:, 0]
        ctx.graph = graph
        coefficients = torch.sigmoid(margin) / graph.all_edges
        coefficients = coefficients if weights is None else coefficients.mul_(weights)
        ctx.save_for_backward(z, pairs, ptr, negatives, coefficients)
        return _mean(softplus(margin), weights, graph.all_edges)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[None, Tensor, None, None]:
        z, pairs, ptr, negatives, coefficients = ctx.saved_tensors
        graph, n = ctx.graph, ctx.graph.num_users
        c = coefficients * grads[0]
        users, item_ptr, by_item = group_by_column(graph.ptr[: n + 1], negatives - n, c, graph.num_items)
        result = torch.empty_like(z)
        result[:n] = bag_sum(pairs, z, ptr, torch.stack([-c, c], dim=1).flatten())
        torch.sub(bag_sum(users, z, item_ptr, by_item), own_item_sums(graph, c, z), out=result[n:])
        return None, result, None, None
