"""The peak memory of training Rankformer, counted from the code.

With n users, m items, N = n + m, E training pairs, width d, L layers; all sizes in bytes.

    stands all the time
      graph        3 x 8E  neighbours, owners, edge_of        4E  values of the pattern       12N  ptr, degree
      sampler      2 x 8E  pairs, ranks                       4E..8E  hashed table            16n  free_items, first
      validator    4E  pairs to leave out                     24n + 8m  offsets, counts, popularity
      parameters   4 x 4Nd  table, Adam's two moments, the best copy (3 x without validation)

    kept for the backward pass, per layer 8E + 16N + 20n (weights w, and per-node values), another 4E if signs of
    omega+ are kept; rows of the outputs of warm-up and layers:
      float32      (L + 1) x 4Nd
      bfloat16     (L + 1) x 2Nd, and two of them as 4Nd while a layer's backward reads them
      recompute    P x 4Nd, P about sqrt(2 L), and the per-layer values of one segment: see `training.activations`

    comes and goes
      preparing    5 x 8E  keys and their sorting, for graph, sampler and validator
      start        8E + 2 x 4Nd + 4 x 4N(d + 16)  singular vectors, if training starts from them, or
                   8E + 2 x 4E + 2 x 4Nd + 5 x 4 max(n, m) d  least-squares factors
      drawing      5 x 8E  random bits and keys of the negatives
      loss         5 x 8E + 3 x 4E  pairs, signed coefficients, their order by item, negatives
                   2 x 4Nd + 4 max(n, m) d  its gradient, that of the penalty, one side's sums
      layers       8E + 4 x 4E + 4 x 4N  edge gradients, weights of one SpMM, negatives; three blocks of 4096 rows
                   6 x 4Nd  gradient in, gradient out, unit rows, their gradient, that of the sums y, of the penalty
      validation   8E + 6 x 4E + 4 x 4Nd  one forward pass beside the last gradient; two blocks of scores

    and with mini-batches of B pairs, instead of `loss` and `drawing`
      shuffling    5 x 8E  random keys and their order, of which 8E stays through the epoch
      batch        9 x 4Bd + 4B  gathered rows and their gradients
      scattering   3 x 4Bd + 3 x 4Nd  the gradients as full tables

Not all of it is alive at once: the peak is the largest phase. While training, freed blocks below 32 MiB are kept for
reuse (`training.memory`) and not handed back, larger ones are. So small and large blocks have their largest phases each
for itself, and the small ones take a quarter more room than they hold (measured: what lies between reused blocks); with
mini-batches, whose gathered rows and full tables do not fit into each other's places, three fifths more.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from rankformer.models.rankformer import RankformerSettings
from rankformer.training.activations import segment_sizes

SMALL = 32 * 2**20
ROOM_OF_SMALL = 1.25
ROOM_WITH_BATCHES = 1.6
_ROW_BLOCK = 4096
_SCORE_BLOCK = 16 * 2**20
_WITH_KEPT = ("layers", "loss", "batch", "scattering")  # the phases in which the forward pass's outputs are held


@dataclass(frozen=True)
class Shape:
    """The numbers of a data set that memory depends on.

    Attributes:
        num_users: n.
        num_items: m.
        num_pairs: E, training pairs.
        validates: whether there is a validation part.
    """

    num_users: int
    num_items: int
    num_pairs: int
    validates: bool = True

    @property
    def num_nodes(self) -> int:
        """N = n + m."""
        return self.num_users + self.num_items


class Block(NamedTuple):
    """So many arrays of so many bytes each."""

    number: float
    size: int

    @property
    def total(self) -> float:
        """Bytes of all of them."""
        return self.number * self.size


@dataclass(frozen=True)
class Forecast:
    """The peak of a training and what it is made of.

    Attributes:
        peak: bytes of resident memory at most.
        parts: bytes of each part at the peak, by name; their sum is the peak.
        basis: "counted" from the code, or "measured" on a smaller sample.
    """

    peak: int
    parts: dict[str, int]
    basis: str


def forecast_rankformer(shape: Shape, settings: RankformerSettings, process: int) -> Forecast:
    """Return the peak of training Rankformer.

    Args:
        shape: of the training data.
        settings: of the model.
        process: resident bytes before training: interpreter, libraries and the data that was read.
    """
    standing = _standing(shape, settings)
    phases = _phases(shape, settings)
    largest = max(phases, key=lambda name: _bytes(phases[name]))
    large = max(_bytes(_large(blocks)) for blocks in phases.values())
    small = max(_bytes(_small(blocks)) for blocks in phases.values())
    always = [block for blocks in standing.values() for block in blocks]
    room = ROOM_WITH_BATCHES if "batch" in phases else ROOM_OF_SMALL
    training = _bytes(_large(always)) + large + room * (_bytes(_small(always)) + small)
    parts = {"process and data": float(process)} | {name: _bytes(blocks) for name, blocks in standing.items()}
    kept = _bytes(_kept(shape, settings)) if largest in _WITH_KEPT else 0.0
    parts |= {"kept for the backward pass": kept, f"at work ({largest})": _bytes(phases[largest]) - kept}
    parts["freed, held for reuse"] = process + training - sum(parts.values())
    rounded = {name: round(size) for name, size in parts.items()}
    return Forecast(sum(rounded.values()), rounded, "counted")


def _standing(shape: Shape, settings: RankformerSettings) -> dict[str, list[Block]]:
    n, m, nodes, pairs = shape.num_users, shape.num_items, shape.num_nodes, shape.num_pairs
    slots = 1 << (4 * pairs).bit_length()
    result = {
        "graph": [Block(3, 8 * pairs), Block(1, 4 * pairs), Block(1, 4 * nodes), Block(1, 8 * nodes)],
        "negative sampler": [Block(2, 8 * pairs), Block(1, slots), Block(2, 8 * n)],
        "parameters and Adam": [Block(3 + shape.validates, _rows(shape, settings))],
    }
    if shape.validates:
        result["validator"] = [Block(1, 4 * pairs), Block(3, 8 * n), Block(1, 8 * m)]
    return result


def _phases(shape: Shape, settings: RankformerSettings) -> dict[str, list[Block]]:
    """Return the blocks of each phase beyond those that stand all the time."""
    kept = _kept(shape, settings)
    phases = {"preparing": [Block(5, 8 * shape.num_pairs)], "layers": kept + _layer_backward(shape, settings)}
    if settings.start != "normal":
        phases["start"] = _start(shape, settings)
    if shape.validates:
        phases["validation"] = _validation(shape, settings)
    if settings.batch_size is None or settings.batch_size >= shape.num_pairs:
        return phases | {"drawing": [Block(5, 8 * shape.num_pairs)], "loss": kept + _full_loss(shape, settings)}
    shuffling = [Block(5, 8 * shape.num_pairs)]
    return phases | {"shuffling": shuffling} | _batch_phases(shape, settings, settings.batch_size)


def _kept(shape: Shape, settings: RankformerSettings) -> list[Block]:
    """Return what lies between the forward and the backward pass, at its most."""
    rows, functions = _rows(shape, settings), settings.num_layers + 1
    if settings.activations == "bfloat16":
        return [Block(functions, rows // 2), *_per_layer(shape, settings, settings.num_layers)]
    if settings.activations == "float32":
        return [Block(functions, rows), *_per_layer(shape, settings, settings.num_layers)]
    choices = [
        [Block(place + size, rows), *_per_layer(shape, settings, size - (place == 0))]  # the warm-up keeps nothing else
        for place, size in enumerate(segment_sizes(functions))
    ]
    return max(choices, key=_bytes)


def _per_layer(shape: Shape, settings: RankformerSettings, layers: int) -> list[Block]:
    blocks = [Block(layers, 8 * shape.num_pairs), Block(4 * layers, 4 * shape.num_nodes)]
    return [*blocks, Block(5 * layers, 4 * shape.num_users), Block(_signs(settings) * layers, 4 * shape.num_pairs)]


def _signs(settings: RankformerSettings) -> bool:
    """Whether a layer must keep the signs of omega+."""
    return settings.normalize and not (settings.negatives == "push" and settings.alpha >= 2)


def _layer_backward(shape: Shape, settings: RankformerSettings) -> list[Block]:
    if settings.num_layers == 0:
        return [Block(2, _rows(shape, settings))]
    unpacked = 2 * (settings.activations == "bfloat16")
    return [
        Block(6 + unpacked, _rows(shape, settings)),
        Block(4 + _signs(settings), 4 * shape.num_pairs),
        Block(1, 8 * shape.num_pairs),
        Block(4, 4 * shape.num_nodes),
        Block(3, 4 * min(_ROW_BLOCK, max(shape.num_users, shape.num_items)) * settings.embedding_dim),
    ]


def _full_loss(shape: Shape, settings: RankformerSettings) -> list[Block]:
    rows, one_side = _rows(shape, settings), 4 * max(shape.num_users, shape.num_items) * settings.embedding_dim
    unrounded = settings.activations == "bfloat16"  # the final rows themselves, beside their rounded copy
    return [
        Block(2 + unrounded, rows),
        Block(1, one_side),
        Block(5, 8 * shape.num_pairs),
        Block(3, 4 * shape.num_pairs),
    ]


def _batch_phases(shape: Shape, settings: RankformerSettings, batch: int) -> dict[str, list[Block]]:
    gathered = 4 * batch * settings.embedding_dim
    unrounded = settings.activations == "bfloat16"
    kept = [*_kept(shape, settings), Block(unrounded, _rows(shape, settings)), Block(1, 8 * shape.num_pairs)]
    return {
        "batch": [*kept, Block(9, gathered), Block(1, 4 * batch)],
        "scattering": [*kept, Block(3, gathered), Block(3, _rows(shape, settings))],
    }


def _validation(shape: Shape, settings: RankformerSettings) -> list[Block]:
    scores = min(_SCORE_BLOCK, 4 * shape.num_users * shape.num_items)
    edges = [Block(1, 8 * shape.num_pairs), Block(6, 4 * shape.num_pairs)]
    return [Block(4, _rows(shape, settings)), Block(2, scores), *edges]


def _start(shape: Shape, settings: RankformerSettings) -> list[Block]:
    edges, tables = Block(1, 8 * shape.num_pairs), Block(2, _rows(shape, settings))
    if settings.start == "spectral":
        return [edges, tables, Block(4, 4 * shape.num_nodes * (settings.embedding_dim + 16))]
    one_side = 4 * max(shape.num_users, shape.num_items) * settings.embedding_dim
    return [edges, tables, Block(2, 4 * shape.num_pairs), Block(5, one_side)]


def _rows(shape: Shape, settings: RankformerSettings) -> int:
    return 4 * shape.num_nodes * settings.embedding_dim


def _bytes(blocks: Iterable[Block]) -> float:
    return sum(block.total for block in blocks)


def _large(blocks: Iterable[Block]) -> list[Block]:
    return [block for block in blocks if block.size >= SMALL]


def _small(blocks: Iterable[Block]) -> list[Block]:
    return [block for block in blocks if block.size < SMALL]
