"""Rankformer in one file: the paper's model with torch and numpy alone, to be read from top to bottom.

Chen et al., "Rankformer: A Graph Transformer for Recommendation based on Ranking Objective", WWW 2025.

    n users, m items, E interactions; N_u are the d_u items of user u, e_u = m - d_u the number of all others.
    z0: one learned embedding of d numbers per user and item, (n+m, d), users first.

    1. warm-up     v_u = mean of z0 over N_u,   v_i = mean of z0 over the users of item i       (Sec. 3.3)
    2. L layers    v <- (1 - tau) v + tau R(v), one gradient step of the ranking objective       (Eq. 5)
    3. score       y_ui = v_u . v_i
    4. loss        BPR on the scores, L2 regularization of z0; Adam                              (Eq. 1)

Run it:  python rankformer_from_scratch.py            an invented log
         python rankformer_from_scratch.py log.txt    lines "user item" with numbers from 0
"""

import sys
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import normalize, softplus

# --- The data: a log is two arrays of equal length, who and what ---


@dataclass
class Log:
    """The distinct interactions, sorted by user and then item; each of them is an edge of a bipartite graph."""

    users: Tensor  # (E,) user of each edge
    items: Tensor  # (E,) item of each edge
    num_users: int
    num_items: int

    @classmethod
    def of(cls, users: np.ndarray, items: np.ndarray, num_users: int, num_items: int) -> "Log":
        pairs = np.unique(users.astype(np.int64) * num_items + items)  # one number per pair; sorts and removes doubles
        return cls(torch.from_numpy(pairs // num_items), torch.from_numpy(pairs % num_items), num_users, num_items)

    def sum_by_user(self, values: Tensor) -> Tensor:
        """Return for each user the sum over its edges of an edge's number (E,) or row (E, d)."""
        return values.new_zeros(self.num_users, *values.shape[1:]).index_add(0, self.users, values)

    def sum_by_item(self, values: Tensor) -> Tensor:
        """Return for each item the sum over its edges."""
        return values.new_zeros(self.num_items, *values.shape[1:]).index_add(0, self.items, values)


# --- The model ---


def warm_up(z: Tensor, log: Log) -> Tensor:
    """Return the mean of each node's neighbours, (n+m, d); zero for a node without any."""
    z_users, z_items = z[: log.num_users], z[log.num_users :]
    ones = torch.ones(len(log.users))
    d_u, d_i = log.sum_by_user(ones).clamp(min=1), log.sum_by_item(ones).clamp(min=1)
    v_users = log.sum_by_user(z_items[log.items]) / d_u[:, None]  # (n, d)
    v_items = log.sum_by_item(z_users[log.users]) / d_i[:, None]  # (m, d)
    return torch.cat([v_users, v_items])


def rank_layer(v: Tensor, log: Log, tau: float, alpha: float) -> Tensor:
    """Return (1 - tau) v + tau R(v), (n+m, d), in time linear in users, items and interactions.

    Every user attends to every item and every item to every user, with one n x m matrix of weights Omega. With
    s_ui = x_u . x_i the cosine of v_u and v_i,

        Omega+_ui = (s_ui - b-_u + alpha) / d_u    for the items that u has: they attract,                  (Eq. 6)
        Omega-_ui = (s_ui - b+_u - alpha) / e_u    for all others: they repel,
        b+_u, b-_u = mean of s_ui over the items that u has, and over the others,                           (Eq. 7)
        C_u = sum_i |Omega_ui|,   C_i = sum_u |Omega_ui|,                                                   (Eq. 8)
        R(v)_u = 1/C_u sum_i Omega_ui v_i,   R(v)_i = 1/C_i sum_u Omega_ui v_u.                             (Eq. 5)

    Written like this it takes n x m steps. It becomes linear (Sec. 3.3) by giving *all* pairs the weight Omega-,
    which is a product of thin matrices, and the edges alone the difference w = Omega+ - Omega-:

        sum_i Omega_ui v_i = 1/e_u ( x_u (sum_i x_i^T v_i) - (b+_u + alpha) sum_i v_i ) + sum_{i in N_u} w_ui v_i.
    """
    n, m = log.num_users, log.num_items
    v_users, v_items = v[:n], v[n:]
    x_users, x_items = normalize(v_users, dim=1), normalize(v_items, dim=1)  # unit length
    d_u = log.sum_by_user(torch.ones(len(log.users)))  # (n,)
    d_pos, d_neg = d_u.clamp(min=1), (m - d_u).clamp(min=1)

    # Eq. 7. The sum over all items is x_u . sum_i x_i; what the edges do not hold of it belongs to the others.
    s = (x_users[log.users] * x_items[log.items]).sum(1)  # (E,)
    s_edges, s_all = log.sum_by_user(s), x_users @ x_items.sum(0)  # (n,)
    b_pos, b_neg = s_edges / d_pos, (s_all - s_edges) / d_neg  # (n,)

    # Eq. 6 on the edges: the weight they have, and the one they would have as negatives.
    omega_pos = (s - b_neg[log.users] + alpha) / d_pos[log.users]  # (E,)
    omega_neg = (s - b_pos[log.users] - alpha) / d_neg[log.users]  # (E,)
    w = (omega_pos - omega_neg)[:, None]  # (E, 1)

    # The sums of Eq. 5: Omega- on all pairs, and the correction w on the edges. g and r are its factors, (n, d), (n,).
    g, r = x_users / d_neg[:, None], (b_pos + alpha) / d_neg
    y_users = g @ (x_items.T @ v_items) - torch.outer(r, v_items.sum(0)) + log.sum_by_user(w * v_items[log.items])
    y_items = x_items @ (g.T @ v_users) - r @ v_users + log.sum_by_item(w * v_users[log.users])

    # Eq. 8. Cosines and their means lie in -1..1, so from alpha = 2 on no Omega+ is negative and no Omega- positive,
    # and |Omega| sums like Omega: minus Omega- on all pairs, and on the edges Omega+ with Omega- taken back.
    both = omega_pos + omega_neg
    c_users = log.sum_by_user(both) - (g @ x_items.sum(0) - m * r)  # (n,)
    c_items = log.sum_by_item(both) - (x_items @ g.sum(0) - r.sum())  # (m,)
    result = torch.cat([y_users / c_users[:, None], y_items / c_items[:, None]])
    return (1 - tau) * v + tau * result


def embed(z: Tensor, log: Log, num_layers: int = 2, tau: float = 0.4, alpha: float = 2.0) -> Tensor:
    """Return the final embeddings of all users and items, (n+m, d)."""
    v = warm_up(z, log)
    for _ in range(num_layers):
        v = rank_layer(v, log, tau, alpha)
    return v


# --- Training ---


def loss_of(z: Tensor, v: Tensor, log: Log, negatives: Tensor, l2: float) -> Tensor:
    """Return BPR plus L2 regularization over the triples (u, i, j): an edge and an item j that u does not have.

    mean of -ln sigma(y_ui - y_uj), Eq. 1, plus l2/2 times the mean of |z0_u|^2 + |z0_i|^2 + |z0_j|^2.
    """
    users, positives, negatives = log.users, log.num_users + log.items, log.num_users + negatives  # rows of z and v
    y_pos, y_neg = (v[users] * v[positives]).sum(1), (v[users] * v[negatives]).sum(1)  # (E,)
    squares = z.square().sum(1)  # (n+m,)
    return softplus(y_neg - y_pos).mean() + l2 / 2 * (squares[users] + squares[positives] + squares[negatives]).mean()


def draw_negatives(log: Log, rng: np.random.Generator) -> Tensor:
    """Return for each edge an item that its user does not have, (E,); draws again whatever the user does have."""
    users, known = log.users.numpy(), (log.users * log.num_items + log.items).numpy()
    drawn = rng.integers(log.num_items, size=len(users))
    taken = np.arange(len(users))
    while len(taken := taken[np.isin(users[taken] * log.num_items + drawn[taken], known)]):
        drawn[taken] = rng.integers(log.num_items, size=len(taken))
    return torch.from_numpy(drawn)


def train(
    log: Log,
    steps: int,
    *,
    dim: int = 64,
    num_layers: int = 2,
    learning_rate: float = 0.03,
    l2: float = 3e-4,
    seed: int = 0,
    negatives: Callable[[int], Tensor] | None = None,
) -> Tensor:
    """Return the final embeddings after so many steps, each on all interactions, (n+m, d).

    `negatives(step)`, with steps from 1, gives the negative item of each edge; by default they are drawn at random.
    """
    rng = np.random.default_rng(seed)
    z = torch.randn(log.num_users + log.num_items, dim, generator=torch.Generator().manual_seed(seed)) * 0.1
    z.requires_grad_()
    optimizer = torch.optim.Adam([z], lr=learning_rate)
    for step in range(1, steps + 1):
        drawn = draw_negatives(log, rng) if negatives is None else negatives(step)
        optimizer.zero_grad()
        loss = loss_of(z, embed(z, log, num_layers), log, drawn, l2)
        loss.backward()
        optimizer.step()
        if step % 20 == 0:
            print(f"step {step}  loss {loss.item():.4f}")
    with torch.no_grad():
        return embed(z, log, num_layers)


# --- Use ---


def recommend(v: Tensor, log: Log, k: int) -> Tensor:
    """Return for each user the k items of highest score that it does not have yet, (n, k)."""
    scores = v[: log.num_users] @ v[log.num_users :].T  # (n, m)
    scores[log.users, log.items] = -torch.inf
    return scores.topk(k, dim=1).indices


def invented_pairs(num_users: int = 300, num_items: int = 120, groups: int = 6) -> tuple[np.ndarray, np.ndarray]:
    """Return who has what: users and items belong to groups, and most of what a user has is of its group."""
    rng = np.random.default_rng(1)
    same_group = np.arange(num_users)[:, None] % groups == np.arange(num_items) % groups
    return np.nonzero(rng.random((num_users, num_items)) < np.where(same_group, 0.5, 0.02))


def main(arguments: list[str]) -> float:
    """Train on four fifths of a log; print and return the share of the rest that is in the lists of ten items."""
    torch.set_num_threads(1)  # for steps this small, threads cost more than they bring
    users, items = np.loadtxt(arguments[0], dtype=np.int64).T if arguments else invented_pairs()
    n, m = int(users.max()) + 1, int(items.max()) + 1
    held_out = np.random.default_rng(0).random(len(users)) < 0.2
    log, rest = (Log.of(users[part], items[part], n, m) for part in (~held_out, held_out))
    lists = recommend(train(log, steps=60), log, k=min(10, m))
    found = (lists[rest.users] == rest.items[:, None]).any(1).float().mean().item()
    print(f"{found:.1%} of the held-out interactions are among the ten items recommended to their user")
    return found


if __name__ == "__main__":
    main(sys.argv[1:])
