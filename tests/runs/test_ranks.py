"""Runs of several ranks: checkpoints that any number of them resumes, kills, one clear error, lists and metrics."""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests import ranks

from rankformer.data.sharding import LEAST_MEMORY, shard_log
from rankformer.data.shards import shard_folder
from rankformer.data.source import DataSource
from rankformer.files import sha256_of
from rankformer.runs.checksums import read_checksummed_json
from rankformer.runs.saved import load_run

WORKER = ("-m", "tests.runs.ranks_worker")
TRAIN = ("train", "demo", "--model", "rankformer", "--epochs", "12", "--no-refit")
TRAIN += ("--set", "embedding_dim=8", "--set", "validate_every=1")


def rankformer(*words, **options):
    command = [sys.executable, "-m", "rankformer", *map(str, words)]
    options = {"capture_output": True, "text": True, "timeout": 200, **options}
    return subprocess.run(command, env={**os.environ, "OMP_NUM_THREADS": "1"}, check=False, **options)


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """What one rank makes of it, never disturbed."""
    folder = tmp_path_factory.mktemp("alone")
    ranks.run(1, *WORKER, str(folder / "run"), str(folder / "out.npz"))
    return np.load(folder / "out.npz")


@pytest.fixture(scope="module")
def stopped(tmp_path_factory):
    """A run folder that two ranks left after epoch 4 of 8."""
    folder = tmp_path_factory.mktemp("stopped") / "run"
    ended = ranks.finish(ranks.start(2, *WORKER, str(folder), "none", "--stop-after", "4"))
    assert [code for code, *_ in ended] == [9, 9], ended
    return folder


def same(found, wanted):
    assert np.abs(found["users"] - wanted["users"]).max() <= 1e-5
    assert np.abs(found["items"] - wanted["items"]).max() <= 1e-5
    assert np.abs(found["losses"] - wanted["losses"]).max() <= 1e-6
    assert round(float(found["ndcg"]), 4) == round(float(wanted["ndcg"]), 4)
    assert (found["lists"] != wanted["lists"]).mean() < 0.01


@pytest.mark.parametrize("count", [1, 3, 4])
def test_a_checkpoint_of_two_ranks_is_resumed_by_any_number(stopped, alone, count, tmp_path):
    folder = tmp_path / "run"
    subprocess.run(["cp", "-r", stopped, folder], check=True)
    index = read_checksummed_json(folder / "checkpoint" / "latest.json")
    assert index["numbers"]["epoch"] == 4
    assert len(index["shards"]) == 2
    ranks.run(count, *WORKER, str(folder), str(tmp_path / "out.npz"), "--resume")
    same(np.load(tmp_path / "out.npz"), alone)


def test_a_checkpoint_of_one_rank_is_resumed_by_two(alone, tmp_path):
    folder = tmp_path / "run"
    [(code, _, errors)] = ranks.finish(ranks.start(1, *WORKER, str(folder), "none", "--stop-after", "4"))
    assert code == 9, errors
    ranks.run(2, *WORKER, str(folder), str(tmp_path / "out.npz"), "--resume")
    same(np.load(tmp_path / "out.npz"), alone)


@pytest.mark.parametrize("damage", ["missing", "truncated", "flipped"])
def test_a_damaged_shard_is_named_and_ends_all_ranks(stopped, damage, tmp_path):
    folder = tmp_path / "run"
    subprocess.run(["cp", "-r", stopped, folder], check=True)
    shard = sorted((folder / "checkpoint").glob("*-00001-of-00002.safetensors"))[0]
    if damage == "missing":
        shard.unlink()
    else:
        data = bytearray(shard.read_bytes())
        data[-1] ^= 1
        shard.write_bytes(data if damage == "flipped" else data[:-1])
    ended = ranks.finish(ranks.start(2, *WORKER, str(folder), "none", "--resume"))
    for code, _, errors in ended:
        assert code == 1
        assert f"{shard} is {'missing' if damage == 'missing' else 'damaged'}" in errors


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """The same run trained by one process and by `--ranks 2`."""
    folder = tmp_path_factory.mktemp("runs")
    for name, extra in (("one", ()), ("two", ("--ranks", "2"))):
        done = rankformer(*TRAIN, "--out", folder / name, *extra)
        assert done.returncode == 0, done.stderr
        assert done.stdout.count("rankformer on demo:") == 1, "the first rank alone prints"
    return folder


def test_the_run_of_two_ranks_is_that_of_one(runs):
    one, two = (load_run(runs / name) for name in ("one", "two"))
    for side in ("users", "items"):
        assert (getattr(one.recommender.scorer, side) - getattr(two.recommender.scorer, side)).abs().max() <= 1e-5
    assert (one.parameters["table"] - two.parameters["table"]).abs().max() <= 1e-4
    assert one.data == two.data
    assert one.protocol == two.protocol
    assert one.metrics == pytest.approx(two.metrics, abs=5e-5)
    assert one.recommender.user_ids == two.recommender.user_ids
    users, items = (np.lexsort((log.known.items, log.known.users)) for log in (one.recommender, two.recommender))
    assert np.array_equal(one.recommender.known.users[users], two.recommender.known.users[items])
    assert np.array_equal(one.recommender.known.items[users], two.recommender.known.items[items])
    assert len(one.recommender.history) == len(two.recommender.history)
    assert not list((runs / "two").glob("checkpoint"))


