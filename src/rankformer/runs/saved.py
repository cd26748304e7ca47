"""The run folder: a trained model as files that can be checked, and that cannot execute.

    manifest.json            format version, model and settings, seed, versions, data, protocol, metrics, scorer,
                             SHA-256 and size of every other file, and a checksum of itself
    embeddings.safetensors   the tensors of the scorer: users (n, d), items (m, d) and fold_in.*, or those of another
                             kind; the learned parameters as network.*
    users.parquet            raw user ids, position = index
    items.parquet            raw item ids, position = index, titles if known, attributes as attribute.NAME; then items
                             without an index of their own (`new`), and how cold items are scored
    history.parquet          known interactions by index: user, item, part, whether it was fitted if not all were, and
                             what each counts if the method used weights
    evaluation.parquet       the lists that were evaluated on the test part, if any were
    log.jsonl                training log: one line per epoch and validation
    README.md                model card for people, which nothing reads; edited, moved or removed as they like

Files are written to a folder of their own and fsynced; it is renamed to `.staged`, and from then on its files count in
place of those outside, where they are moved next, the manifest last. A folder without a manifest is not a run.
Loading verifies every checksum, shape and index range before use.
"""

import base64
import json
import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import torch
from numpy.typing import NDArray
from safetensors.torch import load as load_tensors
from safetensors.torch import load_file
from safetensors.torch import save as tensors_to_bytes
from scipy.sparse import csr_array
from torch import Tensor

from rankformer.data.id_map import IdMap
from rankformer.data.interactions import Block, Interactions, Parts
from rankformer.data.items import Items
from rankformer.errors import DataError, RunFolderError
from rankformer.evaluation.evaluator import DEFAULT_METRICS, Evaluation, evaluate, ranks_of
from rankformer.evaluation.metrics import parse_metrics
from rankformer.evaluation.protocol import installed_versions
from rankformer.files import atomic_path, locked, sha256_of, sync_folder, write_bytes_atomic
from rankformer.graph.collectives import ALONE, Ranks
from rankformer.runs.checkpoint import CHECKPOINT, is_checkpoint, remove_checkpoint
from rankformer.runs.checksums import checksummed_json
from rankformer.runs.legacy import upgrade_tensor_name
from rankformer.runs.manifest import (
    EVALUATION,
    FILES,
    FORMAT,
    MANIFEST,
    STAGED,
    TENSORS,
    VERSION,
    located,
    read_manifest,
)
from rankformer.runs.model_card import remove_card
from rankformer.runs.ownership import TRAINING, check_ours, put_in_place, remove_files, sweep
from rankformer.runs.training_log import LOG, read_log
from rankformer.scoring.base import MOST
from rankformer.scoring.cold_items import ColdItems
from rankformer.scoring.recommender import Recommender
from rankformer.scoring.stored import SCORERS, restore_scorer

_ALWAYS_READ = 2**28  # bytes that a table may have, however small its file is
_MAPPED_BYTES = 2**31  # larger files of tensors are mapped into memory, not read
_EXPANSION = 1000  # times that a larger one may be larger than its file
_ATTRIBUTE = "attribute."  # what the names of attributes begin with in items.parquet
_SAID = ("model", "settings", "seed", "versions", "data", "metrics", "protocol")  # in the manifest, as they are


