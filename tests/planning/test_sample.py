import numpy as np
import pytest

from rankformer.planning.sample import invented, smaller


def test_a_small_log_is_itself():
    log = invented(30, 20, 100)
    assert smaller(log, 100) is log


def test_a_smaller_log_keeps_the_shape():
    log = invented(6_000, 4_000, 100_000)
    small = smaller(log, 20_000)
    assert len(small) == pytest.approx(20_000, rel=0.05)
    assert (small.num_users, small.num_items) == (1200, 800)
    for whole, part in ((log.users, small.users), (log.items, small.items)):
        shares = [np.percentile(np.bincount(column), [10, 50, 90, 99]) for column in (whole, part)]
        np.testing.assert_allclose(shares[1], shares[0], rtol=0.2)


def test_invented_logs_fill_the_sizes_asked_for():
    log = invented(30, 20, 5_000)
    assert (log.num_users, log.num_items, len(log)) == (30, 20, 5_000)
    assert len(np.unique(log.users)) == 30
    assert len(np.unique(log.items)) == 20
