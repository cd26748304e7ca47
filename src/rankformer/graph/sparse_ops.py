"""The sparse primitives of all layers: SDDMM (edge value from two rows) and SpMM (row from edge values).

Over all n+m nodes, rows stacked users first:

    edge_dot(P, Q)_e    = p_u . q_i                             one number per edge e = (u, i): SDDMM
    spmm(w, Q)_v        = sum_{entries e of v} w_e q_far(e)     neighbour sums of users and items at once: SpMM

The pair is closed under differentiation: the gradient of `spmm` with respect to its rows is `spmm` again (the pattern
is symmetric), with respect to its weights an `edge_dot`. Neither is known to autograd: layers use them forward and in a
backward of their own. No function here makes an array of size E x d.
"""

import scipy.sparse
import torch
from torch import Tensor
from torch.nn.functional import embedding_bag

from rankformer.graph.bipartite import BipartiteGraph


def edge_dot(graph: BipartiteGraph, left: Tensor, right: Tensor, add_to: Tensor | None = None) -> Tensor:
    """Return left_u . right_i for every edge, (E,) in user order, of rows (n+m, d) each.

    A given `add_to` (E,) is added to in place and returned.
    """
    n = graph.num_users
    if graph.num_edges > n * graph.num_nodes:
        # Torch's sparse tensors hold at most rows x columns values; beyond that the full product is smaller.
        full = (left[:n] @ right.T)[graph.edge_users, graph.edge_items]
        return full if add_to is None else add_to.add_(full)
    pattern = graph.pattern if graph.pattern.dtype == left.dtype else graph.pattern.to(left.dtype)
    values = pattern.values()
    # Writing into the pattern itself spares a copy of its indices; it is left holding zeros between calls.
    if add_to is not None:
        values.copy_(add_to)
    torch.sparse.sampled_addmm(pattern, left[:n], right.T, out=pattern)
    result = values.clone() if add_to is None else add_to.copy_(values)
    values.zero_()
    return result


def spmm(graph: BipartiteGraph, weights: Tensor, rows: Tensor) -> Tensor:
    """Return the sum of each node's neighbour rows, (n+m, d), by two-way weights (2E,)."""
    return bag_sum(graph.neighbours, rows, graph.ptr, weights)


def spmm_whole(graph: BipartiteGraph, weights: Tensor, rows: Tensor) -> Tensor:
    """Return `spmm` with the sums of the items taken over the users of all ranks."""
    sums = spmm(graph, weights, rows)
    graph.ranks.sum_(sums[graph.num_users :])
    return sums


def bag_sum(indices: Tensor, rows: Tensor, ptr: Tensor, weights: Tensor) -> Tensor:
    """Return sum over k in ptr[b]:ptr[b+1] of weights_k rows[indices_k], one row per bag b."""
    # embedding_bag sums each bag in one thread and a fixed order, so results repeat bit for bit. Rows that
    # require a gradient would take a slower path that prepares a backward pass, hence the detach.
    return embedding_bag(
        indices, rows.detach(), ptr, mode="sum", per_sample_weights=weights.detach(), include_last_offset=True
    )


def side_sums(graph: BipartiteGraph, of_users: bool, values: Tensor, rows: Tensor) -> Tensor:
    """Return the half of `spmm_whole` for the users, (n, d), or the items, (m, d), by edge values (E,)."""
    n, size = graph.num_users, graph.num_edges
    if of_users:
        return bag_sum(graph.neighbours[:size], rows, graph.ptr[: n + 1], values)
    sums = own_item_sums(graph, values, rows)
    graph.ranks.sum_(sums)
    return sums


def own_item_sums(graph: BipartiteGraph, values: Tensor, rows: Tensor) -> Tensor:
    """Return the half of `spmm` for the items, (m, d), by edge values (E,)."""
    size, by_item = graph.num_edges, values.index_select(0, graph.item_order)
    return bag_sum(graph.neighbours[size:], rows, graph.ptr[graph.num_users :] - size, by_item)


def two_way(graph: BipartiteGraph, values: Tensor) -> Tensor:
    """Return the two-way form (2E,) of edge values (E,)."""
    both = values.new_empty(2 * graph.num_edges)
    both[: graph.num_edges] = values
    torch.index_select(values, 0, graph.item_order, out=both[graph.num_edges :])
    return both


def user_sums(graph: BipartiteGraph, values: Tensor) -> Tensor:
    """Return the sum of each user's edge values, (n,)."""
    return torch.segment_reduce(values, "sum", offsets=graph.ptr[: graph.num_users + 1], initial=0.0)


def item_sums(graph: BipartiteGraph, values: Tensor) -> Tensor:
    """Return the sum of each item's edge values, (m,)."""
    by_item = values.index_select(0, graph.item_order)
    return torch.segment_reduce(by_item, "sum", offsets=graph.ptr[graph.num_users :] - graph.num_edges, initial=0.0)


def at_users(graph: BipartiteGraph, per_user: Tensor) -> Tensor:
    """Return the value of each edge's user, (E,)."""
    return per_user.index_select(0, graph.edge_users)


def at_items(graph: BipartiteGraph, per_node: Tensor) -> Tensor:
    """Return the value of each edge's item, (E,), from values of all n+m nodes."""
    return per_node.index_select(0, graph.edge_items)


def at_neighbours(graph: BipartiteGraph, per_node: Tensor) -> Tensor:
    """Return the value of the node at the far end of each two-way entry, (2E,)."""
    return per_node.index_select(0, graph.neighbours)


def row_dot(left: Tensor, right: Tensor, scratch: Tensor | None = None) -> Tensor:
    """Return the inner product of matching rows, (N,); `scratch` (N, d) is overwritten instead of allocating."""
    # A product and a matrix-vector product are several times faster than a batched product of single rows.
    product = torch.mul(left, right, out=scratch)
    return product @ product.new_ones(product.shape[1])


def group_by_column(ptr: Tensor, columns: Tensor, values: Tensor, num_columns: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return (rows, offsets, values) of a CSR matrix sorted by column, ties in row order: its CSC form."""
    if columns.device.type == "cpu":
        # SciPy's conversion is a counting sort, ten times faster than torch's sort here.
        parts = (values.numpy(), columns.numpy(), ptr.numpy())
        csc = scipy.sparse.csr_array(parts, shape=(len(ptr) - 1, num_columns)).tocsc()
        return torch.from_numpy(csc.indices), torch.from_numpy(csc.indptr), torch.from_numpy(csc.data)
    order = torch.sort(columns, stable=True).indices
    rows = torch.repeat_interleave(torch.arange(len(ptr) - 1, device=ptr.device), ptr.diff().long())
    counts = torch.bincount(columns, minlength=num_columns)
    offsets = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
    return rows[order].to(ptr.dtype), offsets.to(ptr.dtype), values[order]
