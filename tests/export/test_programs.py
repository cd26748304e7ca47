"""The scorer as a program of torch.export; tests/tracking has ONNX."""

import numpy as np
import pytest
import torch

from rankformer.errors import RankformerError
from rankformer.export.exporter import export_run, make_target
from rankformer.export.programs import TorchProgram

from .conftest import ITEMS, USERS, make_run

TESTED = {"torch.export": ("target", "torch", "torch-export")}

WARM = int(np.flatnonzero(~make_run().recommender.cold)[0])


def known_pairs(recommender, users):
    """Return what the lists of these users leave out: (position, item) of each known interaction."""
    pairs = [(at, item) for at, user in enumerate(users) for item in recommender.history_of(user)]
    return np.array(pairs, dtype=np.int64).reshape(-1, 2)


@pytest.mark.parametrize(("users", "k"), [(range(USERS), 10), ([WARM], 2), ([WARM, WARM, 2], ITEMS)])
def test_lists_are_those_of_recommend(saved, tmp_path, users, k):
    outcome = export_run(saved(), make_target("torch-export"), tmp_path / "out")
    assert outcome.self_test.searches == [f"torch {torch.__version__}"]
    recommender = make_run().recommender
    run = torch.export.load(tmp_path / "out" / "scorer.pt2").module()
    items, scores = run(torch.tensor(users), torch.from_numpy(known_pairs(recommender, users)), k)
    assert items.shape == scores.shape == (len(users), k)
    for user, chosen, values in zip(users, items.numpy(), scores.numpy(), strict=True):
        if recommender.cold[user]:
            continue
        own, left = recommender.recommend([user], k).table, np.isfinite(values)
        assert recommender.item_ids.take(chosen[left]).equals(own["item_id"].combine_chunks())
        assert np.allclose(values[left], own["score"].to_numpy(), atol=1e-5)


def test_another_program_fails_the_self_test(saved, tmp_path):
    class Negative(TorchProgram):
        def searches(self, folder, tables, users, k):
            return super().searches(folder, tables, users[::-1].copy(), k)

    with pytest.raises(RankformerError, match="ranks otherwise"):
        export_run(saved(), Negative(), tmp_path / "out")
