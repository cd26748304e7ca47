"""Sharding out of core gives what reading in memory gives, and shards that are not whole are refused by name."""

import json
import shutil

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rankformer.data import sharding
from rankformer.data.sharding import LEAST_MEMORY, shard_log
from rankformer.data.shards import MANIFEST, PARTS, ShardedLog, shard_folder
from rankformer.data.source import DataSource
from rankformer.errors import ConfigError, DataError

pytest.importorskip("duckdb")


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    """A messy csv: string ids, duplicates, equal times, users with one interaction, titles."""
    draw = np.random.default_rng(5)
    users, items = draw.integers(0, 60, 900) ** 2 // 60, draw.integers(0, 40, 900)
    path = tmp_path_factory.mktemp("log") / "clicks.csv"
    lines = [
        f"u{user:03d},{item},{draw.integers(1_600_000_000, 1_600_000_300)},{draw.integers(1, 6)},Item {item}"
        for user, item in zip(users, items, strict=True)
    ]
    path.write_text("\n".join(["user,item,time,weight,title", *lines]) + "\n")
    return path


def interactions_of(log):
    """Every interaction as a sorted list of raw ids, time, weight and title."""
    return sorted(map(tuple, log.to_arrow().to_pandas().itertuples(index=False)))


SETTINGS = [
    {},
    {"split": "random", "split_seed": 3, "parts": (0.5, 0.25, 0.25)},
    {"split": "random", "parts": (1.0, 0.0, 0.0)},
    {"split": "random-per-user", "split_seed": 1},
    {"split": "last"},
    {"split": "time"},
    {"split": "time", "test_from": "1600000200"},
    {"duplicates": "merge", "k_core": 4, "min_weight": 2.0, "split": "last"},
    {"k_core": 6, "split": "random-per-user"},
    {"half_life": "1h", "split": "time"},
    {"duplicates": "merge", "time": "", "weight": ""},
]


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
@pytest.mark.parametrize("shards", [1, 3])
def test_shards_hold_what_the_reader_in_memory_gives(log, tmp_path, settings, shards, monkeypatch):
    if shards > 1:  # rows are put in order in several blocks, one of them partly filled
        monkeypatch.setattr(sharding, "_SORTED", 128)
    source = DataSource(source=log, **settings)
    shard_log(source, shards, tmp_path / "out", LEAST_MEMORY)
    expected, found = source.load(), DataSource(source=tmp_path / "out").load()
    for part, in_memory, sharded in zip(PARTS, expected, found, strict=True):
        assert interactions_of(sharded) == interactions_of(in_memory), part
    assert found.train.user_ids == expected.train.user_ids
    assert found.train.item_ids == expected.train.item_ids
    assert found.train.user_ids.ids.type == pa.string()
    assert found.train.item_ids.ids.type == pa.int64()


@pytest.mark.parametrize("kind", ["parquet", "duckdb", "sqlite", "folder", "glob", "jsonl"])
def test_every_kind_of_source_is_sharded(log, tmp_path, kind):
    import duckdb

    options, whole = {}, DataSource(source=log)
    table = pa.table(dict(zip(("user", "item", "time"), _columns(log), strict=True)))
    if kind == "folder":
        for part, rows in (("train", table[:500]), ("valid", table[500:600]), ("test", table[600:])):
            pq.write_table(rows, tmp_path / f"{part}.parquet")
        data = tmp_path
    elif kind == "glob":
        pq.write_table(table[:300], tmp_path / "a.parquet")
        pq.write_table(table[300:], tmp_path / "b.parquet")
        data = tmp_path / "*.parquet"
    elif kind in ("duckdb", "sqlite"):
        data, options = f"{kind}:{tmp_path / 'log.db'}", {"table": "clicks"}
        if kind == "duckdb":
            with duckdb.connect(str(tmp_path / "log.db")) as connection:
                connection.register("table_", table)
                connection.execute("create table clicks as select * from table_")
        else:
            import sqlite3

            with sqlite3.connect(tmp_path / "log.db") as connection:
                connection.execute("create table clicks (user text, item integer, time integer)")
                rows = zip(*(column.to_pylist() for column in table.columns), strict=True)
                connection.executemany("insert into clicks values (?, ?, ?)", rows)
    elif kind == "jsonl":
        data = tmp_path / "log.jsonl"
        data.write_text("\n".join(json.dumps(row) for row in table.to_pylist()))
    else:
        data = tmp_path / "log.parquet"
        pq.write_table(table, data)
    source = DataSource(source=data, **options)
    shard_log(source, 2, tmp_path / "out", LEAST_MEMORY)
    found = DataSource(source=tmp_path / "out").load()
    for in_memory, sharded in zip(source.load(), found, strict=True):
        assert interactions_of(sharded) == interactions_of(in_memory)
    assert len(found.whole) == len(whole.load_log())


def _columns(log):
    whole = DataSource(source=log).load_log()
    return whole.user_ids.take(whole.users), whole.item_ids.take(whole.items), whole.times


