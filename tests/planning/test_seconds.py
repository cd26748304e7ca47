import time

import pytest
import torch

from rankformer.models.rankformer import Rankformer
from rankformer.planning.sample import invented
from rankformer.planning.seconds import continued, measure_seconds, steps_per_epoch

TINY = {"embedding_dim": 8, "num_layers": 1}


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def test_the_line_through_two_points_is_continued():
    assert continued(1, 1.0, 2, 3.0, 10) == 19
    assert continued(1, 1.0, 2, 3.0, 2) == 3
    assert continued(1, 3.0, 2, 3.0, 10) == 15  # no rise seen: in proportion
    assert continued(2, 3.0, 2, 3.0, 4) == 6


def test_an_epoch_has_a_step_per_batch():
    assert steps_per_epoch(Rankformer(), 1000) == 1
    assert steps_per_epoch(Rankformer(batch_size=300), 1000) == 4
    assert steps_per_epoch(Rankformer(batch_size=3000), 1000) == 1


def test_a_small_log_is_timed_whole():
    log = invented(200, 100, 2_000)
    seconds = measure_seconds(Rankformer(**TINY), log, log)
    assert seconds.timed_pairs == 2_000
    assert 0 < seconds.epoch < 5
    assert 0 < seconds.validation < 5
    assert measure_seconds(Rankformer(**TINY), log, None).validation == 0


@pytest.mark.parametrize("batch_size", [None, 1_000])
def test_a_log_too_large_to_time_is_timed_on_less(monkeypatch, batch_size):
    monkeypatch.setattr("rankformer.planning.seconds.LONGEST_STEP", 0.0)
    log = invented(6_000, 4_000, 100_000)
    started = time.perf_counter()
    seconds = measure_seconds(Rankformer(batch_size=batch_size, **TINY), log, None)
    assert seconds.timed_pairs < 25_000
    assert 0 < seconds.epoch < 100
    assert time.perf_counter() - started < 20
