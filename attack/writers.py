"""Writers that are killed, and writers that write to one folder at the same time.

A child is forked for each attempt, from a process that does no work of its own, so that it is ready at once and no
thread is left behind.
"""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from attack.regressions import Findings, kind

CALLS = ("fsync", "replace", "open", "chmod", "unlink", "rmdir", "mkdir", "write")


def killed_trainings(folder: Path, kills: int, seed: int) -> dict[str, Any]:
    """Kill trainings at random moments and file calls, resume them; return how many end as one never killed."""
    return dict(in_a_fresh_process("writers._train", str(folder), kills, seed))


def killed_replacements(folder: Path, kills: int, seed: int) -> dict[str, Any]:
    """Replace a run again and again by writers that die at a file call; return how often neither run was whole."""
    return dict(in_a_fresh_process("writers._kill", str(folder), kills, seed))


def two_writers(folder: Path, rounds: int) -> dict[str, Any]:
    """Let two processes save different runs into one folder at once; return how often the result was a mixture."""
    return dict(in_a_fresh_process("writers._race", str(folder), rounds))


def in_a_fresh_process(name: str, *arguments: Any) -> Any:
    """Return what a function of a module of this package returns in a process of its own, which has no threads yet."""
    module = name.partition(".")[0]
    code = f"import sys, json; from attack import {module}; print(json.dumps({name}(*json.loads(sys.argv[1]))))"
    command = [sys.executable, "-c", code, json.dumps(arguments)]
    root = str(Path(__file__).parents[1])
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([root, os.environ.get("PYTHONPATH", "")])}
    done = subprocess.run(command, capture_output=True, text=True, env={**environment, "OMP_NUM_THREADS": "1"})
    if done.returncode:
        raise RuntimeError(done.stderr)
    return json.loads(done.stdout)


def _train(folder: str, kills: int, seed: int) -> dict[str, Any]:
    from tests.runs.kill_worker import killed_trainings

    found, different = killed_trainings(Path(folder), kills, seed), 0
    findings = Findings("kills", lambda case: trained(case, folder), fewer=("file_calls",))
    for run in found["runs"]:
        whole = found["undisturbed"][run["batch_size"]]
        if (run["tensors"], run["log"]) != (whole["tensors"], whole["log"]):
            different += 1
            case = {"batch_size": run["batch_size"], "file_calls": run["file_calls"]}  # a moment cannot be met again
            findings.add(case, "failed" if run["tensors"] is None else "different")
    return {"kills": found["kills"], "in the middle of a write": found["mid_write"], "different": different}


def trained(case: dict[str, Any], folder: str) -> str:
    """Return what becomes of a training that is killed at one file call after another, and then ended."""
    from tests.runs.kill_worker import prepare, replay

    prepare()
    return replay(Path(folder), None if case["batch_size"] == "None" else int(case["batch_size"]), case["file_calls"])


def _kill(folder: str, kills: int, seed: int) -> dict[str, Any]:
    rng, found = random.Random(seed), {"kills": 0, "finished": 0, "lost or mixed": 0}
    findings = Findings("replacements", lambda case: replaced(case, folder), fewer=("file_calls",))
    while found["kills"] + found["lost or mixed"] < kills:
        case = {"file_calls": [rng.randint(1, 90) for _ in range(min(20, kills - found["kills"]))]}
        got = replaced(case, folder, found)
        found["lost or mixed"] += bool(kind(got))
        findings.add(case, got)
    return found


def replaced(case: dict[str, Any], folder: str, found: dict[str, int] | None = None) -> str:
    """Replace a run by one writer after another that dies at the given file call; return what is there then."""
    from tests.runs.test_saved import make_run

    from rankformer.runs.saved import save_run

    path, found = Path(folder) / "run", Counter() if found is None else found
    shutil.rmtree(path, ignore_errors=True)
    save_run(path, make_run(seed=0))
    for number, file_call in enumerate(case["file_calls"], 1):
        try:
            found["kills" if _forked(path, number, file_call) else "finished"] += 1
        except RuntimeError as error:
            return f"a writer failed: {error}"
        if not _is_whole(path):
            return "lost or mixed"
    return "whole"


def _race(folder: str, rounds: int) -> dict[str, Any]:
    from rankformer.runs.manifest import is_run

    path, found = Path(folder) / "run", {"rounds": 0, "saved": 0, "refused": 0, "mixed": 0, "unexpected": []}
    for number in range(rounds):
        start, go = os.pipe()
        children = [_writer(path, 2 * number + side, start, go) for side in range(2)]
        os.close(start)
        os.close(go)  # both start at once
        statuses = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
        found["rounds"] += 1
        found["saved"] += statuses.count(0)
        found["refused"] += statuses.count(2)
        found["unexpected"] += [status for status in statuses if status not in (0, 2)]
        found["mixed"] += not (is_run(path) and _is_whole(path))
    return found


def _writer(path: Path, seed: int, start: int, go: int) -> int:
    from tests.runs.test_saved import make_run

    from rankformer.errors import RunFolderError
    from rankformer.runs.saved import save_run

    child = os.fork()
    if child:
        return child
    status = 1
    try:
        run = make_run(seed=seed)
        os.close(go)
        os.read(start, 1)  # returns when the parent has closed the other end
        save_run(path, run)
        status = 0
    except RunFolderError:
        status = 2
    finally:
        os._exit(status)


def _forked(path: Path, seed: int, file_call: int) -> bool:
    """Save in a child that dies just before or after its `file_call`-th call; return whether it got that far."""
    from tests.runs.test_saved import make_run

    from rankformer.runs.saved import save_run

    child = os.fork()
    if child == 0:
        status = 1
        try:
            die_at_file_call(file_call)
            save_run(path, make_run(seed=seed))
            status = 0
        finally:
            os._exit(status)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        return True
    if os.waitstatus_to_exitcode(status):
        raise RuntimeError(f"a writer failed with status {status}")
    return False


def die_at_file_call(number: int) -> None:
    """Kill this process just before (even) or after (odd) its `number`-th call that touches the disk."""
    left = [number]

    def watched(real: Any) -> Any:
        def call(*arguments: Any, **options: Any) -> Any:
            left[0] -= 1
            if left[0] == 0:
                if number % 2:
                    real(*arguments, **options)
                os.kill(os.getpid(), signal.SIGKILL)
            return real(*arguments, **options)

        return call

    for name in CALLS:
        setattr(os, name, watched(getattr(os, name)))


def _is_whole(path: Path) -> bool:
    """Whether a run loads, and every part of it is of the one seed that its manifest names."""
    from tests.runs.test_saved import assert_equal_runs, make_run

    from rankformer.runs.saved import load_run

    try:
        found = load_run(path)
        assert_equal_runs(found, make_run(seed=found.seed))
    except Exception as error:  # whatever it is, the run is not whole
        print(f"{path}: {error}", file=sys.stderr)
        return False
    return True
