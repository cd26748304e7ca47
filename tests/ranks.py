"""Runs a test module's `main` on several ranks: each a process of its own, connected as torchrun connects them."""

import os
import subprocess
import sys

from tests.ports import free_port


def start(count, *command, **environment):
    """Start a command, the words after `python`, on so many ranks; return the processes."""
    address = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "WORLD_SIZE": str(count)}
    # A rank that is ended by a signal says where it was.
    shared = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONFAULTHANDLER": "1", **address, **environment}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    own = [{"RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(count)]
    return [subprocess.Popen([sys.executable, *command], env={**shared, **each}, **pipes) for each in own]


def finish(processes, seconds=240):
    """Return (exit code, stdout, stderr) of each process; one that hangs is ended and fails the test."""
    try:
        ended = [process.communicate(timeout=seconds) for process in processes]
    finally:
        for process in processes:
            process.kill()
    return [(process.returncode, *texts) for process, texts in zip(processes, ended, strict=True)]


def run(count, *command, **environment):
    """Run a command on so many ranks, all of which must succeed; return the first one's stdout."""
    ended = finish(start(count, *command, **environment))
    said = "\n".join(f"rank {rank}, exit code {code}: {text[-3000:]}" for rank, (code, _, text) in enumerate(ended))
    assert not any(code for code, _, _ in ended), said
    return ended[0][1]
