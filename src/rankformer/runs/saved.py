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

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray
from torch import Tensor

from rankformer.data.id_map import IdMap
from rankformer.data.interactions import Interactions
from rankformer.data.parts import Parts
from rankformer.errors import DataError, RunFolderError, is_out_of_memory
from rankformer.evaluation.evaluator import DEFAULT_METRICS, Evaluation, evaluate, ranks_of
from rankformer.evaluation.metrics import parse_metrics
from rankformer.evaluation.protocol import installed_versions
from rankformer.files import locked, sha256_of, sync_folder, write_bytes_atomic
from rankformer.graph.collectives import Ranks
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
from rankformer.runs.stored_items import cold_items_of, flags_of, item_columns, items_of
from rankformer.runs.tables import read_table, read_tensors, write_table, write_tensors
from rankformer.runs.training_log import LOG, read_log
from rankformer.scoring.recommender import Recommender
from rankformer.scoring.stored import SCORERS, restore_scorer

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
    write_tensors(folder / TENSORS, tensors, recommender.history.block, ranks)
    write_table(folder / "users.parquet", {"id": recommender.user_ids.ids}, ranks)
    known = _history_columns(recommender, ranks)
    fitted = len(recommender.history)
    write_table(folder / "history.parquet", known, ranks, [slice(0, fitted), slice(fitted, None)])
    if ranks.rank:
        return
    write_table(folder / "items.parquet", item_columns(recommender))
    if run.lists is not None:
        flat = pa.array(run.lists.astype(np.int32).ravel())
        write_table(folder / EVALUATION, {"items": pa.FixedSizeListArray.from_arrays(flat, run.lists.shape[1])})
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
        tensors = {upgrade_tensor_name(name): value for name, value in read_tensors(path).items()}
    with _reading(located(folder, "users.parquet")) as path:
        user_ids = IdMap(read_table(path)["id"].combine_chunks())
    with _reading(located(folder, "items.parquet")) as path:
        item_table = read_table(path)
        items = items_of(item_table)
        is_new = flags_of(item_table, "new")
        known = len(items) - int(is_new.sum())
        if is_new[:known].any():
            raise DataError("items without an index of their own must come last")
        item_ids = items.ids if known == len(items) else IdMap(items.ids.ids.slice(0, known))
        titles = None if items.titles is None else items.titles.slice(0, known)
    with _reading(located(folder, "history.parquet")) as path:
        pairs_table = read_table(path)
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
            recommender = replace(recommender, items=items, cold_items=cold_items_of(item_table, known))
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
    column = read_table(path)["items"].combine_chunks()
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
        if is_out_of_memory(error):
            raise  # the file may well be right
        reason = " ".join(str(error).split())[:300] or type(error).__name__
        raise RunFolderError(f"{path} does not hold what a run needs: {reason}") from error


def _weights_of(history: pa.Table) -> NDArray[np.float32] | None:
    if "weight" not in history.column_names:
        return None
    if history.schema.field("weight").type != pa.float32():
        raise DataError(f"weights must be numbers of 32 bits; found {history.schema.field('weight').type}")
    weights: NDArray[np.float32] = history["weight"].to_numpy()
    if not (np.isfinite(weights) & (weights > 0)).all():
        raise DataError("weights must be finite numbers above 0")
    return weights
