"""Fits a small model on the ranks of its environment, or alone: RUN_FOLDER OUT [--resume] [--stop-after EPOCH]."""

import argparse
import os
from pathlib import Path

import numpy as np

from rankformer import Rankformer, evaluate
from rankformer.data.source import DataSource
from rankformer.graph.collectives import joined_ranks


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("folder", type=Path)
    arguments.add_argument("out", type=Path)
    arguments.add_argument("--resume", action="store_true")
    arguments.add_argument("--stop-after", type=int)
    given = arguments.parse_args()

    def on_event(event):
        if event["event"] == "validation" and event["epoch"] > (given.stop_after or 99):
            os._exit(9)  # like a kill: after the checkpoint of that epoch, before the next

    with joined_ranks(60) as ranks:
        parts = DataSource(source="demo").load()
        parts = parts if ranks.alone else parts.block_of(ranks.rank, ranks.size)
        model = Rankformer(epochs=8, validate_every=2, embedding_dim=8, num_layers=2)
        model.fit(
            parts.train, parts.valid, run_folder=given.folder, resume=given.resume, on_event=on_event, verbose=False
        )
        found = evaluate(model, parts.test, metrics=["ndcg@20", "coverage@20"])
        users = ranks.joined(model.embeddings.users.numpy())
        if ranks.rank == 0:
            seen = {"ndcg": found.metrics["ndcg@20"], "coverage": found.metrics["coverage@20"], "lists": found.lists}
            losses = [event["loss"] for event in model.log if event["event"] == "epoch"]
            np.savez(given.out, users=users, items=model.embeddings.items.numpy(), losses=losses, **seen)


if __name__ == "__main__":
    main()
