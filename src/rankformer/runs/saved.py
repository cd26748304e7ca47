"""The run folder: a trained model as files that can be checked, and that cannot execute.

    manifest.json            format version, model and settings, seed, versions, data, protocol, metrics, scorer,
                             SHA-256 and size of every other file, and a checksum of itself
    embeddings.safetensors   the tensors of the scorer: users (n, d), items (m, d) and fold_in.*, or those of another
                             kind; the learned parameters as network.*
    users.parquet            raw user ids, position = index
    items.parquet            raw item ids, position = index, and titles if known
    history.parquet          training interactions by index
    log.jsonl                training log: one line per epoch and validation

Files are written to a folder of their own and fsynced; it is renamed to `.staged`, and from then on its files count in
place of those outside, where they are moved next, the manifest last. A folder without a manifest is not a run.
Loading verifies every checksum, shape and index range before use.
"""

import base64
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import torch
from safetensors.torch import load as load_tensors
from safetensors.torch import save as tensors_to_bytes
from torch import Tensor

from rankformer.data.id_map import IdMap
from rankformer.data.interactions import Interactions
from rankformer.errors import DataError, RunFolderError
from rankformer.evaluation.protocol import installed_versions
from rankformer.files import atomic_path, locked, sha256_of, sync_folder, write_bytes_atomic
from rankformer.runs.checkpoint import is_checkpoint, remove_checkpoint
from rankformer.runs.checksums import checksummed_json
from rankformer.runs.legacy import upgrade_tensor_name
from rankformer.runs.manifest import FILES, FORMAT, MANIFEST, STAGED, TENSORS, VERSION, located, read_manifest
from rankformer.runs.ownership import CHECKPOINT, TRAINING, check_ours, put_in_place, remove_files, sweep
from rankformer.runs.training_log import LOG, read_log
from rankformer.scoring.recommender import Recommender
from rankformer.scoring.stored import SCORERS, restore_scorer

_ALWAYS_READ = 2**28  # bytes that a table may have, however small its file is
_EXPANSION = 1000  # times that a larger one may be larger than its file
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
    protocol: dict[str, Any] = field(default_factory=dict)  # of those metrics
    versions: dict[str, str] = field(default_factory=installed_versions)  # of the packages that made it


def save_run(folder: Path, run: Run) -> None:
    """Write a run, and remove the checkpoint of its training; an older run in the folder stays until this is whole.

    Raises:
        RunFolderError: another process writes to the folder, or something in it has the name of a file of a run.
    """
    kind = run.recommender.scorer.metadata()["kind"]
    if kind not in SCORERS:
        raise RunFolderError(f"a {kind!r} scorer cannot be saved; known are {', '.join(SCORERS)}")
    with locked(folder):
        check_ours(folder)
        sweep(folder)
        staging = folder / f"{STAGED}.tmp"
        try:
            _write_files(staging, run)
            os.replace(staging, folder / STAGED)  # from here on this is the run
        finally:
            remove_files(staging)
        sync_folder(folder)
        put_in_place(folder)
        if is_checkpoint(folder / CHECKPOINT):
            remove_checkpoint(folder / CHECKPOINT)
        remove_files(folder / TRAINING)


def _write_files(folder: Path, run: Run) -> None:
    """Write every file of a run, the manifest last, each of them safely on disk."""
    recommender = run.recommender
    tensors = recommender.scorer.tensors() | {f"network.{name}": value for name, value in run.parameters.items()}
    stored = {name: value.detach().cpu().contiguous().clone() for name, value in tensors.items()}
    write_bytes_atomic(folder / TENSORS, tensors_to_bytes(stored))
    _write_table(folder / "users.parquet", {"id": recommender.user_ids.ids})
    items = {"id": recommender.item_ids.ids}
    if recommender.titles is not None:
        items["title"] = recommender.titles
    _write_table(folder / "items.parquet", items)
    history = recommender.history
    _write_table(folder / "history.parquet", {"user": pa.array(history.users), "item": pa.array(history.items)})
    lines = "".join(json.dumps(event) + "\n" for event in run.log)
    write_bytes_atomic(folder / "log.jsonl", lines.encode())
    manifest = {
        "format": FORMAT,
        "version": VERSION,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        **{name: getattr(run, name) for name in _SAID},
        "data": {**run.data, "history": history.name},
        "scorer": recommender.scorer.metadata(),
        "files": {name: {"sha256": sha256_of(folder / name), "size": (folder / name).stat().st_size} for name in FILES},
    }
    write_bytes_atomic(folder / MANIFEST, checksummed_json(manifest))


def load_run(folder: Path) -> Run:
    """Return a run after checking every byte of it.

    Raises:
        RunFolderError: a file is missing, changed, truncated or inconsistent; the message names it.
    """
    manifest = read_manifest(folder)
    for name in FILES:
        _verify(located(folder, name), manifest["files"].get(name))
    with _reading(located(folder, TENSORS)) as path:
        tensors = {upgrade_tensor_name(name): value for name, value in load_tensors(path.read_bytes()).items()}
    with _reading(located(folder, "users.parquet")) as path:
        user_ids = IdMap(_read_table(path)["id"].combine_chunks())
    with _reading(located(folder, "items.parquet")) as path:
        items = _read_table(path)
        item_ids, titles = IdMap(items["id"].combine_chunks()), _titles_of(items)
    with _reading(located(folder, "history.parquet")) as path:
        table = _read_table(path)
        indices = [table[name].combine_chunks() for name in ("user", "item")]
        if not all(pa.types.is_integer(column.type) for column in indices):
            raise DataError("indices must be integers")
        users, items = (column.to_numpy(zero_copy_only=False) for column in indices)
        name = str(manifest["data"].get("history", "history"))
        history = Interactions(users, items, user_ids, item_ids, item_titles=titles, name=name)
    with _reading(folder / TENSORS):
        scorer = restore_scorer(manifest["scorer"], tensors, history)
        recommender = Recommender(scorer, user_ids, item_ids, history)
        prefix = "network."
        parameters = {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}
        for name, value in parameters.items():
            if value.is_floating_point() and not bool(torch.isfinite(value).all()):
                raise DataError(f"the parameter {name} holds a number that is not finite")
    with _reading(located(folder, LOG)) as path:
        log = read_log(path.parent)
    said = {name: manifest[name] for name in _SAID}
    return Run(recommender=recommender, parameters=parameters, log=log, **said)


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


def _read_table(path: Path) -> pa.Table:
    """Return a table with the column types it was written with; Parquet alone turns seconds into milliseconds."""
    found = pq.read_metadata(path)
    groups = [found.row_group(number) for number in range(found.num_row_groups)]
    size = max(sum(group.total_byte_size for group in groups), 8 * found.num_rows * found.num_columns)
    if size > max(_ALWAYS_READ, _EXPANSION * path.stat().st_size):
        raise DataError(f"{found.num_rows:,} rows ({size:,} bytes) in a file of {path.stat().st_size:,} bytes")
    table, metadata = pq.read_table(path), found.metadata or {}
    if b"ARROW:schema" in metadata:
        table = table.cast(pa.ipc.read_schema(pa.py_buffer(base64.b64decode(metadata[b"ARROW:schema"]))))
    table.validate(full=True)  # strings are UTF-8, offsets inside their buffers
    return table


def _write_table(target: Path, columns: dict[str, pa.Array]) -> None:
    with atomic_path(target) as path:
        pq.write_table(pa.table(columns), path)
