"""LightGCN's propagation with noise of one length after each layer, as XSimGCL trains it.

    E^(0) = z,   H = T E^(k-1),   E^(k) = H + eps sign(H) * rho        k = 1..K,   T = D^-1/2 A D^-1/2
    rho = r / |r| row by row,     r ~ Uniform(0, 1)^d, fresh in every layer of every step

so that a row moves by eps within its orthant, and a row of zeros stays. The result F of the pass is either the
mean of E^(1)..E^(K) ("mean") or E^(K) itself ("last"), each beside C = E^(l*), the contrastive view. Noise
and sign are constants for the gradient: with c_k the weight of E^(k) in F,

    a_K = c_K G_F + [l* = K] G_C,   a_k = T a_{k+1} + c_k G_F + [l* = k] G_C,   dL/dz = T a_1

That is K sparse products each way, and no layer is kept between them. A loss reads the rows of its batch only, so
some steps are computed at `nodes` only: the last layer of a mean, its noise, and the first product of its backward
pass, whose other rows are zero.
"""

from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from rankformer.errors import ConfigError
from rankformer.graph.bipartite import BipartiteGraph
from rankformer.graph.random_rows import drawn_rows
from rankformer.graph.sparse_ops import at_neighbours, bag_sum, spmm, spmm_whole
from rankformer.layers.light_propagation import light_propagation, symmetric_weights
from rankformer.layers.seeded import generator_of

_NOISE_BLOCK = 2048  # rows of noise at a time, which stay in the cache from the draw to the sum

Rows = tuple[Tensor, Tensor, Tensor]
End = Literal["mean", "last"]


@dataclass(frozen=True)
class NoisyLayers:
    """How the noisy pass of a training step runs; its noise is a pure function of size, seed, step and layer."""

    num_layers: int  # K, at least 1
    cl_layer: int  # l*, in 1..K
    size: float  # eps, the length of what each layer adds to a row
    seed: int = 0
    step: int = 0

    def __post_init__(self) -> None:
        if not 1 <= self.cl_layer <= self.num_layers:
            raise ConfigError(
                f"cl_layer={self.cl_layer}: the contrastive view is the output of one of the layers "
                f"1..{self.num_layers}; choose one of them, or more num_layers"
            )

    def add_noise_(self, rows: Tensor, layer: int, whole: tuple[int, list[tuple[int, int]]] | None = None) -> None:
        """Add eps sign(h) * rho to every row h, in place.

        The rows of a rank are some of the whole's: how many these are, and the ranges that the rank has.
        """
        if self.size == 0:
            return
        generator = generator_of(self.seed, self.step, layer)
        if whole is None:
            numbers = _random_int16(rows.shape, generator).to(rows.device)
        else:
            draw = lambda block: block.copy_(_random_int16(block.shape, generator))  # noqa: E731
            numbers = drawn_rows(whole[0], rows.shape[1], whole[1], draw, torch.int16).to(rows.device)
        for start in range(0, len(rows), _NOISE_BLOCK):
            block = rows[start : start + _NOISE_BLOCK]
            r = numbers[start : start + _NOISE_BLOCK].to(rows.dtype).add_(2**15 + 0.5)  # (0, 2^16): only ratios matter
            scale = self.size / torch.linalg.vector_norm(r, dim=1, keepdim=True)
            block.addcmul_(r.mul_(block.sign()), scale)


