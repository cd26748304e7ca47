"""Scores of every method after a few epochs on the demo, as they were when they were recorded: refactoring moves none.

`python -m tests.contracts.test_recorded_results` records them anew; only a change that is meant to move results may.
"""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from rankformer.data.demo import demo_parts
from rankformer.models.registry import MODELS

RECORDED = Path(__file__).with_name("recorded_results.json")
NAMES = [name for name in MODELS if name != "blend"]  # what a blend has time for is not a matter of the seed
USERS, ITEMS = [0, 137, 450, 899], [0, 33, 210, 399]


def settings_of(method):
    """Few epochs, and nothing that is searched."""
    fields = method.settings_class.model_fields
    small = {"epochs": 2, "validate_every": 1, "tune": False, "iterations": 3}
    return {name: value for name, value in small.items() if name in fields}


def results_of(name):
    torch.manual_seed(0)  # which nothing may depend on
    train, valid, _ = demo_parts()
    model = MODELS[name](seed=3, **settings_of(MODELS[name])).fit(train, valid, verbose=False)
    with torch.no_grad():
        scores = model.recommender.scorer.scores(torch.arange(train.num_users)).double().numpy()
    some = scores[np.ix_(USERS, ITEMS)]
    return {"mean": scores.mean(), "deviation": scores.std(), "some": some.round(6).ravel().tolist()}


@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize("name", NAMES)
def test_scores_are_what_they_were(name):
    recorded, found = json.loads(RECORDED.read_text(encoding="utf-8"))[name], results_of(name)
    for what, expected in recorded.items():
        close = 2e-4 * recorded["deviation"]
        np.testing.assert_allclose(found[what], expected, rtol=2e-4, atol=close, err_msg=f"{name}: {what}")


if __name__ == "__main__":
    RECORDED.write_text(json.dumps({name: results_of(name) for name in NAMES}, indent=1) + "\n", encoding="utf-8")
