"""Rankformer beside LightGCN, the cheapest graph model there is, and what its thin products cost."""

from collections.abc import Callable

import torch

from benchmarks import steps
from benchmarks.measure import Result, Unavailable, in_fresh_process, interleave, note, paragraph, show, table
from benchmarks.options import Options
from rankformer.errors import ConfigError
from rankformer.graph.bipartite import BipartiteGraph
from rankformer.graph.row_blocks import row_blocks
from rankformer.models.registry import model_class
from rankformer.training.activations import kept_memory

TITLE = "Rankformer beside LightGCN"
DATASETS = ("ali-display", "epinions", "yelp2018-lightgcn")


def run(options: Options) -> Result:
    try:
        model_class("lightgcn")
    except ConfigError as error:
        raise Unavailable(str(error)) from None
    rows = []
    for name in steps.available(options.datasets or DATASETS):
        note(f"  {name}: {options.rounds} rounds")
        rows.append(in_fresh_process(time_epochs, dataset=name, rounds=options.rounds))
    return {"rows": rows}


@kept_memory()
def time_epochs(dataset: str, rounds: int) -> Result:
    """Return seconds of a full-batch epoch of both models, and of Rankformer's thin products alone."""
    train, rankformer = steps.training_part(dataset), steps.paper_rankformer(dataset)
    layers, dim = rankformer.settings.num_layers, rankformer.settings.embedding_dim
    light = model_class("lightgcn")(num_layers=layers, embedding_dim=dim, batch_size=None)
    tasks = {
        "rankformer": steps.our_step(train, rankformer),
        "lightgcn": steps.our_step(train, light),
        "thin": thin_products(BipartiteGraph.from_interactions(train), dim, layers),
    }
    size = {"users": train.num_users, "items": train.num_items, "pairs": len(train)}
    return {"dataset": dataset, "layers": layers, **size, "rounds": rounds, **interleave(tasks, rounds)}


def thin_products(graph: BipartiteGraph, dim: int, layers: int) -> Callable[[], None]:
    """Return the (n+m) d^2 work of a step: per layer and half, a Gram matrix and a product, then one and two back."""
    rows, result = torch.randn(graph.num_nodes, dim), torch.empty(graph.num_nodes, dim)
    gram, square = torch.zeros(dim, dim), torch.randn(dim, dim)

    def grams() -> None:
        for block in row_blocks(0, graph.num_nodes):
            gram.addmm_(rows[block].T, rows[block])

    def products(count: int) -> None:
        for block in row_blocks(0, graph.num_nodes):
            for _ in range(count):
                torch.mm(rows[block], square, out=result[block])

    def one_step() -> None:
        gram.zero_()
        for _ in range(layers):
            grams()
            products(1)
        for _ in range(layers):
            grams()
            products(2)

    return one_step


def report(results: Result) -> list[str]:
    columns = ["dataset", "layers", "Rankformer", "LightGCN", "ratio", "thin products alone", "share of Rankformer"]
    return [
        *paragraph(
            "Seconds of a full-batch epoch (one step: sampling, forward, backward, optimiser), both models with the",
            "paper's number of Rankformer layers, d = 64 and one training loop. The thin products are those of (n+m) x",
            "d by d x d matrices: per layer a Gram matrix and a product forward, a Gram matrix and two products",
            "backward, over users and over items, in the same blocks of rows as the layer but on nothing else, so the",
            f"share is an estimate. {results['rows'][0]['rounds']} rounds in turns in one process, after a warm-up;",
            "medians (fastest to slowest).",
        ),
        "",
        *table(columns, [row_cells(row) for row in results["rows"]]),
    ]


def row_cells(row: Result) -> list[str]:
    ours, light, thin = (row[name]["median"] for name in ("rankformer", "lightgcn", "thin"))
    return [
        f"{row['dataset']} ({row['users']:,} x {row['items']:,}, {row['pairs']:,} pairs)",
        str(row["layers"]),
        show(row["rankformer"]),
        show(row["lightgcn"]),
        f"**{ours / light:.2f} x**",
        show(row["thin"]),
        f"{thin / ours:.0%}",
    ]
