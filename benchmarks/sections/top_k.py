"""Exact top-20 lists of all users against the bare matrix product."""

import torch

from benchmarks import steps
from benchmarks.measure import Result, in_fresh_process, interleave, note, paragraph, show, table
from benchmarks.options import Options
from rankformer.scoring.embeddings import Embeddings
from rankformer.scoring.seen_items import SeenItems
from rankformer.scoring.top_k import DEFAULT_BLOCK_BYTES, top_k

TITLE = "Exact top-20 for every user"
DATASETS = ("yelp2018-lightgcn",)
DIM, CUTOFF = 64, 20


def run(options: Options) -> Result:
    rows = []
    for name in steps.available(options.datasets or DATASETS):
        note(f"  {name}: {options.rounds} rounds")
        rows.append(in_fresh_process(time_lists, dataset=name, rounds=options.rounds))
    return {"rows": rows}


def time_lists(dataset: str, rounds: int) -> Result:
    """Return seconds of the blocked product alone, and of the lists without and with the training pairs masked."""
    train = steps.training_part(dataset)
    n, m, generator = train.num_users, train.num_items, torch.Generator().manual_seed(0)
    embeddings = Embeddings(torch.randn(n, DIM, generator=generator), torch.randn(m, DIM, generator=generator))
    block = max(1, DEFAULT_BLOCK_BYTES // (4 * m))
    users, buffer, right, seen = torch.arange(n), torch.empty(block, m), embeddings.items.T, SeenItems.of(train)

    def product() -> None:
        for rows in embeddings.users.split(block):
            torch.mm(rows, right, out=buffer[: len(rows)])

    tasks = {
        "product": product,
        "lists": lambda: top_k(embeddings, users, CUTOFF),
        "masked": lambda: top_k(embeddings, users, CUTOFF, seen=seen),
    }
    size = {"users": n, "items": m, "masked_pairs": len(seen)}
    return {"dataset": dataset, **size, "rounds": rounds, **interleave(tasks, rounds)}


def report(results: Result) -> list[str]:
    columns = ["users x items", "bare blocked product", "exact top-20", "ratio", "with the train mask", "ratio"]
    return [
        *paragraph(
            f"Random vectors of d = {DIM} at each dataset's size; the product works in blocks of the same size and",
            f"keeps nothing. {results['rows'][0]['rounds']} rounds in turns in one process, after a warm-up; medians",
            "(fastest to slowest).",
        ),
        "",
        *table(columns, [row_cells(row) for row in results["rows"]]),
    ]


def row_cells(row: Result) -> list[str]:
    product, lists, masked = row["product"], row["lists"], row["masked"]
    return [
        f"{row['users']:,} x {row['items']:,} ({row['dataset']}, {row['masked_pairs']:,} pairs masked)",
        show(product),
        show(lists),
        f"**{lists['median'] / product['median']:.2f} x**",
        show(masked),
        f"**{masked['median'] / product['median']:.2f} x**",
    ]
