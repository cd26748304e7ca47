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
    """The bytes of one step, counted by the collectives, are those of the guide and of `plan --ranks`, to 2%."""
    pytest.importorskip("torch")
    from tests import ranks

    from rankformer.planning.ranks import Size, bytes_sent

    code = (
        "import sys, numpy as np\n"
        "from rankformer import Interactions, LightGCN, MatrixFactorization, Rankformer\n"
        "from rankformer.data.parts import Parts\n"
        "from rankformer.graph.bipartite import BipartiteGraph\n"
        "from rankformer.graph.collectives import joined_ranks\n"
        "from rankformer.training.trainer import TrainingLoop\n"
        "draws = np.random.default_rng(0)\n"
        "log = Interactions.from_indices(draws.integers(0, 300, 3000), draws.integers(0, 500, 3000), 300, 500)\n"
        "with joined_ranks(60, sys.argv[1] if sys.argv[1:] else None) as ranks:\n"
        "    parts = Parts.of(log, np.zeros(3000, dtype=np.int8)).block_of(ranks.rank, ranks.size)\n"
        "    graph = BipartiteGraph.from_interactions(parts.train)\n"
        "    layers = Rankformer(num_layers=3, embedding_dim=32), LightGCN(num_layers=2, embedding_dim=32)\n"
        "    for model in (*layers, MatrixFactorization(embedding_dim=32)):\n"
        "        network = model.network_class(graph.num_users, 500, model.settings)\n"
        "        loop = TrainingLoop(network, graph, model.settings)\n"
        "        before, loop.progress.epoch = ranks.bytes_sent, 1\n"
        "        loop.one_step(next(iter(network.batches(graph, 1))))\n"
        "        print(ranks.bytes_sent - before)\n"
    )
    m, d, layers = 500, 32, 3
    guide = 8 * ((2 * layers + 2) * m * d + layers * (m + d**2 + 2 * d + 1)) + 8 * m * d
    for count, wire in ((3, 4), (2, 2)):
        sent = ranks.run(count, "-c", code, *(["bfloat16"] if wire == 2 else []))
        for name, depth, found in zip(("rankformer", "lightgcn", "mf"), (layers, 2, 0), sent.split(), strict=True):
            assert int(found) == pytest.approx(bytes_sent(name, Size(300, m, 3000, d, depth), count, wire), rel=0.02)
    assert bytes_sent("rankformer", Size(300, m, 3000, d, layers), 3) == pytest.approx(2 / 3 * guide, rel=1e-9)