@dataclass(frozen=True, eq=False)
class Run:
    """What a run folder holds."""

    model: str  # registered name of the method
    settings: dict[str, Any]  # its hyperparameters
    seed: int  # seed of the training
    recommender: Recommender  # ids, history and scorer
    parameters: dict[str, Tensor] = field(default_factory=dict)  # the learned parameters, by name
    log: list[dict[str, Any]] = field(default_factory=list)  # events of the training
    data: dict[str, Any] = field(default_factory=dict)  # where the parts came from and their fingerprints
    metrics: dict[str, float] = field(default_factory=dict)  # of the test part, empty when it was not evaluated
    warm_metrics: dict[str, float] = field(default_factory=dict)  # of its users with training interactions, if not all
    protocol: dict[str, Any] = field(default_factory=dict)  # of those metrics
    versions: dict[str, str] = field(default_factory=installed_versions)  # of the packages that made it
    lists: NDArray[np.int64] | None = None  # (U, K) what was evaluated: item indices for each user of the test part
    refit: dict[str, Any] | None = None  # what it was refitted on; metrics are then of the model before that
    update: dict[str, Any] | None = None  # what it was updated from and by; it has then no metrics of its own

    @property
    def source(self) -> dict[str, Any]:
        """How its data was read, as far as the run says."""
        said = self.data.get("source")
        return said if isinstance(said, dict) else {} if said is None else {"source": said}

    @property
    def parts(self) -> Parts:
        """The parts of the run's log, as its folder holds them.

        Raises:
            RunFolderError: it does not, as in runs of older versions and in those that were saved by hand.
        """
        known = self.recommender.known
        if known.labels is None:
            untold = "does not say which interactions are its test part"
            reason = "has learned its test part in an update" if self.update else untold
            raise RunFolderError(f"the run {reason}; name newer interactions with --data, or train it again")
        return Parts.of(known, known.labels)

    def evaluate_again(self, metrics: Sequence[str] = DEFAULT_METRICS) -> Evaluation:
        """Return the evaluation of the lists that were evaluated before the run was saved, by any metrics.

        Raises:
            RunFolderError: the run has no such lists, or they are shorter than a metric's cutoff.
        """
        parts, longest = self.parts, max(metric.cutoff for metric in parse_metrics(metrics))
        if self.lists is None or longest > self.lists.shape[1]:
            kept = "no lists" if self.lists is None else f"lists of {self.lists.shape[1]} items"
            raise RunFolderError(f"the run holds {kept} of its evaluation, too short for a cutoff of {longest}")
        found = evaluate(
            self.recommender,
            parts.test,
            metrics=metrics,
            train=parts.train,
            valid=parts.valid,
            mask=str(self.protocol.get("mask", "train")),
            seed=self.seed,
            split_name=str(self.protocol.get("split", parts.test.name)),
            lists=self.lists,
        )
        protocol = replace(found.protocol, backend=str(self.protocol.get("backend")), versions=self.versions)
        return replace(found, protocol=protocol)


def save_run(folder: Path, run: Run) -> None:
    """Write a run, and remove the checkpoint of its training; an older run in the folder stays until this is whole.

    Raises:
        RunFolderError: another process writes to the folder, or something in it has the name of a file of a run.
    """
    kind = run.recommender.scorer.metadata()["kind"]
    if kind not in SCORERS:
        raise RunFolderError(f"a {kind!r} scorer cannot be saved; known are {', '.join(SCORERS)}")
    ranks = ranks_of(run.recommender.history)
    with nullcontext() if ranks.rank else locked(folder):
        staging = folder / f"{STAGED}.tmp"
        with ranks.together():
            if ranks.rank == 0:
                check_ours(folder)
                sweep(folder)
                staging.mkdir()
        try:
            _write_files(staging, run, ranks)
            with ranks.together():
                if ranks.rank == 0:
                    read_manifest(staging)  # refuses what could not be loaded, while the older run is still there
                    remove_card(folder)
                    os.replace(staging, folder / STAGED)  # from here on this is the run
        finally:
            if ranks.rank == 0:
                remove_files(staging)
        if ranks.rank == 0:
            sync_folder(folder)
            put_in_place(folder)
            if is_checkpoint(folder / CHECKPOINT):
                remove_checkpoint(folder / CHECKPOINT)
            remove_files(folder / TRAINING)
    ranks.barrier()


def _write_files(folder: Path, run: Run, ranks: Ranks) -> None:
    """Write every file of a run, the manifest last, each of them safely on disk.

    Of several ranks each writes its rows of the tensors and sends its rows of the tables to the first, which writes
    everything else.
    """
    recommender = run.recommender
    tensors = recommender.scorer.tensors() | {f"network.{name}": value for name, value in run.parameters.items()}
    _write_tensors(folder / TENSORS, tensors, recommender.history.block, ranks)
    _write_table(folder / "users.parquet", {"id": recommender.user_ids.ids}, ranks)
    known = _history_columns(recommender, ranks)
    fitted = len(recommender.history)
    _write_table(folder / "history.parquet", known, ranks, [slice(0, fitted), slice(fitted, None)])
    if ranks.rank:
        return
    _write_table(folder / "items.parquet", _item_columns(recommender))
    if run.lists is not None:
        flat = pa.array(run.lists.astype(np.int32).ravel())
        _write_table(folder / EVALUATION, {"items": pa.FixedSizeListArray.from_arrays(flat, run.lists.shape[1])})
    files = FILES if run.lists is None else (*FILES, EVALUATION)
    lines = "".join(json.dumps(event) + "\n" for event in run.log)
    write_bytes_atomic(folder / "log.jsonl", lines.encode())
    counted_at = recommender.history.counted_at
    counted = {} if counted_at is None else {"counted_at": counted_at}
    manifest = {
        "format": FORMAT,
        "version": VERSION,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        **{name: getattr(run, name) for name in _SAID},
        **({"refit": run.refit} if run.refit else {}),
        **({"update": run.update} if run.update else {}),
        **({"warm_metrics": run.warm_metrics} if run.warm_metrics else {}),
        "data": {**run.data, "history": recommender.history.name, **counted},
        "scorer": recommender.scorer.metadata(),
        "files": {name: {"sha256": sha256_of(folder / name), "size": (folder / name).stat().st_size} for name in files},
    }
    write_bytes_atomic(folder / MANIFEST, checksummed_json(manifest))


