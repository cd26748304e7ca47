"""Two hosts: each rank in a network namespace of its own, with a virtual link between them that can go down."""

import os
import shutil
import subprocess
import sys
import time

import numpy as np
import pytest
from tests import ranks

WORKER = ("-m", "tests.training.ranks_worker")
ADDRESSES = ("10.213.77.1", "10.213.77.2")


def ip(*words, check=True):
    return subprocess.run(["ip", *words], check=check, capture_output=True, text=True)


@pytest.fixture
def hosts():
    """The names of two namespaces that are linked."""
    if os.name != "posix" or shutil.which("ip") is None or os.geteuid() != 0:
        pytest.skip("network namespaces need `ip` and root")
    names = [f"rankformer-{os.getpid()}-{side}" for side in "ab"]
    links = [f"rf{os.getpid() % 100000}{side}" for side in "ab"]
    if (found := ip("netns", "add", names[0], check=False)).returncode:
        pytest.skip(f"network namespaces are not allowed here: {found.stderr.strip()}")
    try:
        ip("netns", "add", names[1])
        ip("link", "add", links[0], "type", "veth", "peer", "name", links[1])
        for name, link, address in zip(names, links, ADDRESSES, strict=True):
            ip("link", "set", link, "netns", name)
            ip("-n", name, "addr", "add", f"{address}/24", "dev", link)
            ip("-n", name, "link", "set", link, "up")
            ip("-n", name, "link", "set", "lo", "up")
        yield list(zip(names, links, strict=True))
    finally:
        for name in names:
            ip("netns", "del", name, check=False)


def start(hosts, folder, **environment):
    shared = {"MASTER_ADDR": ADDRESSES[0], "MASTER_PORT": "29411", "WORLD_SIZE": "2", "OMP_NUM_THREADS": "1"}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return [
        subprocess.Popen(
            ["ip", "netns", "exec", name, sys.executable, *WORKER, str(folder), "rankformer-slow"],
            env={**os.environ, **shared, **environment, "RANK": str(rank), "GLOO_SOCKET_IFNAME": link},
            **pipes,
        )
        for rank, (name, link) in enumerate(hosts)
    ]


def switch(hosts, state):
    name, link = hosts[1]
    ip("-n", name, "link", "set", link, state)


def same_as_undisturbed(tmp_path, epochs):
    """Whether the result is, bit for bit, that of two ranks whose link never went down."""
    quiet = tmp_path / "undisturbed"
    quiet.mkdir()
    ranks.run(2, *WORKER, str(quiet), "rankformer-slow", EPOCHS=str(epochs))
    one, two = np.load(quiet / "rankformer-slow.npz"), np.load(tmp_path / "rankformer-slow.npz")
    for name in one.files:
        assert np.array_equal(one[name], two[name]), name


def test_a_link_that_comes_back_changes_nothing(hosts, tmp_path):
    processes = start(hosts, tmp_path, EPOCHS="300", RANK_TIMEOUT="60")
    assert processes[0].stdout.readline() == "training\n"
    switch(hosts, "down")
    time.sleep(2)
    switch(hosts, "up")
    for code, _, errors in ranks.finish(processes):
        assert code == 0, errors
    same_as_undisturbed(tmp_path, 300)


def test_a_link_that_stays_down_ends_all_ranks_within_the_timeout(hosts, tmp_path):
    processes = start(hosts, tmp_path, EPOCHS="100000", RANK_TIMEOUT="6")
    assert processes[0].stdout.readline() == "training\n"
    switch(hosts, "down")
    begun = time.monotonic()
    for code, _, errors in ranks.finish(processes, seconds=60):
        assert code == 1
        assert "RankError: rank" in errors
    assert time.monotonic() - begun < 60
    assert not (tmp_path / "rankformer-slow.npz").exists()
