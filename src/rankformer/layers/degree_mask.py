"""A learned importance of nodes by their degree, and the sine-shaped mask over pairs that it makes.

    z_v in (0, 1) from the number of training interactions of v;   M(v,w) = sin(pi/2 (z_v + z_w) / 2)

grows in both. By the addition formula M(v,w) = a_v c_w + c_v a_w with a = sin(pi z / 4), c = cos(pi z / 4): a sum of
two products, so attention under the mask stays linear (`kernel_attention.masked_attention`).
"""

import math
from typing import Literal

import torch
from torch import Tensor, nn

from rankformer.graph.bipartite import BipartiteGraph

_OWN_BUCKETS = 64  # degrees up to this have a bucket each, beyond it one per doubling
_NUM_BUCKETS = _OWN_BUCKETS + 1 + 24  # a graph holds fewer than 2^30 edges
_MARGIN = 0.02  # z stays this far from 0, where the mask would vanish, and from 1


class DegreeMask(nn.Module):
    """z of all nodes, users and items each by parameters of their own.

    buckets      z = sigmoid(t[bucket of the degree])
    logarithm    z = sigmoid(slope log(1 + degree) + offset)

    The sigmoid is squeezed into [0.02, 0.98].
    """

    def __init__(self, kind: Literal["buckets", "logarithm"]) -> None:
        super().__init__()
        self.kind = kind
        self.levels = nn.Parameter(torch.zeros(2, _NUM_BUCKETS if kind == "buckets" else 2))

    def initialize(self, graph: BipartiteGraph) -> None:
        """Set z = log(1 + degree) / log(1 + largest degree of the side), cut to 0.05..0.95.

        The logarithmic form gets slope 1, and z = 1/2 half-way up that scale.
        """
        for side, degree in enumerate(graph.degree.tensor_split([graph.num_users])):
            top = math.log1p(degree.max().item())
            if self.kind == "buckets":
                initial = (_bucket_degrees().log1p() / max(top, 1e-9)).clamp(0.05, 0.95)
                level = torch.logit((initial - _MARGIN) / (1 - 2 * _MARGIN))
            else:
                level = torch.tensor([1.0, -top / 2])
            with torch.no_grad():
                self.levels[side] = level

    def forward(self, graph: BipartiteGraph) -> Tensor:
        """Return z of every node, (n+m,), users first."""
        levels = []
        sides = graph.degree.tensor_split([graph.num_users])
        for parameters, degree in zip(self.levels.unbind(0), sides, strict=True):
            if self.kind == "buckets":
                levels.append(parameters.index_select(0, degree_buckets(degree)))
            else:
                levels.append(parameters[0] * degree.log1p().to(parameters.dtype) + parameters[1])
        return _MARGIN + (1 - 2 * _MARGIN) * torch.sigmoid(torch.cat(levels))


def mask_parts(importance: Tensor) -> Tensor:
    """Return (a_v, c_v) of nodes of importance z (N,) as columns, (N, 2): M(v,w) = a_v c_w + c_v a_w."""
    angle = importance * (math.pi / 4)
    return torch.stack([angle.sin(), angle.cos()], dim=1)


def mask_reference(left: Tensor, right: Tensor) -> Tensor:
    """Return M as it is defined, for all pairs, (N, N'): for tests."""
    return torch.sin((math.pi / 4) * (left[:, None] + right[None, :]))


def degree_buckets(degree: Tensor) -> Tensor:
    """Return the bucket of each degree: itself up to 64, then 65 for 65..128, 66 for 129..256 and so on."""
    doublings = (degree.clamp(min=1) / _OWN_BUCKETS).log2().ceil().clamp(min=0)
    return torch.where(degree <= _OWN_BUCKETS, degree, _OWN_BUCKETS + doublings).long()


def _bucket_degrees() -> Tensor:
    """Return a degree in the middle of each bucket."""
    doublings = torch.arange(1, _NUM_BUCKETS - _OWN_BUCKETS)
    return torch.cat([torch.arange(_OWN_BUCKETS + 1).float(), _OWN_BUCKETS * 2 ** (doublings - 0.5)])