def load_run(folder: Path) -> Run:
    """Return a run after checking every byte of it.

    Raises:
        RunFolderError: a file is missing, changed, truncated or inconsistent; the message names it.
    """
    manifest = read_manifest(folder)
    has_lists = EVALUATION in manifest["files"]
    for name in (*FILES, *([EVALUATION] if has_lists else [])):
        _verify(located(folder, name), manifest["files"].get(name))
    with _reading(located(folder, TENSORS)) as path:
        # Memory-mapped: what is not read of a large table is not in memory.
        tensors = {upgrade_tensor_name(name): value for name, value in _stored_tensors(path).items()}
    with _reading(located(folder, "users.parquet")) as path:
        user_ids = IdMap(_read_table(path)["id"].combine_chunks())
    with _reading(located(folder, "items.parquet")) as path:
        item_table = _read_table(path)
        items = _items_of(item_table)
        is_new = _flags(item_table, "new")
        known = len(items) - int(is_new.sum())
        if is_new[:known].any():
            raise DataError("items without an index of their own must come last")
        item_ids = items.ids if known == len(items) else IdMap(items.ids.ids.slice(0, known))
        titles = None if items.titles is None else items.titles.slice(0, known)
    with _reading(located(folder, "history.parquet")) as path:
        pairs_table = _read_table(path)
        indices = [pairs_table[name].combine_chunks() for name in ("user", "item")]
        if not all(pa.types.is_integer(column.type) for column in indices):
            raise DataError("indices must be integers")
        users, chosen = (column.to_numpy(zero_copy_only=False) for column in indices)
        name = str(manifest["data"].get("history", "history"))
        extra = {
            label: pairs_table[label].to_numpy() for label in ("part", "fitted") if label in pairs_table.column_names
        }
        labels, weights = _checked(extra, "part", np.int8, 3), _weights_of(pairs_table)
        described: dict[str, Any] = {"item_titles": titles, "name": name, "labels": labels, "weights": weights}
        counted_at = manifest["data"].get("counted_at")
        described["counted_at"] = float(counted_at) if isinstance(counted_at, int | float) else None
        whole = Interactions(users, chosen, user_ids, item_ids, **described)
        fitted = _checked(extra, "fitted", np.bool_, 2)
        history = whole if fitted is None else whole.rows(fitted)
    with _reading(located(folder, TENSORS)):
        scorer = restore_scorer(manifest["scorer"], tensors, history)
        recommender = Recommender(scorer, user_ids, item_ids, history, known=whole)
        prefix = "network."
        parameters = {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}
        for name, value in parameters.items():
            if value.is_floating_point() and not bool(torch.isfinite(value).all()):
                raise DataError(f"the parameter {name} holds a number that is not finite")
    if items.attributes.num_columns or known < len(items):
        with _reading(located(folder, "items.parquet")):
            recommender = replace(recommender, items=items, cold_items=_cold_of(item_table, known))
    lists = None
    if has_lists:
        with _reading(located(folder, EVALUATION)) as path:
            lists = _read_lists(path, len(item_ids))
    with _reading(located(folder, LOG)) as path:
        log = read_log(path.parent)
    said = {name: manifest[name] for name in _SAID}
    said |= {
        name: manifest[name] for name in ("warm_metrics", "refit", "update") if isinstance(manifest.get(name), dict)
    }
    return Run(recommender=recommender, parameters=parameters, log=log, lists=lists, **said)


