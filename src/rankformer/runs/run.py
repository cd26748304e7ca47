"""The run folder: a trained model as files that can be checked, and that cannot execute.

    manifest.json            format version, model and settings, seed, versions, data, protocol, metrics,
                             SHA-256 and size of every other file, and a seal over itself
    embeddings.safetensors   users (n, d) and items (m, d), or what else scores as scorer.*; the learned parameters as
                             network.*, and what embedding other users needs as fold_in.*
    users.parquet            raw user ids, position = index
    items.parquet            raw item ids, position = index, and titles if known
    history.parquet          training pairs by index
    log.jsonl                one line per epoch and validation

Files are written under temporary names, fsynced and renamed, the manifest last: a folder without one is not a run.
Loading verifies every checksum, shape and index range before use.
"""

import base64
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq
import torch
from safetensors import SafetensorError
from safetensors.torch import load as load_tensors
from safetensors.torch import save_file
from torch import Tensor

from rankformer.data.id_map import IdMap
from rankformer.data.interactions import Interactions
from rankformer.scoring.embeddings import Embeddings
from rankformer.errors import DataError, RunFolderError
from rankformer.files import atomic_path, sealed_json, sha256_of, unseal_json, write_bytes_atomic
from rankformer.scoring.aspect_scorer import AspectScorer
from rankformer.scoring.fold_in import Constant, FoldIn, WeightedSum, check_tensors
from rankformer.scoring.item_scorer import ItemScorer
from rankformer.scoring.least_squares_fold_in import LeastSquares
from rankformer.scoring.rank_fold_in import RankFoldIn
from rankformer.scoring.recommender import Recommender
from rankformer.scoring.top_k import Scorer

T = TypeVar("T")

FORMAT = "rankformer-run"
VERSION = 1
MANIFEST = "manifest.json"
FILES = ("embeddings.safetensors", "users.parquet", "items.parquet", "history.parquet", "log.jsonl")
_RULES: dict[str, type[FoldIn]] = {kind.rule: kind for kind in (RankFoldIn, WeightedSum, LeastSquares, Constant)}
_EMBEDDINGS: dict[str, Any] = {"kind": "embeddings"}  # also of runs from before there was another kind
_PARTS = {"model": str, "seed": int} | dict.fromkeys(
    ("settings", "versions", "data", "metrics", "protocol", "files"), dict
)


@dataclass(frozen=True, eq=False)
class Run:
    """What a run folder holds.

    Attributes:
        model: registered name of the method.
        settings: its full settings.
        seed: seed of the training run.
        recommender: ids, history and what scores: final embeddings, weights between items, or several latents of each.
        parameters: the learned parameters, by name.
        log: events of the training.
        data: where the parts came from and their fingerprints.
        metrics: of the test part, empty when it was not evaluated.
        protocol: of those metrics.
        versions: of the packages that made it.
    """

    model: str
    settings: dict[str, Any]
    seed: int
    recommender: Recommender
    parameters: dict[str, Tensor] = field(default_factory=dict)
    log: list[dict[str, Any]] = field(default_factory=list)
    data: dict[str, Any] = field(default_factory=dict)
    metrics: dict[str, float] = field(default_factory=dict)
    protocol: dict[str, Any] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)


def is_run(folder: Path) -> bool:
    """Whether the folder holds a finished run."""
    return (folder / MANIFEST).is_file()


