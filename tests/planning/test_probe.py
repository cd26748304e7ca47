import subprocess
import sys

import pytest

from rankformer.errors import RankformerError
from rankformer.models.ease import EASE
from rankformer.models.matrix_factorization import MatrixFactorization
from rankformer.planning.probe import probe

pytestmark = pytest.mark.usefixtures("one_thread")


def test_a_fit_is_measured_in_a_process_of_its_own(invented):
    log = invented(10_000, 10_000, 100_000)
    cost = probe(MatrixFactorization(embedding_dim=32), log, log.rows(range(1000)), {})
    tables = 4 * 4 * 20_000 * 32
    assert cost.interactions == 100_000
    assert tables < cost.growth < 40 * tables
    assert min(cost.epoch, cost.validation) > 0
    assert cost.epoch < 5
    wider = probe(MatrixFactorization(embedding_dim=32), log, log.rows(range(1000)), {"embedding_dim": 256})
    assert wider.growth > cost.growth + 4 * tables


def test_without_a_validation_part_nothing_is_validated(invented):
    log = invented(100, 50, 1_000)
    cost = probe(MatrixFactorization(embedding_dim=4), log, log.rows([]), {})
    assert cost.validation == 0
    assert cost.epoch > 0


def test_a_method_that_is_solved_has_no_epochs(invented):
    log = invented(100, 50, 1_000)
    cost = probe(EASE(), log, log.rows(range(50)), {})
    assert cost.epoch == 0
    assert cost.setup > 0


def test_a_fit_that_fails_says_why(invented):
    log = invented(100, 50, 1_000)
    with pytest.raises(RankformerError, match=r"fitting mf on a sample of 1,000 interactions failed: .*not finite"):
        probe(MatrixFactorization(), log, log.rows([]), {"learning_rate": 1e38})


def test_a_script_without_a_guard_can_be_planned(tmp_path):
    """As a user's file or notebook does it: the call stands at the top level."""
    script = tmp_path / "script.py"
    script.write_text(
        "from rankformer import Interactions, MatrixFactorization\n"
        "from rankformer.planning.probe import probe\n"
        "log = Interactions.from_indices([0, 0, 1, 1], [0, 1, 1, 2])\n"
        "print(probe(MatrixFactorization(), log, log.rows([]), {}).interactions)\n",
        encoding="utf-8",
    )
    run = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=100)
    assert run.stdout == "4\n", run.stderr
