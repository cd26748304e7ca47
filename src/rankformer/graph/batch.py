"""What one training step learns from: interactions with a negative item each, or nodes."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn.functional import embedding

from rankformer.graph.bipartite import BipartiteGraph


@dataclass(frozen=True)
class Batch:
    """The input of one step.

    Attributes:
        edges: (B,) edge numbers, or None for all edges in user order.
        negatives: (B,) item node of each edge's negative.
        seed: of the run.
        step: number of this step, from 1; with the seed it decides every random draw of the step.
        nodes: (b,) nodes of the step, in place of edges and negatives, for networks that learn from nodes.
        total: how many edges the batch has on all ranks; None for B.
    """

    edges: Tensor | None
    negatives: Tensor
    seed: int
    step: int
    nodes: Tensor | None = None
    total: int | None = None

    def triples(self, graph: BipartiteGraph) -> "Triples":
        """Return the batch as nodes of users, positives and negatives."""
        if self.edges is None:
            full = graph.edge_users, graph.edge_items, self.negatives, graph, graph.loss_weights
            return Triples(*full, total=graph.all_edges)
        weights = None if graph.loss_weights is None else graph.loss_weights[self.edges]
        nodes = graph.edge_users[self.edges], graph.edge_items[self.edges], self.negatives
        return Triples(*nodes, weights=weights, total=self.total)


@dataclass(frozen=True)
class Triples:
    """Users, positive items and negative items, (B,) each, as row numbers of an embedding matrix.

    `graph` is given when the triples are all edges of that graph in user order: losses then avoid B x d gathers.
    `weights` (B,) is what each triple counts in a mean over the batch, 1 on average over all edges; None for 1 each.
    A mean divides by `size`: the triples of the batch on all ranks.
    """

    users: Tensor
    positives: Tensor
    negatives: Tensor
    graph: BipartiteGraph | None = None
    weights: Tensor | None = None
    total: int | None = None

    @property
    def size(self) -> int:
        """The number of triples on all ranks."""
        return len(self) if self.total is None else self.total

    def placed(self, num_nodes: int) -> "tuple[Tensor, Triples]":
        """Return the distinct nodes of the triples, ascending, and the triples as positions among them.

        In passes over the nodes and without a sort; `num_nodes` is how many rows the triples may number.
        """
        roles = [rows.long() for rows in (self.users, self.positives, self.negatives)]
        position = torch.zeros(num_nodes, dtype=torch.int64, device=self.users.device)
        for rows in roles:
            position[rows] = 1
        nodes = position.nonzero()[:, 0]
        position[nodes] = torch.arange(len(nodes), device=nodes.device)
        users, positives, negatives = (position[rows] for rows in roles)
        return nodes, replace(self, users=users, positives=positives, negatives=negatives, graph=None)

    def gathered(self, *tables: Tensor) -> "tuple[Triples, list[Tensor]]":
        """Return the triples as positions among the rows they need of tables, (nodes, d), and these rows.

        Each table is gathered once, since each gather has a gradient as large as the table. A full batch needs all rows
        and is returned as it is.
        """
        if self.graph is not None:
            return self, list(tables)
        nodes, placed = self.placed(len(tables[0]))
        rows = {id(table): embedding(nodes, table) for table in tables}
        return placed, [rows[id(table)] for table in tables]

    def __len__(self) -> int:
        return len(self.users)
