"""Every command of docs/distributed.md, run as it stands."""

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

GUIDE = Path(__file__).parents[2] / "docs" / "distributed.md"
COMMANDS = [
    line.strip()
    for line in GUIDE.read_text(encoding="utf-8").splitlines()
    if line.startswith(("    rankformer ", "    torchrun "))
]


def test_the_commands_run_in_order(tmp_path):
    assert len(COMMANDS) == 4
    programs = {"rankformer": ["-m", "rankformer"], "torchrun": ["-m", "torch.distributed.run", "--standalone"]}
    for command in COMMANDS:
        program, *words = shlex.split(command)
        done = subprocess.run(
            [sys.executable, *programs[program], *words],
            cwd=tmp_path,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
            timeout=200,
            check=False,
        )
        assert done.returncode == 0, f"{command}\n{done.stderr[-3000:]}"
        assert done.stdout.strip()
    assert (tmp_path / "runs" / "lists" / "manifest.json").is_file()


def test_the_formula_counts_what_is_sent():
    """The bytes of one step, counted by the collectives, are those of the guide to 5%."""
    pytest.importorskip("torch")
    from tests import ranks

    code = (
        "import numpy as np\n"
        "from rankformer import Interactions, Rankformer\n"
        "from rankformer.data.parts import Parts\n"
        "from rankformer.graph.bipartite import BipartiteGraph\n"
        "from rankformer.graph.collectives import joined_ranks\n"
        "from rankformer.training.trainer import TrainingLoop\n"
        "draws = np.random.default_rng(0)\n"
        "log = Interactions.from_indices(draws.integers(0, 300, 3000), draws.integers(0, 500, 3000), 300, 500)\n"
        "model = Rankformer(num_layers=3, embedding_dim=32)\n"
        "with joined_ranks(60) as ranks:\n"
        "    parts = Parts.of(log, np.zeros(3000, dtype=np.int8)).block_of(ranks.rank, ranks.size)\n"
        "    graph = BipartiteGraph.from_interactions(parts.train)\n"
        "    loop = TrainingLoop(model.network_class(graph.num_users, 500, model.settings), graph, model.settings)\n"
        "    before = ranks.bytes_sent\n"
        "    loop.progress.epoch = 1\n"
        "    loop.one_epoch()\n"
        "    print(ranks.bytes_sent - before)\n"
    )
    sent = int(ranks.run(3, "-c", code))
    m, d, layers = 500, 32, 3
    wanted = 2 / 3 * (8 * ((2 * layers + 2) * m * d + layers * (m + d**2 + 2 * d + 1)) + 8 * m * d)
    assert sent == pytest.approx(wanted, rel=0.05)
