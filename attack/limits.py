"""Memory limits and clock jumps at each stage: a clear error or the right result, never a wrong one.

The limit is on the address space (RLIMIT_AS), so many megabytes above what the process holds once all is imported. The
clock is Python's `time.time` in the process, moved forth and back by years at every reading of it.
"""

import json
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

import httpx

from rankformer.cli.main import NO_MEMORY

PATIENCE = 120  # seconds that a command may take
JUMPING = (
    "import time, random\n"
    "jump = random.Random({seed}); real = time.time\n"
    "def offset(): return jump.choice((0, -6e8, 3e9, -1.7e9, 86400, -1))\n"
    "time.time = lambda: real() + offset()\n"
    "time.time_ns = lambda: int(time.time() * 1e9)\n"
)


def memory(folder: Path, count: int, seed: int) -> dict[str, Any]:
    """Read, train, save, load and answer under limits from almost nothing upwards; return what was unclear or wrong."""
    rng, found = random.Random(seed), {"limits": 0, "finished": 0, "refused": 0}
    log, run = write_log(folder / "log.csv"), folder / "run"
    stages = {
        "read": ["data", "info", str(log), "--json"],
        "train and save": ["train", str(log), "--model", "ials", "--set", "iterations=2", "--json", "--out"],
        "train by steps": ["train", str(log), "--model", "lightgcn", "--set", "epochs=2", "--json", "--out"],
        "load and answer": ["recommend", str(run), "--all", "-k", "5", "--out"],
    }
    done = command([*stages["train and save"], str(run)])
    if done.returncode:
        raise RuntimeError(done.stderr)
    unclear, wrong = [], []
    for stage, words in stages.items():
        out = folder / "out.csv" if words[0] == "recommend" else folder / "out"
        place = [] if stage == "read" else [str(out)]
        expected = _result(command([*words, *place]), out)
        for number in range(count):
            megabytes = round(2 ** (3 + 7 * (number + rng.random()) / count))  # 8 MB to 1 GB
            _remove(out)
            done = command([*words, *place], megabytes)
            found["limits"] += 1
            got = f"{stage} with {megabytes} MB: exit {done.returncode}, {done.stderr[-300:]!r}"
            if done.returncode == 0:
                found["finished"] += 1
                wrong += [got] if _result(done, out) != expected else []
            elif done.returncode == 1 and done.stderr.splitlines()[-1:] == [f"error: {NO_MEMORY}"]:
                found["refused"] += 1
            else:
                unclear.append(got)
            if done.returncode and (out / "manifest.json").exists() and _result(done, out)[1] != expected[1]:
                wrong.append(f"{stage} with {megabytes} MB left a run that is not whole")
        _remove(out)
    return {**found, "unclear": unclear, "wrong": wrong} | _served(folder, run, count)


def _served(folder: Path, run: Path, count: int) -> dict[str, Any]:
    """Ask a service that may take more and more memory, at first none; return what was wrong or an unclear 5xx."""
    from tests.serving.clients import serving

    bad: list[str] = []
    given: list[tuple[str, Any]] = []
    batch = {"users": [str(each) for each in range(500)], "k": 200}
    requests = [("GET", "/v1/recommend/7", None), ("POST", "/v1/recommend:batch", batch)]
    with serving(run, "--no-access-log", log=folder / "log", OMP_NUM_THREADS="1") as service:
        pid, refused = service.process.pid, 0
        before = held(pid)
        with httpx.Client(base_url=service.url, timeout=60) as client:
            for number in range(count):
                resource.prlimit(pid, resource.RLIMIT_AS, (before + (number << 21), resource.RLIM_INFINITY))
                for method, path, body in requests:
                    try:
                        answer = client.request(method, path, json=body)
                    except httpx.TransportError as error:
                        bad.append(f"{path}: {error!r}")
                        continue
                    if answer.status_code == 503 and "memory" in answer.text:
                        refused += 1
                    elif answer.status_code == 200:
                        given.append((path, answer.json()))
                    else:
                        bad.append(f"{path}: {answer.status_code} {answer.text[:100]}")
            resource.prlimit(pid, resource.RLIMIT_AS, (resource.RLIM_INFINITY,) * 2)
            right = {path: client.request(method, path, json=body).json() for method, path, body in requests}
        bad += [f"{path}: another answer" for path, answer in given if answer != right[path]]
    return {"requests": count * len(requests), "answered 503": refused, "served wrongly": bad}


