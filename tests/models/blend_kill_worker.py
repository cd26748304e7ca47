"""Fit a blend in forked children that are killed after one of their checkpoints, and print what came of it as JSON.

Run as a program by `test_blend.py`: a fresh process imports everything once and has no thread left behind.

    python blend_kill_worker.py FOLDER
"""

import json
import os
import signal
import sys
import traceback
from pathlib import Path

import numpy as np
import torch

from rankformer.data.interactions import Interactions
from rankformer.models.blend import Blend
from rankformer.runs.checkpoint import LATEST, CheckpointStore
from rankformer.runs.saved import load_run

GIVEN = {
    "ials": {"embedding_dim": 4, "regularization": 0.03},
    "lightgcn": {"epochs": 6, "validate_every": 2, "embedding_dim": 4},
}


def parts():
    pairs = np.random.default_rng(0).choice(30 * 20, 200, replace=False)
    users, items = pairs // 20, pairs % 20
    return [Interactions.from_indices(users[part], items[part], 30, 20) for part in (slice(160), slice(160, None))]


def forked(folder, data, kill_after=None):
    """Fit and save in a child that dies right after so many checkpoints; return whether it did."""
    child = os.fork()
    if child == 0:
        left, save = [kill_after], CheckpointStore.save

        def dying(self, *arguments):
            save(self, *arguments)
            if left[0] is not None:
                left[0] -= 1
                if left[0] == 0:
                    os.kill(os.getpid(), signal.SIGKILL)

        CheckpointStore.save = dying
        status = 1
        try:
            model = Blend(members=tuple(GIVEN), member_settings=GIVEN, seed=1)
            model.fit(*data, run_folder=folder, resume=True, verbose=False).save(folder)
            status = 0
        except BaseException:
            traceback.print_exc()
        os._exit(status)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        return True
    if os.waitstatus_to_exitcode(status):
        raise SystemExit("a child failed")
    return False


def timeless(value):
    """The same document without the clock."""
    if isinstance(value, dict):
        return {name: timeless(each) for name, each in value.items() if name != "seconds"}
    return [timeless(each) for each in value] if isinstance(value, list) else value


def outcome(folder):
    manifest = json.loads((folder / "manifest.json").read_bytes())
    return {"tensors": manifest["files"]["embeddings.safetensors"]["sha256"], "log": timeless(load_run(folder).log)}


def main(folder):
    torch.set_num_threads(1)
    torch.optim.Adam([torch.zeros(1, requires_grad=True)])  # imports half of torch, once for all children
    data = parts()
    forked(folder / "undisturbed", data)
    report = {"undisturbed": outcome(folder / "undisturbed"), "kills": []}
    for number in (3, 6, 8, 10):
        target = folder / f"killed-{number}"
        killed = forked(target, data, number)
        running = json.loads((target / "checkpoint" / LATEST).read_bytes())["numbers"]["running"] if killed else None
        forked(target, data)
        result = {"after": number, "killed": killed, "in_a_member": running is not None, "outcome": outcome(target)}
        report["kills"].append(result)
    print(json.dumps(report))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