def _random_int16(shape: torch.Size, generator: torch.Generator) -> Tensor:
    """Return numbers of the whole range: four come from each draw of 64 bits, at a third of the time of floats."""
    words = torch.empty(-(-shape.numel() // 4), dtype=torch.int64)
    words.random_(-(2**63), None, generator=generator)
    return words.view(torch.int16)[: shape.numel()].view(shape)


def noisy_propagation(graph: BipartiteGraph, z: Tensor, layers: NoisyLayers, nodes: Tensor, end: End) -> Rows:
    """Return F, and the view E^(l*) and z itself at the given nodes, (S, d) each.

    F is the mean of E^(1)..E^(K) at the nodes, (S, d), or the last E^(K) of all nodes, (n+m, d). The nodes, (S,) int64,
    are distinct; in the last layer of a mean a node's noise depends on its position among them.
    """
    return _NoisyPass.apply(graph, z, nodes, layers, end == "mean")  # type: ignore[no-any-return, no-untyped-call]


def noise_free_propagation(graph: BipartiteGraph, z: Tensor, num_layers: int, end: End) -> Tensor:
    """Return the mean of T z .. T^K z, or T^K z, (n+m, d): F without noise; not differentiable."""
    weights = symmetric_weights(graph, z.dtype)
    if end == "mean":
        return spmm_whole(graph, weights, light_propagation(graph, z.detach(), num_layers - 1))
    for _ in range(num_layers):
        z = spmm_whole(graph, weights, z)
    return z


class _NoisyPass(torch.autograd.Function):
    """Forward and backward of the module docstring; z is returned too, so that its L2 term costs no second table."""

    @staticmethod
    def forward(ctx: Any, graph: BipartiteGraph, z: Tensor, nodes: Tensor, layers: NoisyLayers, average: bool) -> Rows:
        users = 0 if graph.ranks.alone else int((nodes < graph.num_users).sum())  # they come first
        ctx.fixed = graph, nodes, layers, average, users
        first, all_users = graph.ranks.before(users)
        chosen_ranges = [(first, first + users), (all_users, all_users + len(nodes) - users)]
        at_nodes, at_all = (
            None if graph.whole is None else (ranges[1][1], ranges) for ranges in (chosen_ranges, graph.node_ranges)
        )
        weights = symmetric_weights(graph, z.dtype)
        rows, mean, view = z.detach(), z.new_zeros(len(nodes), z.shape[1]), z
        for k in range(1, layers.num_layers + 1):
            here = average and k == layers.num_layers
            rows = _product_at(graph, weights, rows, nodes) if here else spmm(graph, weights, rows)
            graph.ranks.sum_(rows[users if here else graph.num_users :])
            layers.add_noise_(rows, k, at_nodes if here else at_all)
            if not average and k != layers.cl_layer:
                continue
            chosen = rows if here else rows.index_select(0, nodes)
            if k == layers.cl_layer:
                view = chosen
            if average:
                mean.add_(chosen, alpha=1 / layers.num_layers)
        return mean if average else rows, view, z.detach().index_select(0, nodes)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[None, Tensor, None, None, None]:
        graph, nodes, layers, average, users = ctx.fixed
        g_final, g_view, g_initial = grads
        if not graph.ranks.alone:
            g_final, g_view = g_final.clone(), g_view.clone()
            graph.ranks.sum_(g_final[users if average else graph.num_users :], g_view[users:])
        weights = symmetric_weights(graph, g_final.dtype)
        enters = {layers.cl_layer: g_view}  # by layer, the gradient that comes in at the nodes
        if average:
            part = g_final / layers.num_layers
            enters = {k: part + enters[k] if k in enters else part for k in range(1, layers.num_layers + 1)}
            a = _product_of(graph, weights, enters[layers.num_layers], nodes)
        else:
            top = enters.get(layers.num_layers)
            a = spmm(graph, weights, g_final if top is None else g_final.index_add(0, nodes, top))
        for k in range(layers.num_layers - 1, 0, -1):
            graph.ranks.sum_(a[graph.num_users :])
            if k in enters:
                a.index_add_(0, nodes, enters[k])
            a = spmm(graph, weights, a)
        return None, a.index_add_(0, nodes, g_initial), None, None, None


def _product_at(graph: BipartiteGraph, weights: Tensor, rows: Tensor, nodes: Tensor) -> Tensor:
    """Return T rows at the nodes, (S, d)."""
    starts = graph.ptr.index_select(0, nodes)
    counts = graph.ptr.index_select(0, nodes + 1) - starts
    ptr = torch.cat([counts.new_zeros(1), counts.cumsum(0, dtype=counts.dtype)])
    entries = torch.repeat_interleave(starts - ptr[:-1], counts)
    entries += torch.arange(len(entries), device=entries.device, dtype=entries.dtype)
    return bag_sum(graph.neighbours.index_select(0, entries), rows, ptr, weights.index_select(0, entries))


def _product_of(graph: BipartiteGraph, weights: Tensor, rows: Tensor, nodes: Tensor) -> Tensor:
    """Return T applied to rows (S, d) at the nodes and zero elsewhere, (n+m, d), without the table of zeros.

    All other nodes are sent to one row of zeros; S + 1 rows fit the cache where n+m do not.
    """
    position = torch.full((graph.num_nodes,), len(nodes), dtype=graph.neighbours.dtype, device=nodes.device)
    position[nodes] = torch.arange(len(nodes), dtype=position.dtype, device=nodes.device)
    padded = torch.cat([rows, rows.new_zeros(1, rows.shape[1])])
    return bag_sum(at_neighbours(graph, position), padded, graph.ptr, weights)
