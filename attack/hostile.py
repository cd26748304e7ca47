"""Run folders made to harm, every checksum right: what a forger would put where a run is expected.

`BY_HAND` names each kind of harm once, `TO_A_BLEND` those to a refitted blend with attributes and cold items;
`at_random` puts values that cannot be meant into random places of a manifest.
"""

import base64
import json
import os
import random
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from safetensors.torch import load_file, save_file

from attack.report import BELOW
from attack.service import peak, usage
from rankformer.errors import RunFolderError
from rankformer.files import sha256_of
from rankformer.runs.checksums import checksummed_json
from rankformer.runs.manifest import EVALUATION, FILES, MANIFEST, TENSORS

Harm = Callable[[Path], None]
DEEP = "[" * 5000 + "]" * 5000


def rewrite(folder: Path, change: Callable[[dict[str, Any]], Any] = lambda manifest: None) -> None:
    """Write the manifest again with every checksum right, after a change."""
    manifest = json.loads((folder / MANIFEST).read_bytes())
    del manifest["checksum"]
    for name in (*FILES, *([EVALUATION] if (folder / EVALUATION).exists() else [])):
        manifest["files"][name] = {"sha256": sha256_of(folder / name), "size": (folder / name).stat().st_size}
    change(manifest)
    (folder / MANIFEST).write_bytes(checksummed_json(manifest))


def _set(*path: str | int, to: Any) -> Harm:
    def harm(folder: Path) -> None:
        def change(manifest: dict[str, Any]) -> None:
            place: Any = manifest
            for step in path[:-1]:
                place = place[step]
            place[path[-1]] = to

        rewrite(folder, change)

    return harm


def _log(line: str) -> Harm:
    def harm(folder: Path) -> None:
        (folder / "log.jsonl").write_bytes(line.encode("latin-1") + b"\n")
        rewrite(folder)

    return harm


def _tensors(change: Callable[[dict[str, torch.Tensor]], Any]) -> Harm:
    def harm(folder: Path) -> None:
        tensors = load_file(folder / TENSORS)
        change(tensors)
        save_file(tensors, folder / TENSORS)
        rewrite(folder)

    return harm


def _table(name: str, change: Callable[[pa.Table], pa.Table]) -> Harm:
    def harm(folder: Path) -> None:
        pq.write_table(change(pq.read_table(folder / name)), folder / name)
        rewrite(folder)

    return harm


def _poke(name: str, row: int, value: float) -> Harm:
    return _tensors(lambda tensors: tensors[name].__setitem__(row, value))


def _no_utf8(table: pa.Table) -> pa.Table:
    raw = [b"\xff\xfe%d" % row for row in range(len(table))]
    ids = pa.array(raw, pa.binary()).view(pa.string())
    return table.set_column(0, "id", ids)


def _write_bad_schema(name: str, text: bytes) -> Harm:
    def harm(folder: Path) -> None:
        table = pq.read_table(folder / name)
        with pq.ParquetWriter(folder / name, table.schema, store_schema=False) as writer:
            writer.write_table(table)
            writer.add_key_value_metadata({"ARROW:schema": text.decode("latin-1")})
        rewrite(folder)

    return harm


def _many_rows(table: pa.Table) -> pa.Table:
    zeros = pa.array(np.zeros(40_000_000, np.int32))
    return pa.table({"user": zeros, "item": zeros})


def _many_neighbours(table: pa.Table) -> pa.Table:
    offsets = pa.array([0] * len(table) + [40_000_000], pa.int32())
    lists = pa.ListArray.from_arrays(offsets, pa.array(np.zeros(40_000_000, np.int32)))
    return table.set_column(table.column_names.index("neighbours"), "neighbours", lists)