def test_blocks_are_contiguous_balanced_and_the_fingerprint_is_the_same_for_any_number(log, tmp_path):
    source = DataSource(source=log)
    manifests = [shard_log(source, shards, tmp_path / f"{shards}", LEAST_MEMORY) for shards in (1, 4)]
    assert manifests[0]["fingerprint"] == manifests[1]["fingerprint"]
    entries = manifests[1]["shards"]
    assert [entry["first_user"] for entry in entries] == np.cumsum([0] + [e["num_users"] for e in entries])[
        :-1
    ].tolist()
    sizes = [entry["files"]["train.parquet"]["rows"] for entry in entries]
    largest = np.bincount(source.load().train.users).max()
    assert max(sizes) - sum(sizes) / 4 <= largest
    other = shard_log(DataSource(source=log, split_seed=1), 1, tmp_path / "other", LEAST_MEMORY)
    assert other["fingerprint"] != manifests[0]["fingerprint"]


def test_one_shard_is_read_without_the_others(log, tmp_path):
    shard_log(DataSource(source=log), 3, tmp_path / "out", LEAST_MEMORY)
    opened = ShardedLog.open(tmp_path / "out", shards=3)
    for number in (0, 2):
        path = tmp_path / "out" / shard_folder(number, 3) / "train.parquet"
        path.write_bytes(bytes(path.stat().st_size))
    shard, entry = opened.read_shard(1), opened.manifest.shards[1]
    assert (shard.first_user, len(shard.user_ids)) == (entry.first_user, entry.num_users)
    assert len(shard.parts["train"]["user"]) == entry.files["train.parquet"].rows
    with pytest.raises(DataError, match=r"train\.parquet is damaged"):
        opened.read_shard(0)


@pytest.fixture(scope="module")
def sharded(log, tmp_path_factory):
    folder = tmp_path_factory.mktemp("sharded")
    shard_log(DataSource(source=log), 2, folder / "two", LEAST_MEMORY)
    shard_log(DataSource(source=log), 3, folder / "three", LEAST_MEMORY)
    shard_log(DataSource(source=log, split_seed=9), 2, folder / "other", LEAST_MEMORY)
    return folder


def _flip(path, position):
    data = bytearray(path.read_bytes())
    data[position] ^= 4
    path.write_bytes(data)


FIRST = f"{shard_folder(0, 2)}/train.parquet"


def _swap(folder, sharded, name, there):
    shutil.copy(sharded / there, folder / name)


DAMAGES = {
    "missing": (lambda f, s: (f / FIRST).unlink(), "train.parquet is missing"),
    "truncated": (lambda f, s: (f / FIRST).write_bytes((f / FIRST).read_bytes()[:-9]), "train.parquet is damaged"),
    "flipped": (lambda f, s: _flip(f / FIRST, 300), "train.parquet is damaged"),
    "flipped items": (lambda f, s: _flip(f / "items.parquet", 100), "items.parquet is damaged"),
    "flipped manifest": (lambda f, s: _flip(f / MANIFEST, 200), "manifest.json is damaged"),
    "no manifest": (lambda f, s: (f / MANIFEST).unlink(), "no manifest.json"),
    "another log": (lambda f, s: _swap(f, s, FIRST, f"other/{FIRST}"), "belongs to another log"),
    "other P": (lambda f, s: _swap(f, s, FIRST, f"three/{shard_folder(0, 3)}/train.parquet"), "one of 3 shards"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_bad_shards_are_refused_by_name(sharded, tmp_path, damage):
    shutil.copytree(sharded / "two", tmp_path / "two")
    spoil, message = DAMAGES[damage]
    spoil(tmp_path / "two", sharded)
    with pytest.raises(DataError, match=message) as caught:
        DataSource(source=tmp_path / "two").load()
    assert "\n" not in str(caught.value)


def test_another_number_of_shards_than_ranks_is_refused(sharded):
    with pytest.raises(DataError, match="has 2 shards where 4 were expected"):
        ShardedLog.open(sharded / "two", shards=4)


def test_a_folder_with_something_in_it_and_too_many_shards_are_refused(log, tmp_path, sharded):
    with pytest.raises(ConfigError, match="not an empty folder"):
        shard_log(DataSource(source=log), 2, sharded / "two", LEAST_MEMORY)
    with pytest.raises(DataError, match="sharded already"):
        shard_log(DataSource(source=sharded / "two"), 2, tmp_path / "out", LEAST_MEMORY)
    with pytest.raises(ConfigError, match="use fewer --shards"):
        shard_log(DataSource(source=log), 500, tmp_path / "out", LEAST_MEMORY)
    assert not list(tmp_path.glob(".out*")), "what was spilled is removed"


def test_times_that_are_numbers_here_and_dates_there_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("rankformer.data.readers.delimited.BLOCK_BYTES", 8000)  # the first block is all numbers
    numbers, dates = [f"{n:06d},1,{n:09d}" for n in range(420)], [f"{n:06d},2,2020-01-01" for n in range(900)]
    (tmp_path / "log.csv").write_text("\n".join(["user,item,time", *numbers, *dates]))
    with pytest.raises(DataError, match="time"):
        shard_log(DataSource(source=tmp_path / "log.csv"), 2, tmp_path / "out", LEAST_MEMORY)
