"""A layer that is one gradient step of the softmax objective, as Rankformer's is one of BPR.

A user's objective is the mean of s_ui / t over its items minus log sum_{j in J} exp(s_uj / t); its gradient leads
towards the mean of the items and away from a softmax attention over J. An item's is the same over its users. On rows v,
x = v / |v|, s = x . x, and in the place of Rankformer's C the sum of the sizes of all weights:

    v_u <- (1 - tau) v_u + tau / C_u [ 1/d_u sum_{i in N_u} v_i - sum_{j in J} p_uj v_j ],   p_u = softmax_j(s_uj / t)
    C_u = [d_u > 0] + 1

J are `samples` items, for items as many users, spread evenly over their numbers: the same in every step, so that
training and scoring agree. Time O(E d + (n+m) |J| d); torch's attention keeps no score.
"""

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from rankformer.errors import ConfigError
from rankformer.graph.bipartite import BipartiteGraph
from rankformer.graph.unit_rows import unit_rows
from rankformer.layers.light_propagation import neighbour_means


class SoftmaxAttention(nn.Module):
    """One such step; it has no parameters of its own."""

    def __init__(self, tau: float, temperature: float, samples: int) -> None:
        super().__init__()
        if not (0 <= tau <= 1 and temperature > 0 and samples >= 1):
            found = f"tau={tau}, temperature={temperature}, samples={samples}"
            raise ConfigError(f"{found}: expected a step size in 0..1, a temperature above 0 and at least one sample")
        self.tau, self.temperature, self.samples = tau, temperature, samples

    def forward(self, graph: BipartiteGraph, v: Tensor) -> Tensor:
        """Return the next layer's (n+m, d) rows, users first."""
        n, x = graph.num_users, unit_rows(v)
        users, items = spread(0, n, self.samples, v.device), spread(n, graph.num_nodes, self.samples, v.device)
        pushed = torch.cat([self.push(x[:n], x[items], v[items]), self.push(x[n:], x[users], v[users])])
        inv_c = 1 / (1 + (graph.degree > 0).to(v.dtype))[:, None]
        return (1 - self.tau) * v + self.tau * inv_c * (neighbour_means(graph, v) - pushed)

    def push(self, queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        """Return sum_j softmax_j(q . k_j / t) v_j for unit queries (N, d) over a sample, (N, d)."""
        q, k, v = (rows[None, None] for rows in (queries, keys, values))
        return scaled_dot_product_attention(q, k, v, scale=1 / self.temperature)[0, 0]


def spread(first: int, last: int, count: int, device: torch.device) -> Tensor:
    """Return `count` numbers from first to last - 1, or all of them, at even distances."""
    count = min(count, last - first)
    return first + torch.arange(count, device=device) * (last - first) // count
