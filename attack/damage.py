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

from rankformer.errors import RunFolderError
from rankformer.runs.checkpoint import CheckpointStore
from rankformer.runs.manifest import FILES, MANIFEST
from rankformer.runs.saved import load_run, save_run

CALLS = ("fsync", "replace", "open", "chmod", "unlink", "mkdir", "rmdir", "write")
ERRORS = (errno.ENOSPC, errno.EIO, errno.EROFS, errno.EDQUOT)


def changed_bytes(folder: Path, flips: int, truncations: int, seed: int) -> dict[str, Any]:
    """Flip bits and cut ends in the files of a run; return how many changes were not refused by name."""
    from tests.runs.test_saved import make_run

    rng, run = random.Random(seed), folder / "run"
    save_run(run, make_run())
    whole = {name: (run / name).read_bytes() for name in (*FILES, MANIFEST)}
    accepted: list[str] = []
    for number in range(flips + truncations):
        name = rng.choice(list(whole))
        data = bytearray(whole[name])
        if number < flips:
            position = rng.randrange(len(data))
            data[position] ^= 1 << rng.randrange(8)
        else:
            del data[rng.randrange(len(data)) :]
        (run / name).write_bytes(data)
        try:
            load_run(run)
            accepted.append(name)
        except RunFolderError as error:
            if name not in str(error) or "\n" in str(error):
                accepted.append(f"{name}: {error}")
        (run / name).write_bytes(whole[name])
    return {"flips": flips, "truncations": truncations, "not refused": accepted}


def failing_disk(folder: Path, faults: int, seed: int) -> dict[str, Any]:
    """Fail one call in the middle of replacing a run or a checkpoint; return how often neither state was whole."""
    from tests.runs.test_saved import assert_equal_runs, make_run

    rng, found = random.Random(seed), Counter[str]()
    while found["faults"] < faults:
        place, is_run = folder / str(found["tries"]), rng.random() < 0.5
        fault = (
            Failing(rng.choice(CALLS), rng.randint(1, 12), rng.choice(ERRORS))
            if rng.random() < 0.5
            else Full(rng.randrange(4000))
        )
        found["tries"] += 1
        store = CheckpointStore(place, {"seed": 1})
        if is_run:
            save_run(place, make_run(seed=0))
        else:
            store.save(1, {"x": torch.full((50,), 1.0)}, {"epoch": 1})
        with fault:
            try:
                if is_run:
                    save_run(place, make_run(seed=1))
                else:
                    store.save(2, {"x": torch.full((50,), 2.0)}, {"epoch": 2})
                found["survived"] += 1
            except OSError:
                found["faults"] += 1
        try:
            if is_run:
                loaded = load_run(place)
                assert_equal_runs(loaded, make_run(seed=loaded.seed))
            else:
                tensors, numbers = store.load() or ({}, {})
                assert tensors["x"].eq(numbers["epoch"]).all()
        except Exception:
            found["lost or mixed"] += 1
        shutil.rmtree(place)
    return {name: found[name] for name in ("faults", "survived", "lost or mixed")}


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
