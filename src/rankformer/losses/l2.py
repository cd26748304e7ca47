"""L2 regularization: of the embeddings that occur in a batch, and of the other parameters of a network.

batch_l2      lambda / (2B) sum over the B triples of |z0_u|^2 + |z0_i|^2 + |z0_j|^2, z0 the learned embeddings
weight_decay  lambda / 2 times the squared length of all parameters but the table
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import embedding

from rankformer.graph.batch import Triples


def batch_l2(table: Tensor, triples: Triples, strength: float) -> Tensor:
    """Return the L2 regularization of the learned embeddings of a batch, each as often as it occurs.

    Args:
        table: (n+m, d) learned embeddings, or those of the batch's nodes.
        triples: row numbers in `table`.
        strength: lambda.
    """
    size, graph = len(triples), triples.graph
    if graph is not None:
        occurrences = graph.degree + torch.bincount(triples.negatives, minlength=graph.num_nodes)
        weights = occurrences.to(table.dtype) * (strength / size)
        return _WeightedSquares.apply(table, weights)  # type: ignore[no-any-return, no-untyped-call]
    rows = (triples.users, triples.positives, triples.negatives)
    squares = torch.stack([embedding(nodes.long(), table).square().sum() for nodes in rows]).sum()
    return (strength / (2 * size)) * squares


class _WeightedSquares(torch.autograd.Function):
    """1/2 sum_k c_k |row_k|^2, whose gradient is c_k row_k."""

    @staticmethod
    def forward(ctx: Any, table: Tensor, weights: Tensor) -> Tensor:
        ctx.save_for_backward(table, weights)
        return torch.dot(torch.linalg.vector_norm(table, dim=1).square(), weights) * 0.5

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        table, weights = ctx.saved_tensors
        return table * (weights * grads[0])[:, None], None


def weight_decay(network: nn.Module, strength: float, *, with_table: bool = False) -> Tensor | float:
    """Return strength / 2 times the squared length of all trained parameters; 0.0 for strength 0.

    Its gradient is what Adam's `weight_decay` adds.

    Args:
        network: its embedding table, if it has one, is the parameter `table`.
        strength: the decay.
        with_table: whether the table is decayed too; otherwise that is the task of `batch_l2`.
    """
    if strength == 0:
        return 0.0
    parameters = [
        parameter
        for name, parameter in network.named_parameters()
        if (with_table and parameter.requires_grad) or (not with_table and name != "table")
    ]
    squares = [parameter.square().sum() for parameter in parameters]
    return 0.5 * strength * torch.stack(squares).sum()