def save_run(folder: Path, run: Run) -> None:
    """Write a run; an older run in the same folder stops counting before its files are replaced."""
    recommender = run.recommender
    scorer = recommender.scorer
    if not isinstance(scorer, Embeddings | ItemScorer | AspectScorer):
        raise RunFolderError(f"{run.model}: only models made of embeddings, item weights or aspects can be saved")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / MANIFEST).unlink(missing_ok=True)
    if isinstance(scorer, Embeddings):
        tensors, described = {"users": scorer.users, "items": scorer.items}, _EMBEDDINGS
    else:
        tensors, described = {f"scorer.{name}": value for name, value in scorer.tensors().items()}, scorer.numbers()
    tensors |= {f"network.{name}": value for name, value in run.parameters.items()}
    rule = recommender.fold_in
    tensors |= {f"fold_in.{name}": value for name, value in (rule.tensors() if rule else {}).items()}
    with atomic_path(folder / "embeddings.safetensors") as path:
        save_file({name: value.detach().cpu().contiguous().clone() for name, value in tensors.items()}, path)
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
        "model": run.model,
        "settings": run.settings,
        "seed": run.seed,
        "versions": run.versions,
        "data": {**run.data, "history": history.name},
        "metrics": run.metrics,
        "protocol": run.protocol,
        "scorer": described,
        "fold_in": {"rule": rule.rule, **rule.numbers()} if rule else None,
        "files": {name: {"sha256": sha256_of(folder / name), "size": (folder / name).stat().st_size} for name in FILES},
    }
    for name in (*FILES, MANIFEST):
        for leftover in folder.glob(f".{name}.*.tmp"):  # of a process that was killed while writing
            leftover.unlink(missing_ok=True)
    write_bytes_atomic(folder / MANIFEST, sealed_json(manifest))


def read_manifest(folder: Path) -> dict[str, Any]:
    """Return the checked manifest of a run folder, without reading the other files."""
    if not folder.is_dir():
        raise RunFolderError(f"{folder} is not a folder; give the folder that `rankformer train --out` made")
    if not is_run(folder):
        unfinished = (folder / "checkpoint").is_dir()
        hint = "training has not finished, go on with --resume" if unfinished else "it is not a run folder"
        raise RunFolderError(f"{folder} has no {MANIFEST}: {hint}")
    manifest = unseal_json(folder / MANIFEST)
    if manifest.get("format") != FORMAT or manifest.get("version") != VERSION:
        found = f"{manifest.get('format')} version {manifest.get('version')}"
        raise RunFolderError(f"{folder / MANIFEST}: found {found}, this package reads {FORMAT} version {VERSION}")
    for part, kind in _PARTS.items():
        if not isinstance(manifest.get(part), kind):
            raise RunFolderError(f"{folder / MANIFEST} does not say its {part}; it is not a run this package wrote")
    return manifest


def load_run(folder: Path) -> Run:
    """Return a run after checking every byte of it.

    Raises:
        RunFolderError: a file is missing, changed, truncated or inconsistent; the message names it.
    """
    manifest = read_manifest(folder)
    for name in FILES:
        _verify(folder / name, manifest["files"].get(name))
    tensors = _guarded(folder / FILES[0], lambda path: load_tensors(path.read_bytes()))
    user_ids = _guarded(folder / "users.parquet", lambda path: IdMap(_column(path, "id")))
    items = _guarded(folder / "items.parquet", _read_table)
    item_ids = _guarded(folder / "items.parquet", lambda path: IdMap(items["id"].combine_chunks()))
    titles = _guarded(folder / "items.parquet", lambda path: _titles_of(items))

    def history_of(path: Path) -> Interactions:
        columns = [_column(path, name) for name in ("user", "item")]
        if not all(pa.types.is_integer(column.type) for column in columns):
            raise DataError("indices must be whole numbers")
        pairs = [column.to_numpy(zero_copy_only=False) for column in columns]
        name = str(manifest["data"].get("history", "history"))
        return Interactions(pairs[0], pairs[1], user_ids, item_ids, item_titles=titles, name=name)

    history = _guarded(folder / "history.parquet", history_of)
    described = manifest.get("scorer", _EMBEDDINGS)
    scorer = _guarded(folder / FILES[0], lambda path: _scorer_of(described, tensors, history))
    fold_in = _guarded(folder / FILES[0], lambda path: _fold_in_of(manifest.get("fold_in"), tensors, scorer))
    recommender = _guarded(
        folder / FILES[0], lambda path: Recommender(scorer, user_ids, item_ids, history, fold_in=fold_in)
    )
    return Run(
        model=manifest["model"],
        settings=manifest["settings"],
        seed=manifest["seed"],
        recommender=recommender,
        parameters=_named(tensors, "network."),
        log=_guarded(folder / "log.jsonl", lambda path: [json.loads(line) for line in path.read_bytes().splitlines()]),
        data=manifest["data"],
        metrics=manifest["metrics"],
        protocol=manifest["protocol"],
        versions=manifest["versions"],
    )


