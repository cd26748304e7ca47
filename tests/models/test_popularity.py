"""Popularity: counts, and a power of them that changes no list."""

import pytest
from tests.logs import random_log

from rankformer import Popularity
from rankformer.errors import ConfigError

LOG = random_log(30, 20, 200)


def test_a_power_of_the_counts_changes_scores_and_no_list():
    counts, roots = (Popularity(exponent=power).fit(LOG).recommend(k=10).to_pandas() for power in (1.0, 0.5))
    assert counts.item_id.tolist() == roots.item_id.tolist()
    assert roots.score.tolist() == pytest.approx((counts.score**0.5).tolist())
    assert counts.score.iloc[0] == LOG.items.tolist().count(LOG.item_ids.ids.to_pylist().index(counts.item_id.iloc[0]))


@pytest.mark.parametrize("power", [0, -1, 1.5])
def test_a_power_that_would_reorder_is_refused(power):
    with pytest.raises(ConfigError, match="exponent"):
        Popularity(exponent=power)
