"""Shard a log that no memory holds, with DuckDB: every step is a query over tables on disk that spills where it must.

Steps and results are those of `DataSource.load`: read, ids in ascending order become indices, merge duplicates, drop
light interactions, k-core, split. The random splits draw the same values for the same rows. Interactions are then
written by user, those of one user in the order in which they were read.
"""

import hashlib
import json
import os
import shutil
import tempfile
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet

from rankformer.data.shards import FORMAT, ITEMS, MANIFEST, PARTS, VERSION, checksum_of, shard_folder
from rankformer.data.source import SPLIT_SETTINGS, DataSource
from rankformer.data.splits import (
    check_split,
    cuts,
    first_test_time,
    labels_by_value,
    no_times,
    random_thresholds,
    shares_before,
)
from rankformer.data.weights import half_life_of
from rankformer.errors import ConfigError, DataError, extra_module
from rankformer.files import atomic_path, sha256_of, write_bytes_atomic

LEAST_MEMORY, OWN_MEMORY = 512 << 20, 384 << 20
_SIDES = {"user": "users", "item": "items"}
_BATCH = 1 << 18
_SORTED = 1 << 26  # rows that are put in order at once: what a sort spills is bounded by them
_CANONICAL = "bool_and(try_cast({0} as bigint) is not null and cast(try_cast({0} as bigint) as varchar) = {0})"
_RAW = {"row": pa.int64(), "user": None, "item": None, "time": pa.int64(), "weight": pa.float32()}
_RAW |= {"title": pa.string(), "label": pa.int8()}


