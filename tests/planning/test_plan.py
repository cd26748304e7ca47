import numpy as np
import pytest

from rankformer.data.interactions import Parts
from rankformer.errors import ConfigError, RankformerError
from rankformer.models.matrix_factorization import MatrixFactorization
from rankformer.models.popularity import Popularity
from rankformer.models.rankformer import Rankformer
from rankformer.planning.memory import Shape
from rankformer.planning.plan import changes_that_fit, forecast, make_plan
from rankformer.planning.probe import forecast_measured
from rankformer.planning.sample import invented

LARGE = Shape(1_000_000, 500_000, 20_000_000)


def parts(validates=True):
    log = invented(60, 40, 600)
    few = np.arange(len(log)) < 30
    return Parts(log.rows(~few), log.rows(few & validates), log.rows(np.zeros(len(log), bool)))


def test_a_plan_says_what_a_run_takes_at_most():
    plan = make_plan(Rankformer(embedding_dim=8, num_layers=1, epochs=50, validate_every=20), parts())
    assert (plan.users, plan.items, plan.pairs) == (60, 40, 570)
    assert (plan.epochs, plan.validations) == (50, 3)
    assert plan.seconds_in_all == pytest.approx(50 * plan.seconds.epoch + 3 * plan.seconds.validation)
    assert plan.fits
    assert plan.changes == ()


def test_without_a_validation_part_nothing_is_validated():
    plan = make_plan(Rankformer(embedding_dim=8, num_layers=1, epochs=50), parts(validates=False))
    assert plan.validations == 0
    assert plan.seconds.validation == 0
    assert "validator" not in plan.memory.parts


def test_a_method_without_epochs_has_no_plan():
    with pytest.raises(ConfigError, match="popularity is not trained in epochs"):
        make_plan(Popularity(), parts())


def test_the_mildest_change_that_fits_comes_first():
    model = Rankformer()
    peak = forecast(model, LARGE, 0).peak
    exact = list(changes_that_fit(model, LARGE, 0, int(0.95 * peak)))
    assert exact[0].settings == {"activations": "recompute"}
    assert str(exact[0]) == "--set activations=recompute"
    assert len(exact) == 3
    smaller = list(changes_that_fit(model, LARGE, 0, int(0.6 * peak)))
    assert smaller[0].settings.keys() >= {"activations"}
    assert smaller[0].settings != {"activations": "recompute"}
    assert all(change.peak <= 0.6 * peak for change in smaller)
    assert list(changes_that_fit(model, LARGE, 0, 1000)) == []


def test_changes_are_told_with_the_peak_they_lead_to():
    model = Rankformer()
    change = next(changes_that_fit(model, LARGE, 0, int(0.6 * forecast(model, LARGE, 0).peak)))
    assert forecast(Rankformer(**change.settings), LARGE, 0).peak == change.peak


def test_other_models_are_measured_and_scaled_up(monkeypatch):
    asked = []
    monkeypatch.setattr("rankformer.planning.probe._in_another_process", lambda task: asked.append(task) or 1000)
    model = MatrixFactorization(batch_size=100_000)
    told = forecast(model, Shape(30_000, 20_000, 600_000), process=7)
    assert told.peak == 2007
    assert told.basis == "measured"
    assert asked[0]["sizes"] == [15_000, 10_000, 300_000]
    assert asked[0]["settings"]["batch_size"] == 50_000
    assert list(changes_that_fit(model, LARGE, 0, 1)) == []


def test_a_sample_is_measured_in_a_process_of_its_own():
    told = forecast_measured(MatrixFactorization(embedding_dim=32), Shape(10_000, 10_000, 300_000), process=0)
    tables = 4 * 4 * 20_000 * 32
    assert 2 * tables < told.peak < 20 * tables


def test_a_sample_that_cannot_be_measured_says_why(monkeypatch):
    monkeypatch.setattr(MatrixFactorization, "name", "no such model")
    with pytest.raises(RankformerError, match=r"measuring the memory of no such model .* unknown model"):
        forecast_measured(MatrixFactorization(), Shape(100, 100, 1000), process=0)
