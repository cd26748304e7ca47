"""Bytes that changed on disk, and disks that fail while a run or a checkpoint is written."""

import errno
import os
import random
import resource
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import torch

from attack.regressions import Findings, described, kind
from rankformer.errors import RunFolderError
from rankformer.runs.checkpoint import CheckpointStore
from rankformer.runs.manifest import FILES, MANIFEST
from rankformer.runs.saved import load_run, save_run

CALLS = ("fsync", "replace", "open", "chmod", "unlink", "mkdir", "rmdir", "write")
ERRORS = ("ENOSPC", "EIO", "EROFS", "EDQUOT")


def changed_bytes(folder: Path, flips: int, truncations: int, seed: int) -> dict[str, Any]:
    """Flip bits and cut ends in the files of a run; return how many changes were not refused by name."""
    rng, accepted, whole = random.Random(seed), list[str](), _run_in(folder)
    findings = Findings("bytes", lambda case: changed(case, folder))
    for number in range(flips + truncations):
        name = rng.choice(list(whole))
        offset = rng.randrange(len(whole[name]))
        cut = {"file": name, "length": offset}
        case = {"file": name, "offset": offset, "bit": rng.randrange(8)} if number < flips else cut
        got = changed(case, folder)
        if kind(got):
            accepted.append(got)
            findings.add(case, got)
    return {"flips": flips, "truncations": truncations, "not refused": accepted}


def changed(case: dict[str, Any], folder: Path) -> str:
    """Load a run of which one bit is flipped, or one file cut to a length; return what came of it."""
    name = case["file"]
    whole, path = _run_in(folder)[name], folder / "run" / name
    data = bytearray(whole)
    if "bit" in case:
        data[case["offset"] % len(data)] ^= 1 << case["bit"]
    else:
        del data[min(case["length"], len(data) - 1) :]
    path.write_bytes(data)
    try:
        load_run(folder / "run")
    except RunFolderError as error:
        is_clear = name in str(error) and "\n" not in str(error)
        return "refused" if is_clear else f"{name} is not named: {error}"
    except Exception as error:
        return f"{name} {described(error)}"
    finally:
        path.write_bytes(whole)
    return f"{name} is taken as it is: {case}"


def _run_in(folder: Path) -> dict[str, bytes]:
    """Return the files of the run in a folder, which is written when it is missing."""
    from tests.runs.test_saved import make_run

    if not (folder / "run").exists():
        save_run(folder / "run", make_run())
    return {name: (folder / "run" / name).read_bytes() for name in (*FILES, MANIFEST)}


def failing_disk(folder: Path, faults: int, seed: int) -> dict[str, Any]:
    """Fail one call in the middle of replacing a run or a checkpoint; return how often neither state was whole."""
    rng, found = random.Random(seed), Counter[str]()
    findings = Findings("faults", lambda case: failed(case, folder))
    while found.total() - found["survived"] < faults:
        case = {"run": rng.random() < 0.5, "fault": draw_fault(rng, calls=12, size=4000)}
        got = failed(case, folder)
        found["lost or mixed" if kind(got) else got] += 1
        findings.add(case, got)
    return {"faults": found["failed cleanly"], **{name: found[name] for name in ("survived", "lost or mixed")}}


def failed(case: dict[str, Any], folder: Path) -> str:
    """Replace a run, or a checkpoint, while a fault lasts; return what is there afterwards."""
    from tests.runs.test_saved import assert_equal_runs, make_run

    place, got = folder / "failing", "survived"
    store = CheckpointStore(place, {"seed": 1})
    if case["run"]:
        save_run(place, make_run(seed=0))
    else:
        store.save(1, {"x": torch.full((50,), 1.0)}, {"epoch": 1})
    try:
        with fault_of(case["fault"]):
            if case["run"]:
                save_run(place, make_run(seed=1))
            else:
                store.save(2, {"x": torch.full((50,), 2.0)}, {"epoch": 2})
    except OSError:
        got = "failed cleanly"
    except Exception as error:
        got = described(error)
    try:
        if case["run"]:
            loaded = load_run(place)
            assert_equal_runs(loaded, make_run(seed=loaded.seed))
        else:
            tensors, numbers = store.load() or ({}, {})
            assert tensors["x"].eq(numbers["epoch"]).all()
    except Exception as error:
        got = f"lost or mixed: {error!r}"[:200]
    shutil.rmtree(place)
    return got


def draw_fault(rng: random.Random, calls: int, size: int) -> list[Any]:
    """Return a fault as a case names it: which call of which function fails with what, or the size files can have."""
    if rng.random() < 0.5:
        return [rng.choice(CALLS), rng.randint(1, calls), rng.choice(ERRORS)]
    return ["full", rng.randrange(size)]


def fault_of(named: list[Any]) -> "Failing | Full":
    """Return the fault that a case names."""
    name, number, *code = named
    return Failing(name, number, getattr(errno, code[0])) if code else Full(number)


class Failing:
    """Makes the given call of os.NAME fail, counted from 1."""

    def __init__(self, name: str, call: int, code: int) -> None:
        self.name, self.left, self.code, self.real = name, call, code, getattr(os, name)

    def __enter__(self) -> None:
        setattr(os, self.name, self._call)

    def __exit__(self, *error: object) -> None:
        setattr(os, self.name, self.real)

    def _call(self, *arguments: Any, **options: Any) -> Any:
        self.left -= 1
        if self.left == 0:
            raise OSError(self.code, os.strerror(self.code))
        return self.real(*arguments, **options)


class Full:
    """Lets no file grow beyond a size: the write that would fails, as on a full disk."""

    def __init__(self, size: int) -> None:
        self.size, self.before = size, resource.getrlimit(resource.RLIMIT_FSIZE)

    def __enter__(self) -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (self.size, self.before[1]))

    def __exit__(self, *error: object) -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, self.before)