def shard_log(source: DataSource, shards: int, out: Path, memory_limit: int) -> dict[str, Any]:
    """Write the log that a source describes as shards, and return the manifest.

    Args:
        source: the log, how to read, clean and split it.
        shards: how many.
        out: folder for them, new or empty.
        memory_limit: bytes that sharding may use; what does not fit is spilled to a folder beside `out`.
    """
    if shards < 1:
        raise ConfigError(f"shards={shards}: expected a number from 1")
    if memory_limit < LEAST_MEMORY:
        raise ConfigError(f"memory_limit={memory_limit}: sharding needs at least {LEAST_MEMORY} bytes (512MiB)")
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise ConfigError(f"{out} exists and is not an empty folder; choose another --out")
    check_split(source.split, source.parts, source.test_from, source.test_days)
    duckdb = extra_module("duckdb", "sql")
    out.parent.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix=f".{out.name}.", dir=out.parent))
    try:
        with closing(duckdb.connect(str(work / "log.duckdb"))) as connection:
            # The rest is for this process, the batches that it reads and writes, and what DuckDB takes beyond its
            # grant: with a billion rows both are two thirds of it. A thread needs 125 MB of its own.
            granted = memory_limit - max(OWN_MEMORY, memory_limit // 2)
            connection.execute(f"set memory_limit = '{granted >> 20}MiB'")
            connection.execute(f"set threads = {min(os.cpu_count() or 1, max(1, granted >> 27))}")
            connection.execute(f"set temp_directory = '{str(work / 'spill').replace(chr(39), chr(39) * 2)}'")
            connection.execute("set enable_progress_bar = false")
            prepared = _Prepared(connection, source)
            prepared.read()
            prepared.clean()
            prepared.split()
            return prepared.write(shards, out)
    except duckdb.Error as problem:
        line = " ".join(str(problem).split())[:300]
        raise DataError(f"{source.source}: sharding failed ({line}); raise --memory-limit or free disk space") from None
    finally:
        shutil.rmtree(work, ignore_errors=True)


class _Prepared:
    """A log in DuckDB: `log` (row, u, i, and time, weight, label where known); u, i are rowids of `users`, `items`."""

    def __init__(self, connection: Any, source: DataSource) -> None:
        self.connection, self.source = connection, source
        self.id_types: dict[str, pa.DataType] = {}
        self.has: list[str] = []

    def run(self, query: str) -> list[Any]:
        """Return the rows that a query gives."""
        return list(self.connection.execute(query).fetchall())

    def one(self, query: str) -> Any:
        """Return the first value that a query gives."""
        return self.run(query)[0][0]

    def remake(self, table: str, query: str) -> None:
        """Put what a query makes in the place of a table."""
        self.run(f"create table made as {query}")
        self.run(f"drop table if exists {table}")
        self.run(f"alter table made rename to {table}")

    def columns(self, without: str = "") -> str:
        """Return what there is of each interaction beside its user and item, for a query."""
        return "".join(f", {name}" for name in self.has if name != without)

    def read(self) -> None:
        """Read the log and number its users and items."""
        rows, filled, is_text = 0, dict.fromkeys(_RAW, 0), True
        for log in self.source.stream():
            table, size = log.table.table, log.table.table.num_rows
            columns = {name: pa.nulls(size, kind or pa.string()) for name, kind in _RAW.items()}
            columns["row"] = pa.array(np.arange(rows, rows + size))
            if log.label is not None:
                columns["label"] = pa.array(np.full(size, log.label, dtype=np.int8))
            for name in table.column_names:
                columns[name] = table[name].cast(getattr(table[name].type, "value_type", table[name].type))
                if (
                    name in ("user", "item")
                    and self.id_types.setdefault(name, columns[name].type) != columns[name].type
                ):
                    raise DataError(
                        f"{name} ids are {self.id_types[name]} and then {columns[name].type}; store them in one way"
                    )
            for name, column in columns.items():
                filled[name] += size - column.null_count
            if rows and pa.types.is_floating(columns["time"].type):
                self.run("alter table raw alter time type double")
            self._append("raw", pa.table(columns), new=not rows)
            rows, is_text = rows + size, is_text and log.table.is_text
        # As in memory: times and weights count where every interaction has one; text that is all integers is integers.
        self.has = [name for name in ("time", "weight", "label") if filled[name] == rows]
        key = {}
        for role, side in _SIDES.items():
            key[role] = role
            if is_text and self.one(f"select {_CANONICAL.format(role)} from raw"):
                key[role], self.id_types[role] = f"cast({role} as bigint)", pa.int64()
            self.run(f"create table {side} as select distinct {key[role]} as id from raw order by id")
        joined = f"from raw join users on {key['user']} = users.id join items on {key['item']} = items.id"
        index = "cast(users.rowid as integer) as u, cast(items.rowid as integer) as i"
        self.remake("log", f"select row, {index}{self.columns()} {joined}")
        joined = f"from raw join items on {key['item']} = items.id where title <> '' group by 1"
        self.remake("titles", f"select cast(items.rowid as integer) as i, arg_min(title, row) as title {joined}")
        self.run("drop table raw")

    def _append(self, name: str, table: pa.Table, new: bool) -> None:
        connection = self.connection.cursor()  # another, so that a stream that is being read stays open
        connection.register("batch", table)
        connection.execute(f"create table {name} as from batch" if new else f"insert into {name} from batch")
        connection.unregister("batch")

    def clean(self) -> None:
        """Merge duplicates, drop light interactions and what is outside the k-core, and number anew what is left."""
        source = self.source
        if source.duplicates == "merge":
            merged = {"time": "max(time) as time", "weight": "cast(sum(cast(weight as double)) as float) as weight"}
            columns = "".join(f", {merged.get(name, name)}" for name in self.has)
            label = ", label" if "label" in self.has else ""
            self.remake("log", f"select min(row) as row, u, i{columns} from log group by u, i{label}")
        if source.min_weight is not None:
            if "weight" not in self.has:
                raise DataError(f"{source.name} has no weights, so min_weight cannot be applied; name a weight column")
            self.run(f"delete from log where weight < cast({source.min_weight!r} as float)")
            self._check_left(f"no weight of at least {source.min_weight}; use a smaller min_weight")
        if source.k_core is not None:
            self.remake("pairs", "select distinct u, i from log")
            few = [f"{c} in (select {c} from pairs group by {c} having count(*) < {source.k_core})" for c in ("u", "i")]
            while self.one(f"delete from pairs where {few[0]} or {few[1]}"):
                pass
            left = "u in (select u from pairs) and i in (select i from pairs)"
            self.remake("log", f"select * from log where {left}")
            self.run("drop table pairs")
            self._check_left(f"no {source.k_core}-core: every interaction would be dropped; use a smaller k")
        if source.min_weight is not None or source.k_core is not None:
            for side, old in (("users", "u"), ("items", "i")):
                self.remake("used", f"select distinct {old} as old from log order by old")
                self.remake(side, f"select id from used join {side} on {side}.rowid = old order by old")
                for table in ("log", "titles") if old == "i" else ("log",):
                    columns = f"* exclude (old) replace (cast(used.rowid as integer) as {old})"
                    self.remake(table, f"select {columns} from {table} join used on {old} = old")
            self.run("drop table used")

    def _check_left(self, problem: str) -> None:
        if not self.one("select count(*) from log"):
            raise DataError(f"{self.source.name} has {problem}")

    def split(self) -> None:
        """Give each interaction the label of its part, and its weight the decay with age."""
        source, by = self.source, self.source.split
        if "label" in self.has:
            source.refuse("already split", *SPLIT_SETTINGS)
        else:
            parts = check_split(by, source.parts, source.test_from, source.test_days)
            if by in ("last", "time") and "time" not in self.has:
                raise no_times(by)
            if by == "random":
                self._draw("label", parts)
            else:
                if by == "random-per-user":
                    self._draw("value", parts)
                self.remake("log", f"select row, u, i{self.columns()}, {self._label(parts)} as label from log")
            self.has.append("label")
        if source.half_life is not None:
            newest = dict(self.run("select label, max(time) from log group by label")) if "time" in self.has else {}
            times = np.array(list(newest.values())) if newest else None
            half_life = half_life_of(times, source.half_life, source.name)
            latest = " ".join(f"when {label} then {time!r}" for label, time in newest.items())
            factor = f"greatest(pow(2, (time - case label {latest} end) / cast({half_life!r} as double)), pow(2, -20))"
            decayed = f"cast({'weight' if 'weight' in self.has else '1'} * {factor} as float) as weight"
            self.remake("log", f"select row, u, i{self.columns('weight')}, {decayed} from log")
            self.has = [*(name for name in self.has if name != "weight"), "weight"]

    def _draw(self, column: str, parts: tuple[float, float, float]) -> None:
        """Add the raw value of the generator that the split in memory draws for each row, or the label it leads to."""
        total, seed = self.one("select count(*) from log"), self.source.split_seed
        thresholds = random_thresholds(total, parts, seed) if column == "label" else None
        generator, new = np.random.PCG64(seed), True
        rows = f"select row, u, i{self.columns()} from log where row >= {{0}} and row < {{0}} + {_SORTED} order by row"
        for first in range(0, self.one("select max(row) from log") + 1, _SORTED):
            for batch in self.connection.sql(rows.format(first)).to_arrow_reader(_BATCH):
                values = np.atleast_1d(generator.random_raw(batch.num_rows))
                drawn = values if thresholds is None else labels_by_value(values, thresholds)
                self._append("drawn", pa.table(batch).append_column(column, pa.array(drawn)), new)
                new = False
        self.run("drop table log")
        self.run("alter table drawn rename to log")

    def _label(self, parts: tuple[float, float, float]) -> str:
        """Return the part of a row as SQL, for the splits that look at users or times."""
        source = self.source
        if source.split == "last":
            rank, count = (
                "row_number() over (partition by u order by time desc, row desc)",
                "count(*) over (partition by u)",
            )
            last = f"when {rank} = 1 and {count} >= 2 then 2 when {rank} = 2 and {count} >= 3 then 1"
            return f"cast(case {last} else 0 end as tinyint)"
        if source.split == "random-per-user":
            size, least = "count(*) over (partition by u)", int(parts[0] > 0)
            ends = [f"floor({size} * cast({part!r} as double) + 0.5 + 1e-9)" for part in (parts[0], 1 - parts[2])]
            first = f"greatest({ends[0]}, {least})"
            rank = "row_number() over (partition by u order by value, row)"
            return f"cast({rank} > {first} as tinyint) + cast({rank} > greatest({first}, {ends[1]}) as tinyint)"
        before = "true"
        if source.test_from is not None or source.test_days is not None:
            span = self.run("select min(time), max(time) from log")[0]
            first_test = first_test_time(np.array(span), source.test_from, source.test_days)
            before, parts = f"time < cast({first_test!r} as double)", shares_before(parts)
        size, label = self.one(f"select count(*) from log where {before}"), "0"
        for cut in cuts(np.int64(size), parts):
            at = f"select time from log where {before} order by time limit 1 offset {max(cut, 1) - 1}"
            label += f" + cast(time > {self.one(at)!r} as tinyint)" if cut else " + 1"
        return f"cast(case when {before} then {label} else 2 end as tinyint)"

    def blocks(self, shards: int) -> list[int]:
        """Return where the users of each shard begin, and their number at the end: equal sums of train interactions."""
        users, total = self.one("select count(*) from users"), self.one("select count(*) from log where label = 0")
        if users < shards:
            raise ConfigError(f"{shards} shards of {users} users; use fewer --shards")
        bounds, passed = [0], 0
        counts = "select u, count(*) filter (label = 0) as number from log group by u order by u"
        for batch in self.connection.sql(counts).to_arrow_reader(_BATCH):
            index, sums = batch["u"].to_numpy(), passed + np.cumsum(batch["number"].to_numpy())
            wanted = total * np.arange(len(bounds), shards) / shards
            wanted = wanted[wanted <= sums[-1]]
            bounds += (index[np.searchsorted(sums, wanted)] + 1).tolist()
            passed = int(sums[-1])
        bounds += [users] * (shards + 1 - len(bounds))
        for number in range(1, shards):  # a user of many interactions leaves none to the next: each has one at least
            bounds[number] = min(max(bounds[number], bounds[number - 1] + 1), users - shards + number)
        return [*bounds[:shards], users]

    def write(self, shards: int, out: Path) -> dict[str, Any]:
        """Write the shards, the manifest last, and return it."""
        bounds = self.blocks(shards)
        counts = dict(self.run("select label, count(*) from log group by label"))
        digests = {name: hashlib.sha256() for name in (*_SIDES.values(), *PARTS)}
        title = ", title" if self.one("select count(*) from titles") else ""
        item_ids = f"select id{title} from items left join titles on items.rowid = i order by items.rowid"
        items = self._write(out / ITEMS, item_ids, {}, digests["items"], self.id_types["item"])
        settings = self.source.absolute().model_dump(mode="json")
        whole = [settings, items["sha256"], bounds[-1], sorted(counts.items())]
        log = hashlib.sha256(json.dumps(whole).encode()).hexdigest()
        told, entries = {"log": log, "shards": str(shards)}, []
        for number, (first, last) in enumerate(pairwise(bounds)):
            folder = out / shard_folder(number, shards)
            users = f"select id from users where rowid >= {first} and rowid < {last} order by rowid"
            written = self._write(folder / "users.parquet", users, told, digests["users"], self.id_types["user"])
            files = {"users.parquet": written}
            for label, part in enumerate(PARTS):
                columns, chosen = f"u as user, i as item{self.columns('label')}", f"u >= {first} and u < {last}"
                rows = f"select {columns} from log where {chosen} and label = {label} order by u, row"
                files[f"{part}.parquet"] = self._write(folder / f"{part}.parquet", rows, told, digests[part])
            entries.append({"first_user": first, "num_users": last - first, "files": files})
        told_of_all = "".join(digest.hexdigest() for digest in digests.values())
        content = {
            "format": FORMAT,
            "version": VERSION,
            "name": self.source.name,
            "log": log,
            "fingerprint": hashlib.sha256(told_of_all.encode()).hexdigest(),
            "num_users": bounds[-1],
            "num_items": items["rows"],
            "interactions": {part: counts.get(label, 0) for label, part in enumerate(PARTS)},
            "items": items,
            "shards": entries,
            "source": settings,
        }
        manifest = {**content, "checksum": checksum_of(content)}
        write_bytes_atomic(out / MANIFEST, (json.dumps(manifest, indent=1) + "\n").encode())
        return manifest

    def _write(
        self, path: Path, query: str, told: dict[str, str], digest: Any, id_type: pa.DataType | None = None
    ) -> dict[str, Any]:
        """Write what a query gives as a Parquet file, its rows into a digest; return its entry of the manifest.

        A digest sees one row after another, so that it does not depend on where shards begin.
        """
        stream, rows = self.connection.sql(query).to_arrow_reader(_BATCH), 0
        kinds = {"id": id_type, "title": pa.string()}
        schema = pa.schema([(f.name, kinds.get(f.name) or f.type) for f in stream.schema], metadata=told)
        with atomic_path(path) as temporary, pyarrow.parquet.ParquetWriter(temporary, schema) as writer:
            for batch in stream:
                table = pa.table(batch).cast(schema)
                writer.write_table(table)
                if id_type is None:
                    lines = np.empty(table.num_rows, [(name, table[name].to_numpy().dtype) for name in schema.names])
                    for name in schema.names:
                        lines[name] = table[name].to_numpy()
                    digest.update(lines.tobytes())
                else:
                    for name in schema.names:
                        digest.update("".join(f"{value}\0" for value in table[name].to_pylist()).encode())
                rows += table.num_rows
        return {"sha256": sha256_of(path), "size": path.stat().st_size, "rows": rows}
