"""The tables of docs/scale.md, from measured unit costs: `python -m benchmarks.scale [--write]`.

Seconds and bytes of a step are those of benchmarks/results/scaling.json (Rankformer, 3 layers, d = 64, the largest
graph of the family whose nodes grow along); network and division are those of
`rankformer plan --ranks`.
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path

from benchmarks.measure import ROOT, table
from rankformer.models.rankformer import RankformerSettings
from rankformer.planning.ranks import EDGES_PER_NODE, Size, bytes_sent, memory_per_rank, most_useful_ranks, step_seconds

PAGE = ROOT / "docs" / "scale.md"
BEGIN, END = "<!-- computed by python -m benchmarks.scale -->", "<!-- end of what is computed -->"
USERS, ITEMS, DIM, LAYERS = 10**8, 10**7, 64, 3
INTERACTIONS = (10**9, 10**10)
RANKS = (8, 32, 128, 512)
CORES = 16  # of a rank
RATES = {"10 Gbit": 1.25e9, "100 Gbit": 12.5e9}
# Rows of d numbers that a step reads or writes per interaction: 9 in each layer, 3 in the warm-up and 6 in the loss.
ROWS_PER_INTERACTION = 9 * LAYERS + 3 + 6
A100 = 2039e9  # bytes per second of memory, NVIDIA A100 80GB SXM data sheet


def unit_cost() -> tuple[float, int]:
    """Return the seconds of a step per interaction (nodes count as some of them) at the largest size, and the cores."""
    measured = json.loads((ROOT / "benchmarks" / "results" / "scaling.json").read_text(encoding="utf-8"))
    family = next(each for each in measured["results"]["families"] if each["family"] == "growing")
    row = family["rows"][-1]
    nodes = row["users"] + row["items"]
    return row["seconds"]["median"] / (row["pairs"] + EDGES_PER_NODE * nodes), measured["machine"]["cores"]


def lines() -> Iterator[str]:
    """Yield the computed part of the page."""
    unit, cores = unit_cost()
    epochs = RankformerSettings().epochs
    yield f"Measured on {cores} cores at 64 million interactions: {unit * 1e6:.2f} µs per interaction and step, and"
    yield f"{EDGES_PER_NODE * unit * 1e6:.1f} µs per user and item. A rank has {CORES} such cores and is taken to be"
    yield f"{CORES // cores} times as fast; {epochs} epochs of one step each, d = {DIM}, {LAYERS} layers."
    for interactions in INTERACTIONS:
        size = Size(USERS, ITEMS, interactions, DIM, LAYERS)
        alone = unit * (interactions + EDGES_PER_NODE * (USERS + ITEMS)) * cores / CORES
        yield ""
        yield f"### {interactions:,} interactions"
        yield ""
        columns = ["ranks", "memory of a rank", "computing", *(f"network, {rate}" for rate in RATES)]
        columns += [f"{epochs} epochs, {rate}" for rate in RATES]
        yield from table(columns, [row_of(size, ranks, alone, epochs) for ranks in RANKS])
        yield ""
        useful = {name: most_useful_ranks("rankformer", size, rate, alone) for name, rate in RATES.items()}
        ends = " and ".join(f"{count} ranks at {name}" for name, count in useful.items())
        yield f"The network takes as long as the divided work at {ends}: beyond that, more ranks save little."
        gpu = ROWS_PER_INTERACTION * 4 * DIM * interactions / A100
        cards = next(p for p in (2**k for k in range(20)) if sum(memory_per_rank(size, p).values()) <= 80e9)
        yield f"On A100 cards {cards} hold it, and reading its rows takes {gpu / cards:.2f} s of a step on each."
    held = 512e9 / sum(memory_per_rank(Size(0, 1, 0, DIM, LAYERS), 1 << 20)[part] for part in ("items", "buffers"))
    yield ""
    yield f"In a rank of 512 GB the tables of {held / 1e6:.0f} million items leave room for nothing else."


def row_of(size: Size, ranks: int, alone: float, epochs: int) -> list[str]:
    compute = step_seconds(size, ranks, alone)
    network = [bytes_sent("rankformer", size, ranks) / rate for rate in RATES.values()]
    hours = [epochs * (compute + each) / 3600 for each in network]
    memory = sum(memory_per_rank(size, ranks).values())
    times = [f"{seconds:.1f} s" for seconds in (compute, *network)]
    return [f"{ranks}", f"{memory / 1e9:.0f} GB", *times, *(f"{each:.1f} h" for each in hours)]


def page_with(text: str, page: str) -> str:
    """Return the page with its computed part replaced."""
    before, rest = page.split(BEGIN)
    return f"{before}{BEGIN}\n{text}\n{END}{rest.split(END)[1]}"


def main() -> None:
    text = "\n".join(lines())
    if "--write" in sys.argv:
        Path(PAGE).write_text(page_with(text, PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    else:
        print(text)


if __name__ == "__main__":
    main()
