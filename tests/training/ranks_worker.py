"""Trains small networks on the ranks of its environment, or alone, and keeps losses and embeddings: FOLDER CASE..."""

import os
import sys
from pathlib import Path

import numpy as np
import torch

import rankformer.graph.random_rows
from rankformer import IALS, LightGCN, MatrixFactorization, Popularity, Rankformer, RankformerCL, XSimGCL
from rankformer.data.interactions import Interactions
from rankformer.data.parts import Parts
from rankformer.graph.bipartite import BipartiteGraph
from rankformer.graph.collectives import joined_ranks
from rankformer.training.trainer import TrainingLoop

SMALL = {"embedding_dim": 8, "initialization": "normal"}
CASES = {  # model, and whether the interactions have weights
    "rankformer": (lambda: Rankformer(num_layers=2, l2=3e-4, **SMALL), False),
    "rankformer-slow": (
        lambda: Rankformer(num_layers=2, l2=3e-4, learning_rate=1e-4, schedule="constant", **SMALL),
        False,
    ),
    "rankformer-weights": (lambda: Rankformer(num_layers=2, l2=3e-4, **SMALL), True),
    "lightgcn-least-squares": (lambda: LightGCN(embedding_dim=8), True),
    "rankformer-estimate": (lambda: Rankformer(num_layers=2, l2=3e-4, alpha=0.5, **SMALL), False),
    "rankformer-recompute": (
        lambda: Rankformer(
            num_layers=3, l2=3e-4, embedding_dim=8, initialization="xavier-uniform", activations="recompute"
        ),
        False,
    ),
    "lightgcn": (lambda: LightGCN(embedding_dim=8, initialization="xavier-normal"), False),
    "lightgcn-batches": (lambda: LightGCN(batch_size=64, **SMALL), True),
    "lightgcn-softmax": (lambda: LightGCN(loss="softmax", loss_negatives=20, **SMALL), True),
    "rankformer-softmax-at-k": (
        lambda: Rankformer(loss="softmax-at-k", loss_negatives=30, loss_cutoff=5, **SMALL),
        False,
    ),
    "mf": (lambda: MatrixFactorization(batch_size=33, clip_norm=0.01, **SMALL), False),
    "xsimgcl": (lambda: XSimGCL(embedding_dim=8, batch_size=40), False),
    "xsimgcl-final": (lambda: XSimGCL(embedding_dim=8, batch_size=5, l2_on="final", l2=0.01), True),
    "xsimgcl-full": (lambda: XSimGCL(embedding_dim=8, batch_size=None), False),
    "rankformer-cl": (lambda: RankformerCL(num_layers=2, batch_size=40, **SMALL), False),
    "ials": (lambda: IALS(embedding_dim=8), True),
    "popularity": (lambda: Popularity(), True),
}


def log_of(weighted):
    """300 users in name, some without interactions; duplicates; a user who has most items."""
    draws = np.random.default_rng(5)
    users = np.concatenate([draws.integers(0, 50, 350), np.full(30, 11)])
    items = np.concatenate([draws.integers(0, 37, 350), np.arange(30)])
    weights = (draws.random(380) + 0.5).astype(np.float32) if weighted else None
    log = Interactions.from_indices(users, items, 53, 37, weights=weights)
    return Parts.of(log, np.zeros(len(log), dtype=np.int8))


def outcome(ranks, model, weighted):
    epochs = int(os.environ.get("EPOCHS", "4"))
    parts = log_of(weighted)
    parts = parts if ranks.alone else parts.block_of(ranks.rank, ranks.size)
    graph, losses = BipartiteGraph.from_interactions(parts.train, weighted=True), [0.0]
    if hasattr(model, "network_class"):
        network = model.network_class(graph.num_users, graph.num_items, model.settings)
        network.initialize(graph)
        loop = TrainingLoop(network, graph, model.settings)
        for epoch in range(epochs):
            loop.progress.epoch = epoch + 1
            losses.append(loop.one_epoch())
            if epoch == 1 and ranks.rank == 0:
                print("training", flush=True)
        with torch.no_grad():
            scorer = network.final_scorer(graph)
    else:
        scorer = model.solve(graph)
    users, items = (side.detach().numpy() for side in (scorer.users, scorer.items))
    return {"losses": losses, "users": ranks.joined(users), "items": items}


def main(folder, *names):
    rankformer.graph.random_rows._ROWS_AT_ONCE = 16  # several blocks
    with joined_ranks(float(os.environ.get("RANK_TIMEOUT", "60"))) as ranks:
        for name in names or CASES:
            model, weighted = CASES[name]
            found = outcome(ranks, model(), weighted)
            if ranks.rank == 0:
                np.savez(Path(folder) / f"{name}.npz", **found)


if __name__ == "__main__":
    main(*sys.argv[1:])
