"""Train in a forked child, kill it with SIGKILL again and again, and print what came of it as JSON.

Run as a program by `test_kill.py`. A fresh process imports everything once and does no work of its own, so that each
fork is a child ready to train within milliseconds and with no thread left behind.

    python kill_worker.py FOLDER KILLS SEED
"""

import json
import os
import random
import shutil
import signal
import sys
import time
from pathlib import Path

import numpy as np
import torch

from rankformer.data.interactions import Interactions
from rankformer.data.parts import Parts
from rankformer.data.source import DataSource
from rankformer.models.rankformer import Rankformer
from rankformer.runs import checkpoint
from rankformer.runs.manifest import is_run, read_manifest
from rankformer.runs.saved import load_run
from rankformer.runs.sequence import train_run

SETTINGS = {"epochs": 10, "validate_every": 1, "patience": 4, "num_layers": 1, "embedding_dim": 128}
WATCHED = ("fsync", "replace", "open", "chmod", "unlink")


class ChildFailedError(Exception):
    """A training that was not killed and yet did not end well."""


def parts(seed=0, n=900, m=700, size=6000):
    """Train and valid: random interactions, few for the number of embeddings, so that writing takes long."""
    pairs = np.random.default_rng(seed).choice(n * m, size, replace=False)
    users, items, cut = pairs // m, pairs % m, size * 9 // 10
    return [Interactions.from_indices(users[part], items[part], n, m) for part in (slice(cut), slice(cut, None))]


def one_run(folder, batch_size, data):
    """Train and refit to the end, continuing from whatever is there."""
    model = Rankformer(seed=1, batch_size=batch_size, **SETTINGS)
    train, valid = data
    parts = Parts(train, valid, valid.rows([]))
    train_run(model, DataSource(source="log.csv"), parts, folder, resume=True, refit=True)


def die_at_file_call(number):
    """Kill this process just before or after its `number`-th call that touches the disk."""
    left = [number]

    def watched(real):
        def call(*arguments, **options):
            left[0] -= 1
            if left[0] == 0:
                if number % 2:
                    real(*arguments, **options)
                os.kill(os.getpid(), signal.SIGKILL)
            return real(*arguments, **options)

        return call

    for name in WATCHED:
        setattr(os, name, watched(getattr(os, name)))
    checkpoint.tensors_to_bytes = watched(checkpoint.tensors_to_bytes)


def forked(folder, batch_size, data, file_call=None, delay=None):
    """Run in a child; return whether it was killed, by itself at a file call or by us after a delay."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            if file_call is not None:
                die_at_file_call(file_call)
            one_run(folder, batch_size, data)
            status = 0
        except BaseException as error:
            print(f"{folder}: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
        os._exit(status)
    if delay is not None:
        time.sleep(delay)
        os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL:
        return True
    if os.waitstatus_to_exitcode(status) != 0:
        raise ChildFailedError(f"a child failed with status {os.waitstatus_to_exitcode(status)}")
    return False


def outcome(folder):
    """What a finished run says: checksum of all its tensors, and its log without the clock."""
    run = load_run(folder)
    manifest = read_manifest(folder)
    log = [{name: value for name, value in event.items() if name != "seconds"} for event in run.log]
    return {"tensors": manifest["files"]["embeddings.safetensors"]["sha256"], "log": log}


def prepare():
    """Make this process one whose children are ready at once."""
    torch.set_num_threads(1)
    torch.optim.Adam([torch.zeros(1, requires_grad=True)])  # imports half of torch, once for all children


def replay(folder, batch_size, file_calls):
    """Return "whole", or what became of a training that is killed at file calls and then ended."""
    data, whole, target = parts(), folder / f"undisturbed-{batch_size}", folder / "replayed"
    try:
        if not is_run(whole):
            forked(whole, batch_size, data)
        shutil.rmtree(target, ignore_errors=True)
        for file_call in [*file_calls, None]:
            if not is_run(target):
                forked(target, batch_size, data, file_call)
    except ChildFailedError as error:
        return f"failed: {error}"
    return "whole" if outcome(target) == outcome(whole) else "different"


def killed_trainings(folder, kills_wanted, seed):
    """Return what came of trainings that were killed at random moments and file calls until they ended."""
    prepare()
    rng, data = random.Random(seed), parts()
    report = {
        "kills": 0,
        "by_file_call": 0,
        "in_refit": 0,
        "mid_write": 0,
        "epochs_at_kill": [],
        "undisturbed": {},
        "runs": [],
    }
    duration = {}
    for batch_size in (None, 2000):
        started = time.perf_counter()
        forked(folder / f"undisturbed-{batch_size}", batch_size, data)
        duration[batch_size] = time.perf_counter() - started
        report["undisturbed"][str(batch_size)] = outcome(folder / f"undisturbed-{batch_size}")
    while report["kills"] + sum(run["tensors"] is None for run in report["runs"]) < kills_wanted:
        number = len(report["runs"])
        batch_size = (None, 2000)[number % 2]
        target, file_calls, failed = folder / f"run-{number}", [], None
        while not is_run(target) and not failed:
            by_file_call = rng.random() < 0.5
            how = {"file_call": rng.randint(1, 50)} if by_file_call else {"delay": rng.random() * duration[batch_size]}
            file_calls += [how["file_call"]] if by_file_call else []
            try:
                killed = forked(target, batch_size, data, **how)
            except ChildFailedError as error:
                killed, failed = False, str(error)
            if killed:
                report["kills"] += 1
                report["by_file_call"] += by_file_call
                report["in_refit"] += (target / "checkpoint" / "refit").exists()
                report["mid_write"] += bool(list(target.rglob("*.tmp")))
                pointer = target / "checkpoint" / "latest.json"
                epoch = json.loads(pointer.read_bytes())["numbers"]["epoch"] if pointer.exists() else 0
                report["epochs_at_kill"].append(epoch)
        ended = {"tensors": None, "log": failed} if failed else outcome(target)
        report["runs"].append({"batch_size": str(batch_size), "file_calls": file_calls, **ended})
    report["left_over"] = [path.name for path in folder.glob("*/*.tmp")]
    return report


if __name__ == "__main__":
    print(json.dumps(killed_trainings(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))))