def test_lists_and_metrics_of_ranks_equal_those_of_one_process_bit_for_bit(runs, tmp_path):
    run = str(runs / "two")
    alone = rankformer("recommend", run, "--all", "--out", tmp_path / "lists.parquet")
    assert alone.returncode == 0, alone.stderr
    ranks.run(3, "-m", "rankformer", "recommend", run, "--all", "--out", str(tmp_path / "lists"))
    manifest = read_checksummed_json(tmp_path / "lists" / "manifest.json")
    parts = [pq.read_table(tmp_path / "lists" / name) for name in manifest["files"]]
    assert [len(part) for part in parts] == [entry["rows"] for entry in manifest["files"].values()]
    for name, entry in manifest["files"].items():
        assert sha256_of(tmp_path / "lists" / name) == entry["sha256"]
    assert pa.concat_tables(parts).equals(pq.read_table(tmp_path / "lists.parquet"))
    measured = rankformer("evaluate", run, "--metrics", "ndcg@20,gini@10", "--json")
    shared = ranks.run(2, "-m", "rankformer", "evaluate", run, "--metrics", "ndcg@20,gini@10", "--json")
    assert json.loads(shared) == json.loads(measured.stdout)


def test_a_method_for_one_rank_says_so_in_one_line(tmp_path):
    done = rankformer("train", "demo", "--model", "ease", "--out", tmp_path / "run", "--ranks", "2")
    assert done.returncode == 2
    *progress, line = done.stderr.splitlines()
    assert line == "error: ease runs on one rank only; use one rank, or another method or setting"
    assert all(each.startswith("rankformer train ... ") for each in progress), progress


def test_too_many_ranks_are_refused_by_all(tmp_path):
    log = tmp_path / "log.csv"
    log.write_text("user,item\n" + "".join(f"a,{item}\n" for item in range(30)))
    ended = ranks.finish(ranks.start(2, "-m", "rankformer", "train", str(log), "--model", "mf", "--out", "unused"))
    assert [code for code, *_ in ended] == [2, 2]
    assert "too few users" in ended[0][2]
    assert not ended[1][2], "only the first rank says so"


def workers_of(parent):
    found = {}
    for path in Path("/proc").glob("[0-9]*"):
        try:
            status = (path / "stat").read_text().rpartition(")")[2].split()
            if int(status[1]) == parent:
                words = (path / "environ").read_bytes().split(b"\0")
                found[int(next(word[5:] for word in words if word.startswith(b"RANK=")))] = int(path.name)
        except (OSError, StopIteration):
            continue
    return found


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="finds the ranks in /proc")
def test_killed_ranks_are_restarted_and_the_result_is_the_same(runs, tmp_path):
    draws, folder = random.Random(3), tmp_path / "run"
    command = [sys.executable, "-m", "rankformer", *TRAIN, "--out", str(folder), "--ranks", "2"]
    killed = []
    with subprocess.Popen(command, env={**os.environ, "OMP_NUM_THREADS": "1"}, stderr=subprocess.PIPE) as process:
        deadline = time.monotonic() + 100
        while process.poll() is None and time.monotonic() < deadline and len(killed) < 2:
            found = workers_of(process.pid)
            early = killed and (killed[0] in found.values() or not any(folder.glob("checkpoint/epoch-*")))
            if len(found) < 2 or early:
                time.sleep(0.01)
                continue
            # The first before the ranks meet, or after; the second once started again, and with a checkpoint.
            time.sleep(0 if killed else draws.random())
            killed.append(draws.choice(list(found.values())))
            os.kill(killed[-1], signal.SIGKILL)
        _, errors = process.communicate(timeout=150)
    assert process.returncode == 0, errors.decode()
    assert len(killed) == 2
    one, two = load_run(runs / "one"), load_run(folder)
    assert (one.recommender.scorer.users - two.recommender.scorer.users).abs().max() <= 1e-5


def test_ranks_of_a_restart_do_not_look_for_those_before_it():
    """torchrun keeps one store over restarts, in which ranks that have ended still are; here rank 0 comes last."""
    import torch.distributed as dist

    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    code = (
        "import os, time\n"
        "from rankformer.graph.collectives import joined_ranks\n"
        "time.sleep(0 if int(os.environ['RANK']) else 1)\n"
        "with joined_ranks(30) as ranks:\n"
        "    print(ranks.total(ranks.rank + 1.0), flush=True)\n"
        "    os._exit(0)\n"  # as one that is killed: nothing is tidied up
    )
    agent = {"MASTER_PORT": str(store.port), "TORCHELASTIC_USE_AGENT_STORE": "True"}
    for _ in range(2):
        assert ranks.run(2, "-c", code, **agent) == "[3.0]\n"


