"""What filters, limits, boosts and cold items cost: exact top-20 lists of all users with each, against without."""

import numpy as np
import pyarrow as pa
import torch

from benchmarks import steps
from benchmarks.measure import Result, in_fresh_process, interleave, note, paragraph, show, table
from benchmarks.options import Options
from rankformer.data.items import Items
from rankformer.scoring.embeddings import Embeddings
from rankformer.scoring.options import RankingOptions
from rankformer.scoring.recommender import Recommender

TITLE = "Exact top-20 under filters"
DATASETS = ("yelp2018-lightgcn",)
DIM, CUTOFF, BRANDS, NEW = 64, 20, 500, 0.02
REQUESTS: dict[str, dict[str, object]] = {
    "no filter": {},
    "where, half of the items": {"where": ("price < 0.5",)},
    "where, 1 % of the items": {"where": ("price < 0.01",)},
    "block list of 10,000": {"block": tuple(range(10_000))},
    "at most 2 per brand": {"at_most": (("brand", 2),)},
    "boost of a tenth": {"boost": (("price < 0.1", 0.5),)},
    "with cold items": {"include_cold": True},
}


def run(options: Options) -> Result:
    rows = []
    for name in steps.available(options.datasets or DATASETS):
        note(f"  {name}: {options.rounds} rounds")
        rows.append(in_fresh_process(time_filters, dataset=name, rounds=options.rounds))
    return {"rows": rows}


def time_filters(dataset: str, rounds: int) -> Result:
    """Return seconds of all lists for each kind of request; attributes are random, 500 brands and a price."""
    train = steps.training_part(dataset)
    n, m, generator = train.num_users, train.num_items, torch.Generator().manual_seed(0)
    embeddings = Embeddings(torch.randn(n, DIM, generator=generator), torch.randn(m, DIM, generator=generator))
    rng, count = np.random.default_rng(0), int(m * (1 + NEW))
    columns = {"brand": [f"b{value}" for value in rng.integers(0, BRANDS, count)], "price": rng.random(count)}
    items = Items.from_arrow(pa.table({"id": np.arange(count), **columns}))
    recommender = Recommender(embeddings, train.user_ids, train.item_ids, train).with_items(items)
    users = torch.arange(n)
    tasks = {
        name: lambda request=request: recommender.rank(users, RankingOptions(CUTOFF, **request))
        for name, request in REQUESTS.items()
    }
    size = {"users": n, "items": m, "new": count - m}
    return {"dataset": dataset, **size, "rounds": rounds, **interleave(tasks, rounds)}


def report(results: Result) -> list[str]:
    lines = []
    for row in results["rows"]:
        size = f"{row['users']:,} x {row['items']:,} ({row['dataset']}, seen items left out, {row['new']:,} new items)"
        base = row["no filter"]["median"]
        cells = [[name, show(row[name]), f"**{row[name]['median'] / base:.2f} x**"] for name in REQUESTS]
        lines += [f"{size}:", "", *table(["request", "all lists", "ratio"], cells), ""]
    return [
        *paragraph(
            f"Random vectors of d = {DIM} and random attributes, {BRANDS} brands and a price;",
            f"{results['rows'][0]['rounds']} rounds in turns in one process, after a warm-up;",
            "medians (fastest to slowest).",
        ),
        "",
        *lines,
    ]