def _history_columns(recommender: Recommender, ranks: Ranks) -> dict[str, pa.Array]:
    """Return every known interaction, its part where that is known, and whether it was fitted where not all were.

    What was fitted is the part of the known interactions that comes first, or all of them.
    """
    known, fitted = recommender.known, recommender.history
    first_user = 0 if known.block is None else known.block.first_user
    columns = {"user": pa.array(known.users + np.int32(first_user)), "item": pa.array(known.items)}
    if known.labels is not None:
        columns["part"] = pa.array(known.labels)
    if ranks.total(len(known) - len(fitted))[0]:
        columns["fitted"] = pa.array(np.arange(len(known)) < len(fitted))
    if fitted.weights is not None:  # what was not fitted counts nothing, and no weight of it is ever read
        columns["weight"] = pa.array(np.pad(fitted.weights, (0, len(known) - len(fitted)), constant_values=1))
    first = slice(len(fitted))
    if not (np.array_equal(known.users[first], fitted.users) and np.array_equal(known.items[first], fitted.items)):
        raise RunFolderError("the known interactions must begin with those the model was fitted on; pass parts.whole")
    return columns


def _checked(columns: dict[str, NDArray[Any]], name: str, kind: type, bound: int) -> NDArray[Any] | None:
    """Return a column of numbers below a bound, None where there is none."""
    if name not in columns:
        return None
    values = columns[name]
    if values.dtype != kind or (len(values) and not (values.min() >= 0 and values.max() < bound)):
        raise DataError(f"{name} must hold values below {bound} of type {np.dtype(kind)}; found {values.dtype}")
    return values


def _read_lists(path: Path, num_items: int) -> NDArray[np.int64]:
    """Return the evaluated lists (U, K), item indices or -1."""
    column = _read_table(path)["items"].combine_chunks()
    is_matrix = pa.types.is_fixed_size_list(column.type) and pa.types.is_integer(column.type.value_type)
    if not is_matrix or column.null_count or column.flatten().null_count:
        raise DataError(f"lists must be integers, as many in each; found {column.type}")
    items: NDArray[np.int64] = column.flatten().to_numpy(zero_copy_only=False).astype(np.int64)
    items = items.reshape(len(column), column.type.list_size)
    if items.size and not (items.min() >= -1 and items.max() < num_items):
        raise DataError(f"lists hold indices from {items.min()} to {items.max()}; expected -1..{num_items - 1}")
    return items


def _verify(path: Path, expected: dict[str, Any] | None) -> None:
    if expected is None:
        raise RunFolderError(f"{path.parent / MANIFEST} does not list {path.name}; the run is incomplete")
    if not path.is_file():
        raise RunFolderError(f"{path} is missing; the run is incomplete, copy the whole folder again")
    size = path.stat().st_size
    if size != expected["size"]:
        raise RunFolderError(f"{path} is damaged: {size} bytes found, {expected['size']} expected")
    if sha256_of(path) != expected["sha256"]:
        raise RunFolderError(f"{path} is damaged: its SHA-256 is not the one in {MANIFEST}")


@contextmanager
def _reading(path: Path) -> Iterator[Path]:
    """Yield the path of a file, and say which file is at fault if it cannot be used, whatever its reader raises."""
    try:
        yield path
    except Exception as error:
        reason = " ".join(str(error).split())[:300] or type(error).__name__
        raise RunFolderError(f"{path} does not hold what a run needs: {reason}") from error


def _titles_of(items: pa.Table) -> pa.Array | None:
    if "title" not in items.column_names:
        return None
    titles = items["title"].combine_chunks()
    if not (pa.types.is_string(titles.type) or pa.types.is_large_string(titles.type)):
        raise DataError(f"titles must be strings; found {titles.type}")
    return titles


def _weights_of(history: pa.Table) -> NDArray[np.float32] | None:
    if "weight" not in history.column_names:
        return None
    if history.schema.field("weight").type != pa.float32():
        raise DataError(f"weights must be numbers of 32 bits; found {history.schema.field('weight').type}")
    weights: NDArray[np.float32] = history["weight"].to_numpy()
    if not (np.isfinite(weights) & (weights > 0)).all():
        raise DataError("weights must be finite numbers above 0")
    return weights


