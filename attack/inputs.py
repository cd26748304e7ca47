"""Input files that nobody means, for every reader: each is read, or refused in one line; no traceback, no hang.

A case is a set of files (one, a folder, a pattern, a database) and options to read them with. `changed` draws one from
a seed by changing a whole one; a part of them is searched with the coverage of the readers.
"""

import gzip
import io
import json
import os
import random
import shutil
import signal
import sqlite3
import sys
import tempfile
import time
import zipfile
import zlib
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from attack.regressions import Findings, described
from rankformer.errors import RankformerError

SECONDS = 20  # after which a reading counts as hanging
PIECES = (
    *(
        b"\0",
        b"\xff\xfe",
        b"\xef\xbb\xbf",
        b'"',
        b'""',
        b"\n",
        b"\r",
        b"\r\n",
        b"\n\n",
        b",,",
        b";",
        b"|",
        b"\t",
        b"::",
    ),
    *(b"9" * 19, b"9" * 400, b"-1", b"nan", b"inf", b"1e999", b"1e308", b"0x1", b"007", b"+1", b"1_000", b"-"),
    *(b"\\ud800", b"{", b"[", b"]}", b"null", b"true", b'{"a":' * 60, b"\xe9", b"\x80", b"\xed\xa0\x80", b"\xf0\x9f"),
    *(b"2020-01-01", b"0000-00-00", b"9999-12-31 23:59:59", b"2020-01-01T00:00:00+99:99", b"292277026597", b"\xc2\xa0"),
)
OPTIONS: dict[str, tuple[Any, ...]] = {
    "on_bad_row": ("skip",),
    "delimiter": (",", ";", "|", "tab", "::", " ", "ab"),
    "encoding": ("latin-1", "utf-16", "utf-8", "cp1252", "utf-16-le", "utf-7", "cp037", "idna", "punycode"),
    "header": (True, False),
    "format": ("csv", "tsv", "inter", "jsonl", "txt", "pairs", "adjacency", "parquet", "movielens", "amazon", "yelp"),
    "time_format": ("%d.%m.%Y %H:%M", "%Y", "%s", "%", "%Q"),
    "duplicates": ("merge",),
    "half_life": ("30d", "1s"),
    "min_weight": (0.5, 1e30),
    "k_core": (2, 50),
    "split": ("time", "leave-one-out", "user"),
    "test_days": (1.0, 1e9),
    "test_from": ("2020-01-01", "9999-12-31", "x"),
    "event": ("event", "time"),
    "event_weights": ({"buy": 2.0, "other": 0.0}, {"0": 1.0}),
    "max_rows": (5,),
    "max_line_bytes": (10,),
    "user": ("item", "", "0"),
    "title": ("title", "user"),
    "query": ("select * from log", "select 1", "select user, user from log", "drop table log", "("),
    "table": ("log", "x.y", '"'),
}


@dataclass(frozen=True)
class Case:
    """Files by name, what of them is DATA (a name, a pattern, `.` for the folder), and options to read it with."""

    files: dict[str, bytes]
    source: str
    options: dict[str, Any] = field(default_factory=dict)


