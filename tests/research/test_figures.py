import pytest

from rankformer.research.experiments import EXPERIMENTS
from rankformer.research.figures import alpha_shape, best_x, rises_then_falls, tau_shape

from .conftest import made_up

tau_computations, show_tau = EXPERIMENTS["figure-tau"].computations, EXPERIMENTS["figure-tau"].show
alpha_computations, show_alpha = EXPERIMENTS["figure-alpha"].computations, EXPERIMENTS["figure-alpha"].show


def test_figure_tau_has_a_line_per_depth_and_shares_the_point_without_layers(request_for, data):
    request = request_for(step=0.5, epochs=2)
    computations = tau_computations(request)
    assert len({each.key for each in computations}) == 5 * 2 + 1
    results = {
        each.key: made_up(0.1 * each.settings["num_layers"] + 0.1 * each.settings["tau"]) for each in computations
    }
    content = show_tau(request, results)
    [panel] = content.picture.panels
    assert [line.label for line in panel.lines] == [f"L = {depth}" for depth in range(1, 6)]
    assert panel.lines[2].y == pytest.approx((0.1, 0.35, 0.4), abs=1e-6)
    assert content.picture.remark.startswith("grid: tau in steps of 0.5 (the paper's: 0.1); trial")
    assert (panel.x_label, panel.y_label) == ("tau", "test NDCG@20")


def test_figure_alpha_is_over_the_values_asked_for(request_for):
    request = request_for(alphas=(0.0, 2.0, 4.0), seeds=(0, 1))
    results = {
        c.key: made_up(0.4 - 0.05 * abs(c.settings["alpha"] - 2) + 0.1 * c.seed) for c in alpha_computations(request)
    }
    content = show_alpha(request, results)
    [line] = content.picture.panels[0].lines
    assert line.x == (0.0, 2.0, 4.0)
    assert line.y == pytest.approx((0.35, 0.45, 0.35), abs=1e-6)
    assert line.spread == pytest.approx((0.1 / 2**0.5,) * 3, abs=1e-6)
    assert "rises to its best at 2 and falls" in content.findings[0]


@pytest.mark.parametrize("show", [show_tau, show_alpha])
def test_without_results_a_figure_has_no_picture_and_a_table(request_for, show):
    content = show(request_for(step=0.5, alphas=(0.0, 1.0)), {})
    assert content.picture is None
    assert content.tables


def test_the_first_of_equal_places_is_the_best():
    assert best_x({0.0: 1.0, 0.5: 2.0, 1.0: 2.0}) == 0.5


def test_a_curve_in_words():
    assert rises_then_falls({0: 1.0, 1: 3.0, 2: 2.0}) == "rises to its best at 1 and falls"
    assert "ups and downs" in rises_then_falls({0: 1.0, 1: 0.5, 2: 3.0, 3: 2.0})
    assert "the last value, 2" in rises_then_falls({0: 1.0, 1: 2.0, 2: 3.0})
    assert "the first value, 0" in rises_then_falls({0: 4.0, 1: 2.0, 2: 3.0})


def test_tau_has_the_papers_shape_when_its_best_value_falls_with_depth():
    early, late = {0.0: 1.0, 0.5: 3.0, 1.0: 2.0}, {0.0: 1.0, 0.5: 2.0, 1.0: 3.0}
    assert "as in the paper" in tau_shape({"L = 1": late, "L = 2": early})[-1]
    assert "not the paper's" in tau_shape({"L = 1": early, "L = 2": late})[-1]
    assert "not the paper's" in tau_shape({"L = 1": early, "L = 2": early})[-1]
    assert tau_shape({"L = 1": {0.0: 1.0}}) == ["too few values of tau were measured to show a shape."]


def test_alpha_has_the_papers_shape_when_it_rises_and_falls():
    assert "as in the paper" in alpha_shape({"Rankformer": {0: 1.0, 2: 3.0, 4: 2.0}})[0]
    assert "not the paper's" in alpha_shape({"Rankformer": {0: 1.0, 2: 2.0, 4: 3.0}})[0]
    assert "too few" in alpha_shape({"Rankformer": {0: 1.0}})[0]
