"""The Rankformer layer inside a model and a training loop of your own: plain torch, nothing else of this package.

`RankAttention` is an `nn.Module` without parameters: it takes the graph of the training interactions and the
embeddings of all nodes, (n+m, d) with users first, and returns the same shape. Gradients pass through it, in time and
memory linear in users, items and interactions. Put it wherever you would put a graph convolution.

Here: items have features, users an embedding, and the loss is a softmax over the items of the batch.
"""

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from rankformer import BipartiteGraph
from rankformer.layers.rank_attention import RankAttention


class MyModel(nn.Module):
    """Two towers whose outputs see the whole graph before they are compared."""

    def __init__(self, num_users: int, num_features: int, dim: int = 32, num_layers: int = 2) -> None:
        super().__init__()
        self.users = nn.Embedding(num_users, dim)
        self.items = nn.Sequential(nn.Linear(num_features, dim), nn.ReLU(), nn.Linear(dim, dim))
        self.layers = nn.ModuleList(RankAttention(tau=0.4) for _ in range(num_layers))

    def forward(self, graph: BipartiteGraph, features: Tensor) -> tuple[Tensor, Tensor]:
        """Return the embeddings of all users (n, d) and items (m, d)."""
        z = torch.cat([self.users.weight, self.items(features)])  # (n+m, d), users first
        for layer in self.layers:
            z = layer(graph, z)
        return z[: graph.num_users], z[graph.num_users :]


def invented_data(num_users: int = 200, num_items: int = 80, groups: int = 4) -> tuple[Tensor, Tensor, Tensor]:
    """Return user and item of each interaction, and the features of the items, which hint at their group."""
    generator = torch.Generator().manual_seed(0)
    user_group, item_group = torch.arange(num_users) % groups, torch.arange(num_items) % groups
    chance = torch.where(user_group[:, None] == item_group, 0.4, 0.03)
    users, items = (torch.rand(chance.shape, generator=generator) < chance).nonzero(as_tuple=True)
    noise = torch.randn(num_items, groups, generator=generator)
    return users, items, nn.functional.one_hot(item_group, groups) + 0.5 * noise


def main(epochs: int = 20) -> list[float]:
    """Train on the invented data; print and return the mean loss of each epoch."""
    torch.manual_seed(0)
    torch.set_num_threads(1)  # for steps this small, threads cost more than they bring
    num_users, num_items = 200, 80
    users, items, features = invented_data(num_users, num_items)
    # The graph is built once, from index arrays of any kind; `device=` puts it where the model is.
    graph = BipartiteGraph.from_pairs(users, items, num_users, num_items)
    model = MyModel(num_users, features.shape[1])
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    history = []
    for epoch in range(1, epochs + 1):
        losses = []
        for batch in torch.randperm(len(users)).split(512):
            z_users, z_items = model(graph, features)
            logits = z_users[users[batch]] @ z_items.T  # (b, m)
            loss = cross_entropy(logits, items[batch])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        history.append(sum(losses) / len(losses))
        if epoch % 5 == 0:
            print(f"epoch {epoch}  loss {history[-1]:.4f}")
    with torch.no_grad():
        z_users, z_items = model(graph, features)
    print("best items of user 0:", (z_users[0] @ z_items.T).topk(5).indices.tolist())
    return history


if __name__ == "__main__":
    main()
