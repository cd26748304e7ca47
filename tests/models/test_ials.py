"""iALS: both sides solve their normal equations, and a history gives back the user it belongs to."""

import numpy as np
import pytest
import torch
from tests.repeated_logs import repeated_log

from rankformer.errors import ConfigError, TrainingError
from rankformer.models.ials import IALS
from rankformer.scoring.fold_in import embed
from rankformer.scoring.histories import Histories

pytestmark = pytest.mark.usefixtures("one_thread")

WEIGHT, REGULARIZATION = 6.0, 0.18


@pytest.fixture(scope="module")
def log():
    """30 users x 20 items; user 29 and item 19 have no pair, and some pairs are repeated."""
    return repeated_log(30, 20, 160, repeats=15)


@pytest.fixture(scope="module", params=[0.0, 1.0])
def exponent(request):
    return request.param


@pytest.fixture(scope="module", params=[5, 40])  # histories longer than the dimension, and shorter ones
def model(log, exponent, request):
    settings = {"weight": WEIGHT, "regularization": REGULARIZATION, "frequency_exponent": exponent}
    return IALS(embedding_dim=request.param, iterations=80, **settings).fit(log)


def solve_dense(counts, fixed, exponent):
    """Embeddings of one side by the normal equations over all pairs, the other side's being fixed."""
    rows = []
    for count in counts:
        confidence = 1 + (WEIGHT - 1) * count
        strength = (WEIGHT - 1) * REGULARIZATION * (count.sum() + len(count) / (WEIGHT - 1)) ** exponent
        matrix = fixed.T @ (confidence[:, None] * fixed) + strength * np.eye(fixed.shape[1])
        rows.append(np.linalg.solve(matrix, fixed.T @ (WEIGHT * count)))
    return np.array(rows)


def counts_of(log):
    counts = np.zeros((log.num_users, log.num_items))
    np.add.at(counts, (log.users, log.items), 1)
    return counts


def test_the_users_solve_their_normal_equations_exactly_and_the_items_nearly(log, model, exponent):
    users, items = (side.double().numpy() for side in (model.embeddings.users, model.embeddings.items))
    counts = counts_of(log)
    np.testing.assert_allclose(users, solve_dense(counts, items, exponent), rtol=0, atol=1e-6)
    np.testing.assert_allclose(items, solve_dense(counts.T, users, exponent), rtol=1e-2, atol=1e-3)
    assert np.abs(users).max() > 0.1


def test_one_iteration_is_enough_for_users_that_fit_their_items(log):
    """The last solve is exact however little the iterations before it did."""
    model = IALS(embedding_dim=5, weight=WEIGHT, regularization=REGULARIZATION, iterations=1).fit(log)
    users, items = (side.double().numpy() for side in (model.embeddings.users, model.embeddings.items))
    np.testing.assert_allclose(users, solve_dense(counts_of(log), items, 1.0), rtol=0, atol=1e-6)


def test_a_training_users_history_gives_back_its_row(log, model):
    rows = embed(model.embeddings.fold_in, Histories.of(log.users, log.items, log.num_users))
    torch.testing.assert_close(rows.float(), model.embeddings.users, rtol=0, atol=1e-6)


def test_the_parts_of_the_history_sum_to_the_score(log, model):
    scores = model.embeddings.users.double() @ model.embeddings.items.double().T
    for user, item in ((0, 3), (7, 7), (12, 0)):
        found = model.explain(user, item)
        assert sum(reason.contribution for reason in found.reasons) == pytest.approx(found.score, abs=1e-5)
        assert found.score == pytest.approx(float(scores[user, item]), abs=1e-9)
        assert (found.user_contribution, found.global_contribution) == (0.0, 0.0)
        assert {reason.item_id for reason in found.reasons} == set(log.items[log.users == user].tolist())


@pytest.mark.parametrize(
    "wrong",
    [{"weight": 1.0}, {"frequency_exponent": -1}, {"regularization": 0}, {"iterations": 0}, {"embedding_dim": 0}],
)
def test_settings_without_a_solution_are_refused(wrong):
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        IALS(**wrong)


@pytest.mark.parametrize("setting", [{"regularization": 1e37}, {"frequency_exponent": 500.0}])
def test_a_setting_without_a_solution_is_named(log, setting):
    [name] = setting
    with pytest.raises(TrainingError, match=f"try a smaller {name}"):
        IALS(embedding_dim=4, **setting).fit(log)
