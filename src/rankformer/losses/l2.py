"""L2 regularization: of the embeddings that occur in a batch, and of the other parameters of a network.

batch_l2      lambda / (2B) sum over the B triples of w (|z0_u|^2 + |z0_i|^2 + |z0_j|^2), z0 the learned embeddings and
              w the weight of the triple
weight_decay  lambda / 2 times the squared length of all parameters but the table
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import embedding

from rankformer.graph.batch import Triples


def batch_l2(table: Tensor, triples: Triples, strength: float) -> Tensor:
    """Return the L2 regularization of the learned embeddings of a batch, each as often as it occurs.

    The triples are row numbers in `table`: all learned embeddings, (n+m, d), or those of the batch's nodes.
    """
    size, graph = triples.size, triples.graph
    if graph is not None:  # no E x d gathers
        scale = 1.0 if triples.weights is None else size / graph.all_weight
        drawn = torch.bincount(triples.negatives, triples.weights, minlength=graph.num_nodes)
        occurrences = graph.once(graph.degree) * scale + drawn
        weights = occurrences.to(table.dtype) * (strength / size)
        return _WeightedSquares.apply(table, weights)  # type: ignore[no-any-return, no-untyped-call]
    rows = (triples.users, triples.positives, triples.negatives)
    squares = torch.stack([_sum(embedding(nodes.long(), table).square(), triples.weights) for nodes in rows]).sum()
    return (strength / (2 * size)) * squares


def _sum(squares: Tensor, weights: Tensor | None) -> Tensor:
    return squares.sum() if weights is None else torch.dot(squares.sum(1), weights.to(squares.dtype))


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

    Its gradient is what Adam's `weight_decay` adds. The parameter `table` is left to `batch_l2`, unless `with_table`.
    """
    if strength == 0:
        return 0.0
    trained = [(name, parameter) for name, parameter in network.named_parameters() if parameter.requires_grad]
    squares = [parameter.square().sum() for name, parameter in trained if with_table or name != "table"]
    return 0.5 * strength * torch.stack(squares).sum()
