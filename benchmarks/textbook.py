"""Rankformer's training step as research code is usually written, from the paper's Appendix A.3.

Autograd does the backward; neighbour sums gather an (E, d) array of messages and `index_add` it; the sums of outer
products over all nodes are built as (n, d, d) and (m, d, d) arrays and then summed; negatives are drawn by rejection
against a set of keys; Adam is torch's default. It computes what `rankformer.models.rankformer` computes, and is here
only to be measured against.
"""

import torch
from torch import Tensor
from torch.nn.functional import normalize, softplus


class TextbookRankformer(torch.nn.Module):
    """The whole model on (E,) arrays of user and item indices."""

    def __init__(self, users: Tensor, items: Tensor, n: int, m: int, num_layers: int, tau: float, table: Tensor):
        super().__init__()
        self.users, self.items, self.n, self.m = users, items, n, m
        self.num_layers, self.tau, self.alpha = num_layers, tau, 2.0
        self.table = torch.nn.Parameter(table.clone())
        ones = torch.ones(len(users))
        self.d_u = torch.zeros(n).index_add(0, users, ones)
        self.d_i = torch.zeros(m).index_add(0, items, ones)

    def to_users(self, messages: Tensor) -> Tensor:
        return torch.zeros(self.n, *messages.shape[1:]).index_add(0, self.users, messages)

    def to_items(self, messages: Tensor) -> Tensor:
        return torch.zeros(self.m, *messages.shape[1:]).index_add(0, self.items, messages)

    def forward(self) -> tuple[Tensor, Tensor]:
        z0_u, z0_i = self.table[: self.n], self.table[self.n :]
        z_u = self.to_users(z0_i[self.items]) / self.d_u.clamp(min=1)[:, None]
        z_i = self.to_items(z0_u[self.users]) / self.d_i.clamp(min=1)[:, None]
        for _ in range(self.num_layers):
            r_u, r_i = self.layer(z_u, z_i)
            z_u, z_i = (1 - self.tau) * z_u + self.tau * r_u, (1 - self.tau) * z_i + self.tau * r_i
        return z_u, z_i

    def layer(self, z_u: Tensor, z_i: Tensor) -> tuple[Tensor, Tensor]:
        users, items, alpha = self.users, self.items, self.alpha
        d_u = self.d_u.clamp(min=1)[:, None]
        e_u = (self.m - self.d_u).clamp(min=1)[:, None]
        has = (self.d_u > 0).float()[:, None]
        x_u, x_i = normalize(z_u), normalize(z_i)

        # Step 1: benchmarks
        x_pos = self.to_users(x_i[items])
        b_pos = (x_u * x_pos).sum(1, keepdim=True) / d_u
        b_neg = (x_u * (x_i.sum(0) - x_pos)).sum(1, keepdim=True) / e_u

        # Step 2: normalisers
        c_u = has * (b_pos - b_neg + alpha) + (b_pos - b_neg + alpha)
        pos_i = (
            (x_i * self.to_items((x_u / d_u)[users])).sum(1, keepdim=True)
            - self.to_items((b_neg / d_u)[users])
            + alpha * self.to_items((1 / d_u)[users])
        )
        x_over = x_u / e_u
        neg_i = (
            -(x_i * (x_over.sum(0) - self.to_items(x_over[users]))).sum(1, keepdim=True)
            + ((b_pos / e_u).sum(0) - self.to_items((b_pos / e_u)[users]))
            + alpha * ((1 / e_u).sum(0) - self.to_items((1 / e_u)[users]))
        )
        c_i = pos_i + neg_i

        # Step 3: aggregation
        sim = (x_u[users] * x_i[items]).sum(1, keepdim=True)
        sim_z_i = self.to_users(sim * z_i[items])
        z_pos = self.to_users(z_i[items])
        outer_i = (x_i[:, :, None] * z_i[:, None, :]).sum(0)
        y_u = (
            sim_z_i / d_u
            - (b_neg - alpha) / d_u * z_pos
            + (x_u @ outer_i - sim_z_i) / e_u
            - (b_pos + alpha) / e_u * (z_i.sum(0) - z_pos)
        )
        outer_u = ((x_u / e_u)[:, :, None] * z_u[:, None, :]).sum(0)
        weighted = (b_pos + alpha) / e_u * z_u
        y_i = (
            self.to_items(sim * (z_u / d_u)[users])
            - self.to_items(((b_neg - alpha) / d_u * z_u)[users])
            + x_i @ outer_u
            - self.to_items(sim * (z_u / e_u)[users])
            - (weighted.sum(0) - self.to_items(weighted[users]))
        )
        return y_u / c_u, y_i / c_i

    def loss(self, negatives: Tensor, l2: float) -> Tensor:
        z_u, z_i = self.forward()
        users, items, table = self.users, self.items, self.table
        score_pos = (z_u[users] * z_i[items]).sum(1)
        score_neg = (z_u[users] * z_i[negatives]).sum(1)
        rows = [table[users], table[self.n + items], table[self.n + negatives]]
        penalty = sum(row.square().sum() for row in rows) / (2 * len(users))
        return softplus(score_neg - score_pos).mean() + l2 * penalty

    def draw_negatives(self, keys: Tensor) -> Tensor:
        """Redraw until no negative is among the training pairs; membership by a set operation over all keys."""
        negatives = torch.randint(0, self.m, (len(self.users),))
        while True:
            bad = torch.isin(self.users * self.m + negatives, keys)
            if not bad.any():
                return negatives
            negatives[bad] = torch.randint(0, self.m, (int(bad.sum()),))
