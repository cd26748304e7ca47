"""A run killed with SIGKILL at random moments ends with the embeddings of a run never disturbed."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

WORKER = Path(__file__).with_name("kill_worker.py")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_run_killed_at_random_moments_ends_as_if_never_disturbed(tmp_path):
    command = [sys.executable, str(WORKER), str(tmp_path), "30", "20250101"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["kills"] >= 30
    assert 0 < report["by_file_call"] < report["kills"], "both ways to die must have happened"
    assert 0 < report["in_refit"] < report["kills"], "both the fit and the refit must have been killed"
    assert report["mid_write"] > 0, "some kills must have come while a file was half-written"
    assert len(set(report["epochs_at_kill"])) >= 3, "the kills must have come at different times"
    for number, run in enumerate(report["runs"]):
        wanted = report["undisturbed"][run["batch_size"]]
        assert run["tensors"] == wanted["tensors"], f"run {number}"
        assert run["log"] == wanted["log"], f"run {number}"
    assert report["left_over"] == []