def _item_columns(recommender: Recommender) -> dict[str, pa.Array]:
    """Return the columns of items.parquet."""
    columns, known = {"id": recommender.catalogue.ids}, len(recommender.item_ids)
    if recommender.titles is not None:
        columns["title"] = recommender.titles
    if recommender.items is not None:
        columns |= {f"{_ATTRIBUTE}{name}": values for name, values in recommender.items.columns.items()}
    if len(recommender.catalogue) > known:
        columns["new"] = pa.array(np.arange(len(recommender.catalogue)) >= known)
    cold = recommender.cold_items
    if cold is not None:
        counts = np.zeros(len(recommender.catalogue), dtype=np.int32)
        counts[cold.items] = np.diff(cold.weights.indptr)
        offsets = pa.array(np.concatenate([[0], np.cumsum(counts)]), pa.int32())
        columns["cold"] = pa.array(recommender.is_cold)
        for name, values in (("neighbours", cold.weights.indices), ("weights", cold.weights.data)):
            columns[name] = pa.ListArray.from_arrays(offsets, pa.array(values))
    return columns


def _items_of(table: pa.Table) -> Items:
    """Return the items in items.parquet."""
    names = [name for name in table.column_names if name.startswith(_ATTRIBUTE)]
    attributes = pa.table({name.removeprefix(_ATTRIBUTE): _attribute(table, name) for name in names})
    return Items(IdMap(table["id"].combine_chunks()), attributes, _titles_of(table))


def _attribute(table: pa.Table, name: str) -> pa.ChunkedArray:
    """Return a column of attributes, of a type that `Items` has, times within the calendar."""
    column, types = table[name], pa.types
    kind = column.type
    if types.is_date(kind) or types.is_timestamp(kind):
        times = column.cast(pa.timestamp("us", kind.tz), safe=False) if getattr(kind, "unit", "") == "ns" else column
        pc.min_max(times).as_py()
        return column
    single = kind.value_type if types.is_list(kind) else kind
    known = (types.is_boolean, types.is_integer, types.is_floating, types.is_string, types.is_large_string)
    if not any(is_of(single) for is_of in known):
        raise DataError(f"{name[:80]} has type {str(kind)[:80]}; attributes are booleans, numbers, strings or dates")
    return column


def _flags(table: pa.Table, name: str) -> NDArray[np.bool_]:
    """Return a column of booleans without gaps; one that is missing is all false."""
    if name not in table.column_names:
        return np.zeros(len(table), dtype=np.bool_)
    if not pa.types.is_boolean(table[name].type) or table[name].null_count:
        raise DataError(f"{name} must be true or false for every item; found {table[name].type}")
    flags: NDArray[np.bool_] = table[name].to_numpy()
    return flags


def _cold_of(table: pa.Table, known: int) -> ColdItems | None:
    """Return how cold items are scored, every index checked."""
    if "cold" not in table.column_names:
        return None
    items = np.flatnonzero(_flags(table, "cold"))
    lists = [table[name].combine_chunks() for name in ("neighbours", "weights")]
    for column, holds in zip(lists, (pa.types.is_integer, pa.types.is_floating), strict=True):
        if not (pa.types.is_list(column.type) and holds(column.type.value_type)) or column.flatten().null_count:
            raise DataError(f"neighbours and weights of cold items must be lists of numbers; found {column.type}")
    counts = [pc.list_value_length(each).to_numpy(zero_copy_only=False) for each in lists]
    neighbours, weights = (pc.list_flatten(each).to_numpy(zero_copy_only=False) for each in lists)
    if not np.array_equal(*counts) or counts[0].sum() != counts[0][items].sum():
        raise DataError("neighbours and weights of cold items do not match")
    if len(neighbours) and not (neighbours.min() >= 0 and neighbours.max() < known):
        raise DataError(f"neighbours of cold items must lie in 0..{known - 1}")
    if not (np.abs(weights) <= MOST).all():
        raise DataError(f"weights of cold items must be numbers of at most {MOST:g}")
    offsets = np.concatenate([[0], np.cumsum(counts[0][items])])
    return ColdItems(items, csr_array((weights.astype(np.float32), neighbours, offsets), shape=(len(items), known)))


