import time

import pytest

from rankformer.models.rankformer import Rankformer
from rankformer.planning.sample import invented
from rankformer.planning.seconds import continued, measure_seconds, steps_per_epoch

pytestmark = pytest.mark.usefixtures("one_thread")

TINY = {"embedding_dim": 8, "num_layers": 1}


def test_growth_is_continued_with_the_exponent_that_was_seen():
    assert continued((100, 1.0), (400, 4.0 * 4**0.1), 1600) == pytest.approx(16 * 16**0.1)
    assert continued((100, 1.0), (400, 4.4), 400) == 4.4
    assert continued((100, 1.0), (400, 4.4), 200) == 4.4
    assert continued((100, 1.0), (400, 1.0), 1600) == pytest.approx(4)  # at least in proportion
    assert continued((100, 1.0), (400, 90.0), 1600) == pytest.approx(90 * 4**1.25)  # at most this steep
    assert continued((100, 1.0), (100, 1.0), 400) == pytest.approx(4)


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