def whole_cases() -> dict[str, Case]:
    """Return a right case of every format, packing, encoding, layout and source, by its name."""
    rows = [(f"u{number % 7}", f"i{number % 5}", number * 86400) for number in range(40)]
    text = "user,item,time,title,event\n" + "".join(f'{u},{i},{t},"Title, é {i}",buy\n' for u, i, t in rows)
    tabbed = "".join(f"{u}\t{i}\t{t}\n" for u, i, t in rows)
    objects = "".join(json.dumps({"user": u, "item": i, "time": t, "title": f"é {i}"}) + "\n" for u, i, t in rows)
    dated = "user;item;time;weight\n" + "".join(
        f"{u};{i};{n % 28 + 1}.1.2020;1,5\n" for n, (u, i, _) in enumerate(rows)
    )
    reviews = "".join(json.dumps({"reviewerID": u, "asin": i, "overall": 5.0}) + "\n" for u, i, _ in rows)
    yelp = "".join(
        json.dumps({"user_id": u, "business_id": i, "stars": 3, "date": "2020-01-01"}) + "\n" for u, i, _ in rows
    )
    singles: dict[str, bytes] = {
        "log.csv": text.encode(),
        "western.csv": text.encode("cp1252"),
        "wide.csv": text.encode("utf-16"),
        "dated.csv": dated.encode(),
        "log.csv.gz": gzip.compress(text.encode(), mtime=0),
        "log.csv.zip": _zipped("log.csv", text.encode()),
        "log.csv.zst": _zstd(text.encode()),
        "log.tsv": f"user\titem\ttime\n{tabbed}".encode(),
        "plain.tsv": tabbed.encode(),
        "log.inter": f"user_id:token\titem_id:token\ttimestamp:float\n{tabbed}".encode(),
        "log.jsonl": objects.encode(),
        "log.jsonl.gz": gzip.compress(objects.encode(), mtime=0),
        "pairs.txt": "".join(f"{t // 86400 % 7} {t // 86400 % 5}\n" for *_, t in rows).encode(),
        "lists.txt": b"".join(b"%d" % n + b" 1 2 3 4 5"[: 4 + n % 3 * 2] + b"\n" for n in range(9)),
        "log.parquet": _parquet(rows),
    }
    ratings = "".join(f"{n % 7}::{n % 5}::{n % 5 + 1}::{t}\n" for n, (*_, t) in enumerate(rows)).encode()
    csv = b"userId,movieId,rating,timestamp\n" + ratings.replace(b"::", b",")
    item = "item_id:token\tmovie_title:token_seq\n" + "".join(f"i{n}\tTitle é {n}\n" for n in range(5))
    folders: dict[str, tuple[dict[str, bytes], str]] = {
        "parts": ({name: text.encode() for name in ("train.csv", "valid.csv", "test.csv")}, "."),
        "partitions": ({f"day={n}/part.csv": text.encode() for n in range(3)}, "."),
        "pattern": ({f"log-{n}.csv": text.encode() for n in range(3)}, "log-*.csv"),
        "recbole": ({"x.inter": singles["log.inter"], "x.item": item.encode()}, "."),
        "ml-1m": ({"ratings.dat": ratings, "movies.dat": b"".join(b"%d::Title \xe9::x\n" % n for n in range(5))}, "."),
        "ml-20m": ({"ratings.csv": csv, "movies.csv": b"movieId,title\n1,A\n2,B\n"}, "."),
        "ml-100k": ({"u.data": ratings.replace(b"::", b"\t"), "u.item": b"1|A\xe9|x\n2|B|y\n"}, "."),
        "yelp": ({"yelp_academic_dataset_review.json": yelp.encode()}, "."),
        "sqlite": ({"log.db": _sqlite(rows)}, "sqlite:log.db"),
        "duckdb": ({"log.duckdb": _duckdb(rows)}, "duckdb:log.duckdb"),
    }
    cases = {name: Case({name: data}, name) for name, data in singles.items()}
    cases |= {name: Case(files, source) for name, (files, source) in folders.items()}
    cases["dated.csv"] = Case(cases["dated.csv"].files, "dated.csv", {"time_format": "%d.%m.%Y"})
    cases["amazon"] = Case({"reviews.json": reviews.encode()}, "reviews.json", {"format": "amazon"})
    return cases | {
        name: Case(cases[name].files, cases[name].source, {"table": "log"}) for name in ("sqlite", "duckdb")
    }


def changed(rng: random.Random, case: Case) -> Case:
    """Return a case with some bytes and, now and then, an option changed; inside a packing as often as outside."""
    files = dict(case.files)
    for name in {rng.choice(sorted(files)) for _ in range(rng.randint(1, 2))}:
        inside, data = rng.random() < 0.7 and name.endswith(".gz"), bytearray(files[name])
        if inside:
            try:
                data = bytearray(gzip.decompress(data))
            except (OSError, EOFError, zlib.error):  # it was changed outside before
                inside = False
        for _ in range(rng.randint(1, 4)):
            change(rng, data)
        files[name] = gzip.compress(bytes(data), 1, mtime=0) if inside else bytes(data)
    options = dict(case.options)
    while rng.random() < 0.3:
        name = rng.choice(sorted(OPTIONS))
        options[name] = rng.choice(OPTIONS[name])
    return Case(files, case.source, options)


def change(rng: random.Random, data: bytearray) -> None:
    """Change a few bytes in place."""
    place, how = rng.randrange(len(data)) if data else 0, rng.random()
    if how < 0.25:
        data[place : place + 1] = bytes([rng.randrange(256)])
    elif how < 0.4:
        del data[place : place + rng.randint(1, 30)]
    elif how < 0.55:
        data[place:place] = data[place : place + 30] * rng.randint(1, 3)
    elif how < 0.62:
        del data[place:]
    else:
        data[place:place] = rng.choice(PIECES)


def outcome(case: Case, folder: Path) -> str:
    """Read a case in a fresh folder; return "read", "refused", or what else happened."""
    from rankformer.data.source import DataSource

    place = folder / "case"
    try:
        for name, data in case.files.items():
            (place / name).parent.mkdir(parents=True, exist_ok=True)
            (place / name).write_bytes(data)
        kind, sign, rest = case.source.partition(":")
        source = f"{kind}:{place / rest}" if sign else str(place / case.source)
        with _limited():
            log = DataSource(source=source, **case.options).load().train
        for column in (log.user_ids.ids, log.item_ids.ids, log.item_titles):
            if column is not None:
                column.validate(full=True)  # what is read can be used: strings are UTF-8
        return "read"
    except RankformerError as error:
        return "refused" if "\n" not in str(error) and len(str(error)) < 1500 else f"a long message, {described(error)}"
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        return described(error)
    finally:
        shutil.rmtree(place, ignore_errors=True)