def _verify(path: Path, expected: Any) -> None:
    if not isinstance(expected, dict) or not {"size", "sha256"} <= expected.keys():
        raise RunFolderError(f"{path.parent / MANIFEST} does not list {path.name}; the run is incomplete")
    if not path.is_file():
        raise RunFolderError(f"{path} is missing; the run is incomplete, copy the whole folder again")
    size = path.stat().st_size
    if size != expected["size"]:
        raise RunFolderError(f"{path} is damaged: {size} bytes found, {expected['size']} expected")
    if sha256_of(path) != expected["sha256"]:
        raise RunFolderError(f"{path} is damaged: its SHA-256 is not the one in {MANIFEST}")


def _guarded(path: Path, read: Callable[[Path], T]) -> T:
    """Return what `read` makes of a file, or say which file is at fault."""
    try:
        return read(path)
    except (DataError, SafetensorError, pa.ArrowException, KeyError, ValueError) as error:
        raise RunFolderError(f"{path} does not hold what a run needs: {error}") from error


def _scorer_of(
    record: Any, tensors: dict[str, Tensor], history: Interactions
) -> Embeddings | ItemScorer | AspectScorer:
    """Return what a manifest says the scores come from, checked."""
    if not isinstance(record, dict):
        raise DataError("its manifest does not say what scores")
    if record.get("kind") == _EMBEDDINGS["kind"]:
        return _embeddings_of(tensors)
    kind = AspectScorer if record.get("kind") == AspectScorer.kind else ItemScorer
    try:
        return kind.restore(_named(tensors, "scorer."), record, history)
    except TypeError as error:
        raise DataError(f"its scorer is incomplete: {error}") from error


def _embeddings_of(tensors: dict[str, Tensor]) -> Embeddings:
    embeddings = Embeddings(tensors["users"], tensors["items"])
    kinds = {embeddings.users.dtype, embeddings.items.dtype}
    if kinds not in ({torch.float32}, {torch.float64}) or not embeddings.is_finite():
        raise DataError("embeddings must be finite numbers, all of 32 or all of 64 bits")
    return embeddings


def _fold_in_of(record: Any, tensors: dict[str, Tensor], scorer: Scorer) -> FoldIn | None:
    """Return the rule that a manifest describes; None where there is none."""
    if record is None:
        return None
    if not isinstance(record, dict) or record.get("rule") not in _RULES:
        raise DataError(f"its fold-in rule is none of {', '.join(_RULES)}")
    if not isinstance(scorer, Embeddings):
        raise DataError("it has a fold-in rule but no vectors to fold into")
    parts = _named(tensors, "fold_in.")
    check_tensors(parts, scorer.num_items, scorer.items.shape[1])
    try:
        return _RULES[record["rule"]].restore(parts, record)
    except TypeError as error:
        raise DataError(f"its fold-in rule is incomplete: {error}") from error


def _named(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}


def _titles_of(items: pa.Table) -> pa.Array | None:
    if "title" not in items.column_names:
        return None
    titles = items["title"].combine_chunks()
    if not (pa.types.is_string(titles.type) or pa.types.is_large_string(titles.type)):
        raise DataError(f"titles must be texts; found {titles.type}")
    return titles


def _column(path: Path, name: str) -> pa.Array:
    return _read_table(path)[name].combine_chunks()


def _read_table(path: Path) -> pa.Table:
    """Return a table with the column types it was written with; Parquet alone turns seconds into milliseconds."""
    table, metadata = pq.read_table(path), pq.read_metadata(path).metadata or {}
    if b"ARROW:schema" not in metadata:
        return table
    return table.cast(pa.ipc.read_schema(pa.py_buffer(base64.b64decode(metadata[b"ARROW:schema"]))))


def _write_table(target: Path, columns: dict[str, pa.Array]) -> None:
    with atomic_path(target) as path:
        pq.write_table(pa.table(columns), path)