def test_a_rank_that_does_not_answer_is_given_up_in_time():
    code = (
        "import sys, time, os\n"
        "from rankformer.graph.collectives import joined_ranks\n"
        "from rankformer.errors import RankError\n"
        "with joined_ranks(5) as ranks:\n"
        "    ranks.barrier()\n"
        "    if ranks.rank: time.sleep(60)\n"
        "    try: ranks.barrier()\n"
        "    except RankError as error: print(error, flush=True); os._exit(7)\n"
    )
    first, second = ranks.start(2, "-c", code)
    begun = time.monotonic()
    out, errors = first.communicate(timeout=50)
    second.kill()
    second.communicate()
    assert first.returncode == 7, errors
    assert "another rank" in out
    assert time.monotonic() - begun < 45


def test_each_rank_reads_its_shard_and_a_bad_one_ends_all(tmp_path):
    log = tmp_path / "log.csv"
    draws = random.Random(0)
    pairs = sorted({(draws.randrange(60), draws.randrange(40)) for _ in range(900)})
    log.write_text("user,item\n" + "".join(f"u{user},i{item}\n" for user, item in pairs))
    done = rankformer("data", "shard", log, "--shards", "2", "--out", tmp_path / "shards")
    assert done.returncode == 0, done.stderr
    options = ("--model", "lightgcn", "--epochs", "3", "--set", "embedding_dim=8")
    ranks.run(2, "-m", "rankformer", "train", str(tmp_path / "shards"), *options, "--out", str(tmp_path / "two"))
    done = rankformer("train", tmp_path / "shards", *options, "--out", tmp_path / "one")
    assert done.returncode == 0, done.stderr
    one, two = load_run(tmp_path / "one"), load_run(tmp_path / "two")
    assert one.recommender.user_ids == two.recommender.user_ids
    assert (one.recommender.scorer.users - two.recommender.scorer.users).abs().max() <= 1e-5
    assert one.metrics == pytest.approx(two.metrics, abs=5e-5)
    damaged = tmp_path / "shards" / "shard-00001-of-00002" / "train.parquet"
    data = bytearray(damaged.read_bytes())
    data[len(data) // 2] ^= 1
    damaged.write_bytes(data)
    for count, expected in ((2, f"rank 1: {damaged} is damaged"), (3, "has 2 shards where 3 were expected")):
        command = ("-m", "rankformer", "train", str(tmp_path / "shards"), *options, "--out", str(tmp_path / "bad"))
        ended = ranks.finish(ranks.start(count, *command))
        assert [code for code, *_ in ended] == [2] * count
        assert expected in ended[0][2]


def test_every_rank_names_a_bad_shard(tmp_path):
    """Whatever is wrong with a shard of one rank, all ranks raise the same line."""
    (tmp_path / "log.csv").write_text("user,item\n" + "".join(f"{n % 7},{n % 11}\n" for n in range(300)))
    logs = {name: tmp_path / name for name in ("good", "other", "three")}
    for (name, folder), shards in zip(logs.items(), (2, 2, 3), strict=True):
        source = DataSource(source=tmp_path / "log.csv", split_seed=int(name == "other"))
        shard_log(source, shards, folder, LEAST_MEMORY)
    bad = {name: tmp_path / name for name in ("missing", "truncated", "flipped", "another log", "other P")}
    for name, folder in bad.items():
        shutil.copytree(logs["good"], folder)
        path = folder / shard_folder(1, 2) / "train.parquet"
        data = bytearray(path.read_bytes())
        if name == "missing":
            path.unlink()
        elif name in ("truncated", "flipped"):
            data[len(data) // 2] ^= 1
            path.write_bytes(data if name == "flipped" else data[:-5])
        else:
            there = ("other", 2) if name == "another log" else ("three", 3)
            shutil.copy(logs[there[0]] / shard_folder(1, there[1]) / "train.parquet", path)
    code = (
        "import sys\n"
        "from rankformer.data.source import DataSource\n"
        "from rankformer.errors import DataError\n"
        "from rankformer.graph.collectives import joined_ranks\n"
        "with joined_ranks(30) as ranks:\n"
        "    for folder in sys.argv[1:]:\n"
        "        try:\n"
        "            with ranks.together(): DataSource(source=folder).load_block(ranks.rank, ranks.size)\n"
        "        except DataError as error: print(error)\n"
    )
    ended = ranks.finish(ranks.start(2, "-c", code, *map(str, bad.values())))
    assert [exit_code for exit_code, *_ in ended] == [0, 0], ended[0][2]
    assert ended[0][1] == ended[1][1]
    problems = ("is missing", "is damaged", "is damaged", "belongs to another log", "is one of 3 shards, not of 2")
    for line, folder, problem in zip(ended[0][1].splitlines(), bad.values(), problems, strict=True):
        assert f"{folder / shard_folder(1, 2) / 'train.parquet'} {problem}" in line