class _Hang(BaseException):
    """A reading that does not end."""


@contextmanager
def _limited() -> Iterator[None]:
    def stop(*_: Any) -> None:
        raise _Hang(f"more than {SECONDS} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def inputs(folder: Path, count: int, seed: int) -> dict[str, Any]:
    """Read changed cases, a part of them found by coverage; return how many were read and refused, and the rest."""
    rng, cases, found = random.Random(seed), whole_cases(), Counter[str]()
    findings = Findings("inputs", lambda case: outcome(Case(**case), folder), fewer=("options", "files"))
    slowest = 0.0
    for name, case in cases.items():
        if (got := outcome(case, folder)) != "read":
            raise RuntimeError(f"{name} as it is: {got}")
    slow = {"duckdb": 0.02, "sqlite": 0.3, "parts": 0.3, "partitions": 0.3, "pattern": 0.3}  # to open, or several files
    weights = [slow.get(name, 1.0) for name in cases]
    deadline = time.monotonic() + float(os.environ.get("ATTACK_SECONDS", "inf"))
    corpus, covered = list(cases.values()), _Lines()
    for number in range(count):
        if time.monotonic() > deadline:
            break
        guided = number % 8 == 0
        base = rng.choice(corpus) if guided else rng.choices(list(cases.values()), weights)[0]
        case = changed(rng, base)
        started = time.process_time()
        with covered if guided else _nothing():
            got = outcome(case, folder)
        slowest = max(slowest, time.process_time() - started)
        found[got if got in ("read", "refused") else "unexpected"] += 1
        if guided and covered.grew() and len(corpus) < 2000:
            corpus.append(case)
        findings.add(vars(case), got)
    return {
        "inputs": found.total(),
        "read": found["read"],
        "refused": found["refused"],
        "unexpected": list(findings.found.values()),
        "formats": len(cases),
        "found by coverage": len(corpus) - len(cases),
        "lines reached": len(covered.seen),
        "slowest s": slowest,
    }


@contextmanager
def _nothing() -> Iterator[None]:
    yield


class _Lines:
    """The lines of the readers that were reached; `grew` says whether any were new since it was asked."""

    def __init__(self) -> None:
        self.seen: set[tuple[str, int]] = set()
        self.before = 0

    def __enter__(self) -> None:
        sys.settrace(self._call)

    def __exit__(self, *error: object) -> None:
        sys.settrace(None)

    def grew(self) -> bool:
        before, self.before = self.before, len(self.seen)
        return self.before > before

    def _call(self, frame: Any, event: str, argument: Any) -> Any:
        return self._line if "rankformer/data" in frame.f_code.co_filename else None

    def _line(self, frame: Any, event: str, argument: Any) -> Any:
        if event == "line":
            self.seen.add((frame.f_code.co_filename, frame.f_lineno))
        return self._line


def _zipped(name: str, data: bytes) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(zipfile.ZipInfo(name), data)
    return stream.getvalue()


def _zstd(data: bytes) -> bytes:
    import pyarrow as pa

    stream = pa.BufferOutputStream()
    with pa.CompressedOutputStream(stream, "zstd") as packed:
        packed.write(data)
    return stream.getvalue().to_pybytes()


def _parquet(rows: list[tuple[str, str, int]]) -> bytes:
    import pyarrow as pa
    import pyarrow.parquet as pq

    users, items, times = (list(column) for column in zip(*rows, strict=True))
    stream = pa.BufferOutputStream()
    table = pa.table({"user": pa.array(users).dictionary_encode(), "item": items, "time": pa.array(times)})
    pq.write_table(table.append_column("title", pa.array([f"é {item}" for item in items])), stream)
    return stream.getvalue().to_pybytes()


def _sqlite(rows: list[tuple[str, str, int]]) -> bytes:
    connection = sqlite3.connect(":memory:")
    connection.execute("create table log (user text, item text, time integer)")
    connection.executemany("insert into log values (?, ?, ?)", rows)
    connection.commit()
    return connection.serialize()


def _duckdb(rows: list[tuple[str, str, int]]) -> bytes:
    import duckdb

    with tempfile.TemporaryDirectory() as folder:
        with duckdb.connect(f"{folder}/log.duckdb") as connection:
            connection.execute('create table log ("user" varchar, item varchar, "time" bigint)')
            connection.executemany("insert into log values (?, ?, ?)", rows)
        return Path(f"{folder}/log.duckdb").read_bytes()
