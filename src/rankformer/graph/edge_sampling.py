"""Random graphs drawn from a graph by a score per entry: what GFormer masks, rebuilds and compares.

Entries are drawn without replacement, one after the other with chances in proportion to weights w_e. The k largest of
log w_e + Gumbel noise are such a draw, so one pass and one selection do it. Everything is drawn on the CPU from the
generator that is handed in.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from rankformer.graph.bipartite import BipartiteGraph
from rankformer.graph.entries import Entries, SparseMatrix

_FLOOR = 0.001  # every entry can become part of the rationale


@dataclass(frozen=True)
class SamplingShares:
    """How large the drawn graphs are."""

    encoder: float  # fraction of the entries that the encoder's graph keeps
    view: float  # fraction that the rationale and its complement keep each
    decoder: float  # random pairs in the decoder's graph, per entry
    extra: float  # node ids from kept entries in the pool of those pairs, per dropped entry


@dataclass(frozen=True, eq=False)
class SampledGraphs:
    """The graphs of one draw; all but the decoder's are scaled, and all have a loop at every node."""

    encoder: SparseMatrix  # most entries, those of high attention dropped more often
    decoder: Entries  # the kept entries, and random pairs of the nodes of dropped ones
    rationale: SparseMatrix  # few entries, those of high attention preferred
    complement: SparseMatrix  # few entries, those of low attention preferred


def widened(graph: BipartiteGraph, added: float, generator: torch.Generator) -> Entries:
    """Return the graph's entries both ways, a loop at every node, and random pairs both ways.

    There are `added` random pairs per entry of graph and loops. Their two nodes are rows and columns of entries, drawn
    independently: popular nodes come more often, and any two nodes may be joined. Duplicate interactions count once.
    """
    own, _ = _with_loops(graph.owners, graph.neighbours, graph.num_nodes)
    count = math.floor(added * len(own))
    left, right = _some(own.rows, count, generator), _some(own.columns, count, generator)
    rows, columns = torch.cat([own.rows, left, right]), torch.cat([own.columns, right, left])
    return Entries.merged(rows, columns, graph.num_nodes)[0]


def sample_graphs(
    entries: Entries, attention: Tensor, shares: SamplingShares, generator: torch.Generator
) -> SampledGraphs:
    """Return one draw of all four graphs from entries with an attention (nnz,), whose type the scaled values get."""
    low, high = -attention, (attention + _FLOOR).log()
    kept = weighted_choice(low, math.floor(shares.encoder * len(entries)), generator)
    few = math.floor(shares.view * len(entries))
    return SampledGraphs(
        encoder=scaled(entries, kept, attention.dtype),
        decoder=_decoder(entries, kept, shares, generator),
        rationale=scaled(entries, weighted_choice(high, few, generator), attention.dtype),
        complement=scaled(entries, weighted_choice(low, few, generator), attention.dtype),
    )


def weighted_choice(log_weights: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """Return a mask (nnz,) of `count` entries drawn without replacement, chances in proportion to exp(log_weights)."""
    # -log of an exponential variate is a Gumbel variate; float64 leaves no ties.
    noise = torch.empty(len(log_weights), dtype=torch.float64).exponential_(generator=generator).log_()
    chosen = torch.zeros(len(log_weights), dtype=torch.bool)
    chosen[torch.topk(log_weights.double().cpu() - noise, count, sorted=False).indices] = True
    return chosen.to(log_weights.device)


def scaled(entries: Entries, chosen: Tensor, dtype: torch.dtype = torch.float32) -> SparseMatrix:
    """Return D^-1/2 M D^-1/2 for M the chosen entries plus identity, D its row sums.

    A chosen entry on the diagonal makes it 2. Each direction of a pair is chosen separately: M need not be symmetric.
    """
    joined, counts = _with_loops(entries.rows[chosen], entries.columns[chosen], entries.num_nodes)
    shrink = torch.segment_reduce(counts, "sum", offsets=joined.ptr, initial=0.0).rsqrt()
    values = counts * shrink[joined.rows] * shrink[joined.columns]
    return SparseMatrix(joined, values.to(dtype))


def _decoder(entries: Entries, kept: Tensor, shares: SamplingShares, generator: torch.Generator) -> Entries:
    """Return the kept entries, loops, and pairs, both ways, of ids from dropped entries and some from kept ones."""
    loops = torch.arange(entries.num_nodes).to(entries.rows)
    extra = math.floor(shares.extra * (len(entries) - int(kept.sum())))
    count = math.floor(shares.decoder * len(entries))
    pairs = []
    for ids in (entries.rows, entries.columns):
        pool = torch.cat([_some(torch.cat([ids[kept], loops]), extra, generator), ids[~kept]])
        pairs.append(_some(pool, count if len(pool) else 0, generator))
    rows = torch.cat([entries.rows[kept], *pairs])
    columns = torch.cat([entries.columns[kept], *reversed(pairs)])
    return _with_loops(rows, columns, entries.num_nodes)[0]


def _with_loops(rows: Tensor, columns: Tensor, num_nodes: int) -> tuple[Entries, Tensor]:
    loops = torch.arange(num_nodes).to(rows)
    return Entries.merged(torch.cat([rows, loops]), torch.cat([columns, loops]), num_nodes)


def _some(ids: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """Return `count` of the ids, drawn uniformly with replacement."""
    return ids[torch.randint(max(1, len(ids)), (count,), generator=generator).to(ids.device)]
