"""Seconds of a step on graphs with communities, as numbered and by clusters, with small and with huge pages.

    python -m benchmarks.order FOLDER SIZE|DATASET... [--steps N] [--orders given,clusters] [--pages small,huge]

Rankformer of 3 layers, d = 64. The pairs of each graph are kept in FOLDER, so that a second call only measures; each
measurement is a process of its own. Results as JSON lines, and the exponent over the sizes at the end.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.measure import ROOT, peak_memory_mb, seconds_of, spread
from benchmarks.sections.scaling import exponent

INSIDE, LEAST, COMMUNITY = 0.8, 200, 1000.0  # share of pairs inside a community; users of the least and a typical one
# Standard deviation of the logarithm of an item's popularity. The top .1, 1, 10 and 50 % of the items then have 2, 11,
# 43 and 86 % of the pairs: yelp2018-lightgcn has 2, 11, 43, 84, Ali-Display 3, 12, 40, 79, Epinions 4, 15, 47, 84.
POPULARITY = 1.1
HUGE_PAGES = "THP_MEM_ALLOC_ENABLE"  # torch then asks for them


def communities(size: int, seed: int = 0) -> tuple[Any, Any, int]:
    """Return users, items of `size` pairs and how many there are of each: E/64, in communities of heavy-tailed sizes.

    Four of five pairs are with an item of the user's community, the others with any item; both are drawn in proportion
    to the item's popularity, which is log-normal. Users and items are numbered at random.
    """
    draw, count = np.random.default_rng(seed), max(LEAST, size // 64)
    sizes = np.maximum(LEAST, COMMUNITY * draw.lognormal(0, 0.7, count // LEAST + 1)).astype(np.int64)
    ends = np.append(np.cumsum(sizes)[np.cumsum(sizes) < count], count)
    starts = np.append(0, ends[:-1])
    popularity = np.append(0, np.cumsum(draw.lognormal(0, POPULARITY, count)))
    users = draw.integers(0, count, size).astype(np.int32)
    home = np.searchsorted(ends, users, side="right")
    inside = draw.random(size) < INSIDE
    low, high = popularity[np.where(inside, starts[home], 0)], popularity[np.where(inside, ends[home], count)]
    items = np.searchsorted(popularity, low + (high - low) * draw.random(size), side="right") - 1
    numbers = [draw.permutation(count).astype(np.int32) for _ in range(2)]
    return numbers[0][users], numbers[1][items.clip(max=count - 1)], count


def pairs_of(folder: Path, source: str, order: str) -> tuple[Any, tuple[int, int]]:
    """Return the pairs (2, E) of a graph in an order, and its users and items; kept in the folder."""
    from benchmarks.steps import training_part
    from rankformer.data.clusters import clustered_order

    path = folder / f"{source}-{order}.npy"
    if not path.exists():
        begun = time.perf_counter()
        if order == "clusters":
            pairs, size = pairs_of(folder, source, "given")
            for side, each in enumerate(clustered_order(*pairs, *size)):
                positions = np.empty(len(each), np.int32)
                positions[each] = np.arange(len(each), dtype=np.int32)
                pairs[side] = positions[pairs[side]]
        elif source.isdecimal():
            users, items, count = communities(int(source))
            pairs, size = np.stack([users, items]), (count, count)
        else:
            train = training_part(source)
            pairs, size = np.stack([train.users, train.items]), (train.num_users, train.num_items)
        np.save(path, pairs)
        seconds = round(time.perf_counter() - begun, 1)
        path.with_suffix(".json").write_text(json.dumps({"size": size, "seconds": seconds}))
    return np.load(path), tuple(json.loads(path.with_suffix(".json").read_text())["size"])


def distinct_per_pair(pairs: Any, size: tuple[int, int]) -> float:
    """Return how many distinct items blocks of 2,048 users in a row read, per pair."""
    keys = (pairs[0] // 2048).astype(np.int64) * size[1] + pairs[1]
    keys.sort()
    return float((np.count_nonzero(np.diff(keys)) + 1) / len(keys))


def measure(folder: Path, source: str, order: str, steps: int) -> dict[str, Any]:
    """Return the seconds of a step in this process."""
    from benchmarks import steps as kinds
    from rankformer.data.interactions import Interactions
    from rankformer.training.activations import kept_memory

    pairs, size = pairs_of(folder, source, order)
    locality = distinct_per_pair(pairs[:, :16_000_000], size)
    step = kinds.our_step(Interactions.from_indices(*pairs, *size), kinds.paper_rankformer("synthetic"))
    made = json.loads((folder / f"{source}-{order}.json").read_text())["seconds"]
    told = {"graph": source, "pairs": pairs.shape[1], "order": order, "distinct items per pair": round(locality, 3)}
    del pairs
    with kept_memory():
        step()
        begun = time.process_time()
        seconds = spread([seconds_of(step) for _ in range(steps)])
        told["processor seconds"] = (time.process_time() - begun) / steps
    return {**told, "seconds": seconds, "peak_mb": round(peak_memory_mb()), "seconds to number": made}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("sources", nargs="+")
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--orders", default="given,clusters")
    parser.add_argument("--pages", default="small,huge")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--only-make", action="store_true", help="make the graphs and measure nothing")
    given = parser.parse_args()
    if given.here:
        print(json.dumps(measure(given.folder, given.sources[0], given.orders, given.steps)))
        return
    rows: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for source in given.sources:
        for order in given.orders.split(","):
            if given.only_make:
                pairs_of(given.folder, source, order)
                continue
            for pages in given.pages.split(","):
                options = ["--here", "--orders", order, "--steps", str(given.steps)]
                command = [sys.executable, "-m", "benchmarks.order", str(given.folder), source, *options]
                environment = {**os.environ, HUGE_PAGES: str(int(pages == "huge"))}
                done = subprocess.run(command, env=environment, cwd=ROOT, stdout=subprocess.PIPE, check=True)
                found = {"pages": pages, **json.loads(done.stdout)}
                rows.setdefault((order, pages), []).append(found)
                print(json.dumps(found), flush=True)
    for (order, pages), each in rows.items():
        if len(each) > 1:
            print(json.dumps({"order": order, "pages": pages, "exponent": exponent(each)}), flush=True)


if __name__ == "__main__":
    main()
