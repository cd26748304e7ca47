"""Writers that are killed, and writers that write to one folder at the same time.

A child is forked for each attempt, from a process that does no work of its own, so that it is ready at once and no
thread is left behind.
"""

import json
import os
import random
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

CALLS = ("fsync", "replace", "open", "chmod", "unlink", "rmdir", "mkdir", "write")


def killed_replacements(folder: Path, kills: int, seed: int) -> dict[str, Any]:
    """Replace a run again and again by writers that die at a file call; return how often neither run was whole."""
    return _in_a_fresh_process("_kill", folder, kills, seed)


def two_writers(folder: Path, rounds: int) -> dict[str, Any]:
    """Let two processes save different runs into one folder at once; return how often the result was a mixture."""
    return _in_a_fresh_process("_race", folder, rounds, 0)


def _in_a_fresh_process(name: str, folder: Path, count: int, seed: int) -> dict[str, Any]:
    code = f"import sys, json; from attack import writers; print(json.dumps(writers.{name}(*sys.argv[1:])))"
    command = [sys.executable, "-c", code, str(folder), str(count), str(seed)]
    root = str(Path(__file__).parents[1])
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([root, os.environ.get("PYTHONPATH", "")])}
    done = subprocess.run(command, capture_output=True, text=True, env={**environment, "OMP_NUM_THREADS": "1"})
    if done.returncode:
        raise RuntimeError(done.stderr)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def _kill(folder: str, kills: str, seed: str) -> dict[str, Any]:
    from tests.runs.test_saved import make_run

    from rankformer.runs.saved import save_run

    rng, path, found = random.Random(int(seed)), Path(folder) / "run", {"kills": 0, "finished": 0, "lost or mixed": 0}
    save_run(path, make_run(seed=0))
    number = 0
    while found["kills"] < int(kills):
        number += 1
        died = _forked(path, number, rng.randint(1, 90))
        found["kills" if died else "finished"] += 1
        found["lost or mixed"] += not _is_whole(path)
    return found


def _race(folder: str, rounds: str, seed: str) -> dict[str, Any]:
    from rankformer.runs.manifest import is_run

    del seed
    path, found = Path(folder) / "run", {"rounds": 0, "saved": 0, "refused": 0, "mixed": 0, "unexpected": []}
    for number in range(int(rounds)):
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