BY_HAND: dict[str, Harm] = {
    **{f"log {line[:12]}": _log(line) for line in ("1", "[]", '"x"', "null", "{}", '{"event": 1}', DEEP, "\xff{}")},
    **{
        f"{'.'.join(path)} = {str(value)[:20]} ({number})": _set(*path, to=value)
        for path, values in {
            ("seed",): (-1, 2**63, 10**400, 1.5, True, "1", None),
            ("created",): (5, [], "x" * 5000),
            ("metrics",): ({"ndcg@20": "x"}, {"ndcg@20": []}, {"ndcg@20": 1e300}, {"ndcg@20": 10**400}),
            ("versions",): ({"torch": 5}, {"torch": None}),
            ("settings",): ({"a": 10**400}, {"a": json.loads("[" * 50 + "]" * 50)}, {"a": "x" * 10**6}),
            ("data",): ({"a": 1e300}, {"a": {"b": 10**400}}),
            ("data", "source"): ("x" * 20_000, 5, [], {"a": 10**400}),
            ("data", "source", "event_weights"): (5, "x", {"view": "x"}, {"view": 1e300}, {"view": None}),
            ("data", "fingerprint"): (5, [], None),
            ("protocol",): ({"k": [10**400]}, {"k": "x" * 20_000}),
            ("scorer",): ({}, {"kind": 5}, {"kind": "pickle"}, {"kind": "embeddings", "fold_in": 7}),
            ("scorer", "fold_in", "power"): ("x", [], None, True, 1e300, "1.0", 10**400),
            ("scorer", "fold_in", "own_embedding"): ("no", 1, None, []),
            ("scorer", "fold_in", "rule"): ("exec", 5, None, []),
            ("files", "users.parquet"): (None, {}, {"size": "1", "sha256": "x"}, {"size": -1, "sha256": "0" * 64}),
        }.items()
        for number, value in enumerate(values)
    },
    "inf in users": _poke("users", 0, float("inf")),
    "3e38 in users": _poke("users", 0, 3e38),
    "3e38 in items": _poke("items", 0, 3e38),
    "nan in fold-in": _poke("fold_in.vectors", 0, float("nan")),
    "nan in parameters": _tensors(lambda tensors: tensors.update({"network.table": torch.tensor([float("nan")])})),
    "half embeddings": _tensors(lambda tensors: tensors.update(users=tensors["users"].half())),
    "ids that are not UTF-8": _table("users.parquet", _no_utf8),
    "item ids that are not UTF-8": _table("items.parquet", _no_utf8),
    "titles that are lists": _table("items.parquet", lambda t: t.set_column(1, "title", pa.array([["a"]] * len(t)))),
    "ids twice": _table("users.parquet", lambda table: pa.concat_tables([table.slice(1), table.slice(1, 1)])),
    "a history of nobody": _table("history.parquet", lambda t: t.set_column(0, "user", pa.array([9**9] * len(t)))),
    "forty million rows in a few kilobytes": _table("history.parquet", _many_rows),
    **{
        f"schema {text[:8]!r} in {name}": _write_bad_schema(name, text)
        for name in ("users.parquet", "items.parquet", "history.parquet")
        for text in (b"!!!", base64.b64encode(b"\xff" * 40), base64.b64encode(b"x"), b"A" * 400)
    },
}


def _column(name: str, column: str, change: Callable[[list[Any]], list[Any]], kind: Any = None) -> Harm:
    def put(table: pa.Table) -> pa.Table:
        values = pa.array(change(table[column].to_pylist()), kind or table.schema.field(column).type)
        return table.set_column(table.column_names.index(column), column, values)

    return _table(name, put)


def _first(value: Any) -> Callable[[list[Any]], list[Any]]:
    return lambda values: [value, *values[1:]]


def _last(value: Any) -> Callable[[list[Any]], list[Any]]:
    return lambda values: [*values[:-1], value]


_MEMBER = ("scorer", "members", 0)
TO_A_BLEND: dict[str, Harm] = {
    **{
        f"{'.'.join(map(str, path))} = {str(value)[:20]} ({number})": _set(*path, to=value)
        for path, values in {
            ("scorer", "members"): (None, {}, [], [None], [{}] * 65, "x"),
            (*_MEMBER, "weight"): (-1, 0, 1e300, 10**400, "1", None, True),
            (*_MEMBER, "name"): (5, None, "x" * 20_000),
            (*_MEMBER, "scorer"): ({}, [], {"kind": "blend", "members": []}, {"kind": "pickle"}, {"kind": "ease"}),
            (*_MEMBER, "scorer", "fold_in"): (5, {"rule": "exec"}, {}),
            (*_MEMBER, "more"): (1,),
            ("refit",): ([], "x", {}, {"interactions": "5"}, {"interactions": 5, "seconds": 1e300}),
            ("refit", "interactions"): (-1, 1.5, None, 10**400),
            ("refit", "epochs"): (-1, "5", 10**400),
            ("refit", "members"): (10**400, json.loads("[" * 50 + "]" * 50)),
            ("warm_metrics",): ([], {"ndcg@20": "x"}, {"ndcg@20": 1e300}),
        }.items()
        for number, value in enumerate(values)
    },
    "no tensors of a member": _tensors(lambda tensors: tensors.pop("member.0.users")),
    "nan in a member": _poke("member.0.users", 0, float("nan")),
    "3e38 in a member": _poke("member.0.items", 0, 3e38),
    "members that differ": _tensors(lambda t: t.update({"member.0.items": t["member.0.items"][1:].clone()})),
    "lists of a stranger": _column(EVALUATION, "items", _first([10**6] * 20)),
    "lists with gaps": _column(EVALUATION, "items", _first(None)),
    "lists that are strings": _column(EVALUATION, "items", lambda values: ["x"] * len(values), pa.string()),
    "a list of 2**26 nulls": _table(
        EVALUATION, lambda t: pa.table({"items": pa.array([None], pa.list_(pa.int32(), 2**26))})
    ),
    "a part that is none": _column("history.parquet", "part", _first(3)),
    "parts with gaps": _column("history.parquet", "part", _first(None)),
    "parts that are strings": _column("history.parquet", "part", lambda values: ["x"] * len(values), pa.string()),
    "fitted that are numbers": _column("history.parquet", "fitted", lambda values: [5] * len(values), pa.int8()),
    "a weight of nan": _column("history.parquet", "weight", _first(float("nan"))),
    "a weight below 0": _column("history.parquet", "weight", _first(-1.0)),
    "new items first": _column("items.parquet", "new", _first(True)),
    "a neighbour that is none": _column("items.parquet", "neighbours", _last([10**6] * 3)),
    "neighbours without weights": _column("items.parquet", "neighbours", _last([])),
    "neighbours that are strings": _column(
        "items.parquet", "neighbours", lambda v: [[]] * len(v), pa.list_(pa.string())
    ),
    "cold weights of inf": _column("items.parquet", "weights", lambda v: [[float("inf")] * len(each) for each in v]),
    "forty million neighbours in a few kilobytes": _table("items.parquet", _many_neighbours),
    "attributes that are bytes": _column("items.parquet", "attribute.brand", lambda v: [b"\xff"] * len(v), pa.binary()),
    "attributes in attributes": _column(
        "items.parquet", "attribute.brand", lambda v: [{"a": 1}] * len(v), pa.struct({"a": pa.int8()})
    ),
    "a date after all days": _column("items.parquet", "attribute.since", lambda v: [2**30] * len(v), pa.date32()),
    "more attributes than items": _table("items.parquet", lambda t: pa.concat_tables([t, t])),
}


