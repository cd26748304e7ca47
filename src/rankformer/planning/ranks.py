"""What a training on P ranks would need of each: memory, network, and seconds at a given bandwidth.

Users, with their interactions, are divided among the ranks; items are on all of them, but for their optimiser state. A
step sums over ranks what belongs to items (n users, m items, d dimensions, L layers, numbers of 4 bytes):

    rankformer   the warm-up and each layer sum m d forward and m d backward, each layer d^2 + 2 d + m + 1 besides
    lightgcn     each layer sums m d forward and m d backward, and the gradient at the last embeddings m d
    mf           nothing
    all          the gradient of the items is reduced to their owners, m d, and the new items are gathered, m d

A sum of S numbers is a reduction and a gathering, in each of which a rank sends (P - 1) / P of them. Of the seconds of
a step alone, the part for users and interactions is divided by P, that for items is not.
"""

import math
import re
from dataclasses import asdict, dataclass
from typing import Any

from rankformer.errors import ConfigError

# Of Rankformer in float32, from `benchmarks/results/scaling.json`: how peak memory and seconds grow with
# interactions among the same nodes, and what is left for the nodes.
BYTES_PER_EDGE = 122
TABLES = (
    11  # per node besides the layers' outputs: table, gradient, two moments, and what a layer's backward pass holds
)
EDGES_PER_NODE = 4.7  # interactions that cost as much as a node
PROCESS_BYTES = 350e6
# Tables of all items that a step sums: so many for each layer, and so many besides.
_SUMS = {"rankformer": (2, 2), "lightgcn": (2, 1), "mf": (0, 0)}


@dataclass(frozen=True)
class Size:
    """What is trained: the sizes of a log and of a model."""

    users: int
    items: int
    interactions: int
    dim: int
    layers: int


def reduced_numbers(model: str, size: Size) -> int:
    """Return how many numbers a step sums over the ranks; the optimiser's reduction and gathering count as one sum."""
    if model not in _SUMS:
        raise ConfigError(f"--ranks: the sums of {model} are not known; expected one of {', '.join(_SUMS)}")
    m, d = size.items, size.dim
    per_layer, besides = _SUMS[model]
    shared = size.layers * (d * d + 2 * d + m + 1) if model == "rankformer" else 0
    return (per_layer * size.layers + besides + 1) * m * d + shared


def bytes_sent(model: str, size: Size, ranks: int, wire: int = 4) -> int:
    """Return the bytes that each rank sends in a step, numbers of `wire` bytes but for the new items' 4."""
    numbers = 2 * wire * reduced_numbers(model, size) + (4 - wire) * size.items * size.dim
    return round((ranks - 1) / ranks * numbers)


def memory_per_rank(size: Size, ranks: int) -> dict[str, int]:
    """Return the bytes that a rank has at its peak: of its users, its interactions, all items, and buffers."""
    row = 4 * size.dim
    held = TABLES + size.layers + 1
    parts = {
        "process": PROCESS_BYTES,
        "users": size.users / ranks * row * held,
        "interactions": size.interactions / ranks * BYTES_PER_EDGE,
        "items": size.items * row * (held - 2 + 2 / ranks),
        "buffers": 0 if ranks == 1 else 2 * size.items * row,
    }
    return {name: round(value) for name, value in parts.items()}


def step_seconds(size: Size, ranks: int, alone: float) -> float:
    """Return the seconds that a rank computes in a step which takes `alone` seconds on one."""
    divided = size.interactions + EDGES_PER_NODE * size.users
    whole = EDGES_PER_NODE * size.items
    return alone * (divided / ranks + whole) / (divided + whole)


def plan_ranks(model: str, size: Size, ranks: int, bandwidth: float, alone: float) -> dict[str, Any]:
    """Return the forecast for so many ranks.

    Args:
        model: name of the method.
        size: of the log and the model.
        ranks: P.
        bandwidth: bytes per second that a rank can send.
        alone: seconds of a step on one rank.
    """
    memory, sent = memory_per_rank(size, ranks), bytes_sent(model, size, ranks)
    compute, network = step_seconds(size, ranks, alone), sent / bandwidth
    seconds = {"compute": compute, "network": network, "step": compute + network}
    named = {"ranks": ranks, "bandwidth": bandwidth, "size": asdict(size)}
    return named | {"memory": memory, "peak": sum(memory.values()), "bytes_per_step": sent, "seconds": seconds}


def most_useful_ranks(model: str, size: Size, bandwidth: float, alone: float) -> int:
    """Return the number of ranks at which the network takes as long as the work that is divided: more save little."""
    network = bytes_sent(model, size, 1 << 20) / bandwidth
    divided = step_seconds(size, 1, alone) - step_seconds(size, 1 << 62, alone)
    return max(1, math.floor(divided / network)) if network else 1 << 20


def parse_bandwidth(text: str) -> float:
    """Return the bytes per second of a bandwidth such as 10Gbit or 800Mbit."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMG])bit(?:/s)?", text.strip(), re.IGNORECASE)
    if found is None or float(found[1]) == 0:
        raise ConfigError(f"--bandwidth {text}: expected bits per second such as 10Gbit or 800Mbit")
    return float(found[1]) * 1000.0 ** " KMG".index(found[2].upper()) / 8