def clock(folder: Path, count: int, seed: int) -> dict[str, Any]:
    """Train, resume and serve under a clock that jumps by years; return what differs from a clock that does not."""
    from tests.serving.clients import serving

    rng, different, unexpected = random.Random(seed), [], []
    log = write_log(folder / "log.csv", users=200, rows=4000)
    words = ["train", str(log), "--model", "lightgcn", "--set", "epochs=3", "--json", "--out"]
    expected = _result(command([*words, str(folder / "run")]), folder / "run")
    for number in range(count):
        out = folder / f"jumped-{number}"
        jumping = JUMPING.format(seed=rng.randrange(10**6))
        done = command([*words, str(out)], before=jumping)
        if done.returncode:
            unexpected.append(done.stderr[-300:])
        elif _result(done, out)[1] != expected[1]:
            different.append(f"training {number}")
        for file in [*out.iterdir()] if out.exists() else []:  # files of the past and of the future
            moment = rng.choice((0, 2**31, 4_000_000_000))
            os.utime(file, (moment, moment))
        with serving(out, log=folder / "log", before=jumping, OMP_NUM_THREADS="1") as service:
            for path in ("/v1/recommend/7", "/v1/model", "/metrics", "/livez"):
                status = httpx.get(service.url + path, timeout=30).status_code
                unexpected += [] if status == 200 else [f"{path}: {status}"]
            started = time.monotonic()
            service.process.terminate()
            code = service.process.wait(60)
            if code or time.monotonic() - started > 30:
                unexpected.append(f"stopping: exit {code}")
            unexpected += ["a traceback"] if "Traceback" in service.log else []
    return {"trainings and services": count, "different": different, "unexpected": unexpected}


def write_log(path: Path, users: int = 2000, rows: int = 60_000) -> Path:
    """Write a log drawn at random; return its path."""
    rng = random.Random(0)
    lines = (f"{rng.randrange(users)},{int(rng.random() ** 2 * users)},{number}" for number in range(rows))
    path.write_text("user,item,time\n" + "\n".join(lines) + "\n")
    return path


class Ended(NamedTuple):
    """How a command ended, and what it printed."""

    returncode: int
    stdout: str
    stderr: str


def command(arguments: list[str], megabytes: int | None = None, before: str = "") -> Ended:
    """Run a command line in a forked process, with so much memory beside what is imported, after other statements."""
    import torch

    import rankformer.models.registry
    import rankformer.runs.saved  # noqa: F401
    from rankformer.cli.main import run

    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as error:
        child = os.fork()
        if child == 0:
            code = 99
            try:
                os.dup2(out.fileno(), 1)
                os.dup2(error.fileno(), 2)
                sys.stdout, sys.stderr = open(1, "w", closefd=False), open(2, "w", closefd=False)  # noqa: SIM115
                exec(before, {})  # noqa: S102 - statements of this module
                signal.alarm(PATIENCE)
                torch.set_num_threads(1)  # without room for a further one OpenMP ends the process by itself
                if megabytes is not None:
                    most = held(os.getpid()) + (megabytes << 20)
                    resource.setrlimit(resource.RLIMIT_AS, (most, most))
                code = run(arguments)
                sys.stdout.flush()
                sys.stderr.flush()
            finally:
                os._exit(code)
        _, status = os.waitpid(child, 0)
        texts = [os.pread(stream.fileno(), 10**6, 0).decode("utf-8", "replace") for stream in (out, error)]
    return Ended(os.waitstatus_to_exitcode(status), *texts)


def held(pid: int) -> int:
    """Return the bytes of address space that a process holds."""
    return int(Path(f"/proc/{pid}/status").read_text().partition("VmSize:")[2].split()[0]) << 10


def result_of(out: Path) -> Any:
    """Return what a run folder holds, without times; None where there is none."""
    return _result(Ended(0, "", ""), out)[1]


def _result(done: Ended, out: Path) -> tuple[str, Any]:
    """Return what a command printed and what it wrote, without times."""
    if out.suffix:
        return "", out.read_bytes() if out.exists() else None
    if not (out / "manifest.json").exists():
        return done.stdout, None
    stored = json.loads((out / "manifest.json").read_text())
    tensors = {name: entry for name, entry in stored["files"].items() if name != "log.jsonl"}
    return "", {"metrics": stored["metrics"], "files": tensors}


def _remove(out: Path) -> None:
    if out.is_dir():
        shutil.rmtree(out)
    out.unlink(missing_ok=True)