def at_random(count: int, seed: int) -> Iterator[dict[str, Any]]:
    """Yield cases: a number beyond all bounds, or nesting without end, somewhere in the manifest."""
    rng = random.Random(seed)
    places = ("settings", "data", "protocol", "metrics", "versions", "scorer", "files", "seed", "model", "created")
    for number in range(count):
        value: Any = rng.choice((10**400, -1e300, 1e39, json.loads("[" * 40 + "]" * 40), "x" * 20_000))
        within = "".join("[" if rng.random() < 0.5 else "{" for _ in range(rng.randint(0, 3)))
        place = rng.choice(places)
        nested = place in ("settings", "data", "protocol", "scorer") and rng.random() < 0.7
        yield {"path": [place, f"k{number}"] if nested else [place], "within": within, "value": value}


def harm_of(case: dict[str, Any]) -> Harm:
    """Return the harm of a case: by hand it has a name, at random a path and a value within lists and mappings."""
    if "name" in case:
        return (BY_HAND | TO_A_BLEND)[case["name"]]
    value = case["value"]
    for sign in case["within"]:
        value = [value] if sign == "[" else {"x": value}
    return _set(*case["path"], to=value)


def measured(case: dict[str, Any], folder: Path) -> tuple[str, float, float]:
    """Do the harm of a case to a run in a folder, written when it is missing; return the outcome, its time and memory.

    These are processor seconds and megabytes; what is refused beyond the bounds of the campaign is not fine either.
    """
    from tests.serving.runs import write_full_run, write_run

    is_blend, pid = case.get("name") in TO_A_BLEND, os.getpid()
    run = folder / ("blend" if is_blend else "run")
    if not run.exists():
        (write_full_run if is_blend else write_run)(run)
    place = harmed(run, folder, harm_of(case))
    before, started = usage(pid)[1], time.process_time()
    peak(pid)
    got = outcome(place)
    seconds, megabytes = time.process_time() - started, peak(pid) - before
    for name, seen in {"slowest s": seconds, "memory MB": megabytes}.items():
        if got == "refused" and seen >= BELOW["folders"][name]:
            got = f"{name} beyond its bound: {seen:.1f}"
    return got, seconds, megabytes


def harmed(run: Path, work: Path, harm: Harm) -> Path:
    """Return a harmed copy of a run."""
    folder = Path(shutil.copytree(run, work / "harmed", dirs_exist_ok=True))
    harm(folder)
    return folder


def outcome(folder: Path) -> str:
    """Return "refused", or how a harmed run was taken: "loaded", or the error that was not a refusal; remove it."""
    from rankformer.serving.model import load_served_model

    try:
        load_served_model(folder)
    except RunFolderError as error:
        return "refused" if "\n" not in str(error) and len(str(error)) < 600 else f"long: {error}"
    except Exception as error:
        return f"{type(error).__name__}: {error}"[:200]
    finally:
        shutil.rmtree(folder)
    return "loaded"
