import pytest

from rankformer.research.figures import alpha_cells, random_cells, show_alpha, show_random, show_tau, tau_cells

from .conftest import made_up


def test_figure_tau_has_a_line_per_depth_and_shares_the_point_without_layers(request_for, card):
    request = request_for(step=0.5, epochs=2)
    cells = tau_cells(request)
    assert len({cell.key for cell in cells}) == 5 * 2 + 1
    results = {cell.key: made_up(0.1 * cell.settings["num_layers"] + 0.1 * cell.settings["tau"]) for cell in cells}
    content = show_tau(request, results)
    [panel] = content.picture.panels
    assert [line.label for line in panel.lines] == [f"L = {depth}" for depth in range(1, 6)]
    assert panel.lines[2].y == pytest.approx((0.1, 0.35, 0.4), abs=1e-6)
    assert content.picture.remark.startswith("grid: tau in steps of 0.5 (the paper's: 0.1); trial")
    assert (panel.x_label, panel.y_label) == ("step size tau", "test NDCG@20")


def test_figure_alpha_is_over_the_values_asked_for(request_for):
    request = request_for(alphas=(0.0, 2.0, 4.0), seeds=(0, 1))
    results = {c.key: made_up(0.4 - 0.05 * abs(c.settings["alpha"] - 2) + 0.1 * c.seed) for c in alpha_cells(request)}
    content = show_alpha(request, results)
    [line] = content.picture.panels[0].lines
    assert line.x == (0.0, 2.0, 4.0)
    assert line.y == pytest.approx((0.35, 0.45, 0.35), abs=1e-6)
    assert line.spread == pytest.approx((0.1 / 2**0.5,) * 3, abs=1e-6)
    assert "rises to its best at 2 and falls" in content.findings[0]


def test_figure_random_has_both_readings_of_both_methods(request_for):
    request = request_for(layers=2, seeds=(0, 1))
    cells = random_cells(request)
    assert len(cells) == 8
    content = show_random(request, {cell.key: {"ndcg@20": [0.0, 0.1, 0.2 + cell.seed]} for cell in cells})
    [panel] = content.picture.panels
    assert len(panel.lines) == 4
    assert panel.lines[0].y == pytest.approx((0.0, 0.1, 0.7))
    assert content.tables[0].rows[2][1].startswith("0.7000 ± 0.7071")


@pytest.mark.parametrize("show", [show_random, show_tau, show_alpha])
def test_without_results_a_figure_has_no_picture_and_a_table(request_for, show):
    content = show(request_for(step=0.5, alphas=(0.0, 1.0)), {})
    assert content.picture is None
    assert content.tables
