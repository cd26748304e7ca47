"""What several ranks cannot fit is refused before anything is sent."""

import pytest

from rankformer import EASE, MatrixFactorization, Rankformer
from rankformer.errors import ConfigError
from rankformer.graph.collectives import ALONE, Ranks
from rankformer.runs.fitting import check_ranks


@pytest.mark.parametrize(
    ("model", "said"),
    [
        (MatrixFactorization(batch_by="users", batch_size=64), "mf with batch_by=users"),
        (MatrixFactorization(loss="softmax", batch_size=64), "mf with loss=softmax in batches"),
        (Rankformer(layer="softmax"), "rankformer with layer=softmax"),
        (EASE(), "ease"),
    ],
)
def test_what_runs_on_one_rank_only_is_named(model, said):
    with pytest.raises(ConfigError, match=f"^{said} runs on one rank only"):
        check_ranks(model, Ranks(1, 2))
    check_ranks(model, ALONE)


def test_a_full_batch_has_all_users_whatever_batches_would_hold():
    check_ranks(MatrixFactorization(batch_by="users"), Ranks(1, 2))