def _read_table(path: Path) -> pa.Table:
    """Return a table with the column types it was written with; Parquet alone turns seconds into milliseconds."""
    found = pq.read_metadata(path)
    groups = [found.row_group(number) for number in range(found.num_row_groups)]
    chunks = [group.column(number) for group in groups for number in range(found.num_columns)]
    lengths = [_list_length(field) for field in pq.read_schema(path)]
    values = max(sum(chunk.num_values for chunk in chunks), found.num_rows * sum(lengths))
    size = max(sum(group.total_byte_size for group in groups), 8 * values)
    if size > max(_ALWAYS_READ, _EXPANSION * path.stat().st_size):
        raise DataError(f"{found.num_rows:,} rows ({size:,} bytes) in a file of {path.stat().st_size:,} bytes")
    table, metadata = pq.read_table(path), found.metadata or {}
    if b"ARROW:schema" in metadata:
        table = table.cast(pa.ipc.read_schema(pa.py_buffer(base64.b64decode(metadata[b"ARROW:schema"]))))
    table.validate(full=True)  # strings are UTF-8, offsets inside their buffers
    return table


def _list_length(field: pa.Field) -> int:
    """Return how many values each row of a column has, null or not; 1 where lists differ in length."""
    kind, is_fixed = field.type, pa.types.is_fixed_size_list(field.type)
    is_list = is_fixed or pa.types.is_list(kind) or pa.types.is_large_list(kind)
    if pa.types.is_nested(kind) and not (is_list and not pa.types.is_nested(kind.value_type)):
        raise DataError(f"the column {field.name[:80]!r} has type {str(kind)[:80]}")
    return kind.list_size if is_fixed else 1


def _write_table(
    target: Path, columns: dict[str, pa.Array], ranks: Ranks = ALONE, groups: Sequence[slice] = (slice(None),)
) -> None:
    """Write a table; of several ranks the first writes the rows of all, one after another in each group of rows."""
    table = pa.table(columns)
    if ranks.alone:
        with atomic_path(target) as path:
            pq.write_table(table, path)
        return
    with nullcontext() if ranks.rank else atomic_path(target) as path, ExitStack() as stack:
        writer = None if path is None else stack.enter_context(pq.ParquetWriter(path, table.schema))
        for group in groups:
            sink = pa.BufferOutputStream()
            with pa.ipc.new_stream(sink, table.schema) as stream:
                stream.write_table(table[group])
            for part in ranks.in_turn(np.frombuffer(sink.getvalue(), np.uint8)):
                if writer is not None:
                    writer.write_table(pa.ipc.open_stream(pa.py_buffer(part)).read_all())


def _write_tensors(target: Path, tensors: dict[str, Tensor], block: Block | None, ranks: Ranks) -> None:
    """Write tensors to one safetensors file; of several ranks each writes its users' rows, the first all other rows.

    The tensors `users` and `table` have a row for every user, and `table` then one for every item.
    """
    stored = {name: value.detach().cpu().contiguous().clone() for name, value in tensors.items()}
    if block is None:
        write_bytes_atomic(target, tensors_to_bytes(stored))
        return
    types = {torch.float32: "F32", torch.float64: "F64", torch.int64: "I64", torch.int32: "I32", torch.bool: "BOOL"}
    header, places, end = dict[str, Any](), dict[str, int](), 0
    for name in sorted(stored, key=lambda name: (-stored[name].element_size(), name)):
        value, others = stored[name], block.num_users - block.own_users if _by_user(name) else 0
        size = value.nbytes + others * value[:1].nbytes
        header[name] = {"dtype": types[value.dtype], "shape": [len(value) + others, *value.shape[1:]]}
        header[name]["data_offsets"] = [end, end + size]
        places[name], end = end, end + size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with ranks.together():
        if ranks.rank == 0:
            with open(target, "wb") as file:
                file.write(len(text).to_bytes(8, "little") + text)
                file.truncate(8 + len(text) + end)
    with ranks.together(), open(target, "r+b") as file:
        for name, value in stored.items():
            start, row = 8 + len(text) + places[name], value[:1].nbytes
            if _by_user(name):
                file.seek(start + block.first_user * row)
                file.write(value[: block.own_users].numpy().tobytes())
            if ranks.rank == 0:
                file.seek(start + (block.num_users * row if _by_user(name) else 0))
                file.write(value[block.own_users if _by_user(name) else 0 :].numpy().tobytes())
        file.flush()
        os.fsync(file.fileno())


def _stored_tensors(path: Path) -> dict[str, Tensor]:
    """Return the tensors of a file: in memory, aligned as when they were computed; those of a large file mapped."""
    return load_file(path) if path.stat().st_size > _MAPPED_BYTES else load_tensors(path.read_bytes())


def _by_user(name: str) -> bool:
    return name.rpartition(".")[2] in ("users", "table")
