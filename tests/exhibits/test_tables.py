"""What the three tables and the figures say of results: made up here, so that each outcome can be had."""

import numpy as np
import pytest

from rankformer.exhibits.ablation import VARIANTS, ablation_cells, show_ablation
from rankformer.exhibits.comparison import METHODS, comparison_cells, show_comparison
from rankformer.exhibits.figures import alpha_cells, random_cells, show_alpha, show_random, show_tau, tau_cells
from rankformer.exhibits.runtime import runtime_cells, show_runtime
from rankformer.exhibits.trained import pack
from rankformer.models.registry import MODELS

NOISE = np.random.default_rng(0).random(400) * 0.1


def result(score, workers=1):
    """A training's result in which every user is near `score`."""
    users = np.clip(score + NOISE - NOISE.mean(), 0, 1)
    names = ("ndcg@20", "recall@20", "recall_capped@20")
    course = {"epochs": 40, "best_epoch": 20, "seconds_per_epoch": 0.5, "seconds": 30.0, "seconds_to_best": 15.0}
    return {
        "metrics": dict.fromkeys(names, float(users.mean())),
        "per_user": {name: pack(users) for name in names},
        "course": course,
        "failed": None,
        "conditions": {"threads": 1, "workers": workers, "device": "cpu"},
        "versions": {},
        "protocol": {},
    }


def paper_card(card, name="ali-display"):
    from dataclasses import replace

    return replace(card, name=name)


def table_row(table, name):
    return next(dict(zip(table.headings, row, strict=True)) for row in table.rows if row[0] == name)


@pytest.fixture
def compared(request_for, card):
    request = request_for(datasets=(paper_card(card),), seeds=(0, 1))
    scores = {"rankformer": 0.3, "lightgcn": 0.2, "mf": 0.1, "popularity": 0.35}
    cells = comparison_cells(request)
    results = {cell.key: result(scores[cell.model] + 0.01 * cell.seed) for cell in cells if cell.model in scores}
    return request, show_comparison(request, results)


def test_the_comparison_sets_the_paper_beside_ours(compared):
    _, content = compared
    row = table_row(content.tables[0], "Rankformer")
    assert row["NDCG@20 published"] == "0.0652"
    assert row["NDCG@20 ours"] == "0.3050 ± 0.0071"
    assert row["difference"] == f"{0.305 - 0.0652:+.4f} ({100 * (0.305 - 0.0652) / 0.0652:+.1f}%)"
    assert (row["seeds"], row["settings"]) == ("2", "made up for tests")


def test_methods_that_are_not_there_yet_and_rows_not_run_say_so(compared):
    _, content = compared
    assert len(content.tables[0].rows) == len(METHODS)
    assert table_row(content.tables[0], "XSimGCL")["settings"] == "not run"
    for method in set(METHODS) - set(MODELS):
        from rankformer.exhibits.published import METHOD_NAMES

        row = table_row(content.tables[0], METHOD_NAMES[method])
        assert row["settings"] == "not available in this version"


def test_the_lead_is_tested_against_the_best_of_the_others(compared):
    _, content = compared
    first, second = content.findings
    assert "Rankformer leads LightGCN" in first
    assert "significant at p < 0.05" in first
    assert "not significant" not in first
    assert "Rankformer is behind popularity, the best of simple methods" in second
    leads = content.data["ali-display"]["leads"]
    assert {(lead["runner_up"], lead["metric"]) for lead in leads} == {
        (runner, metric) for runner in ("lightgcn", "popularity") for metric in ("ndcg@20", "recall_capped@20")
    }
    assert leads[0]["published_gain"] == 0.42
    assert leads[0]["test"]["difference"] == pytest.approx(0.1, abs=1e-6)


def test_each_row_has_its_command(compared):
    _, content = compared
    assert ("MF, ali-display", "rankformer train ali-display --model mf --out RUN") in content.tables[-1].rows


def test_rows_can_be_chosen(request_for, card):
    cells = comparison_cells(request_for(methods=("mf", "popularity")))
    assert {cell.model for cell in cells} == {"mf", "popularity"}


def test_public_numbers_of_the_other_yelp_use_the_other_recall(request_for, card):
    request = request_for(datasets=(paper_card(card, "yelp2018-lightgcn"),), methods=("lightgcn",))
    content = show_comparison(request, {})
    assert table_row(content.tables[0], "LightGCN")["recall published"] == "0.0653"
    assert content.tables[0].title == "yelp2018-lightgcn: NDCG@20 and recall@20"
    assert "train and valid together" in content.notes[0]


@pytest.mark.parametrize(
    ("swapped", "words"), [(False, "the paper's order of effects"), (True, "not the paper's order of effects")]
)
def test_the_ablation_says_whether_the_order_is_the_papers(request_for, card, swapped, words):
    request = request_for(datasets=(paper_card(card),))
    order = ["w/o normalization", "w/o negative pairs", "w/o offset", "w/o benchmark", "full"]
    if swapped:
        order[1], order[2] = order[2], order[1]
    cells = ablation_cells(request)
    assert [cell.settings["negatives"] for cell in cells] == ["push", "none", "push", "push", "push"]
    assert [cell.settings["benchmark"] for cell in cells] == [True, True, False, True, True]
    assert [cell.settings["alpha"] for cell in cells] == [2.0, 2.0, 2.0, 0.0, 2.0]
    assert [cell.settings["normalize"] for cell in cells] == [True, True, True, True, False]
    results = {cell.key: result(0.1 + 0.1 * order.index(name)) for cell, name in zip(cells, VARIANTS, strict=True)}
    content = show_ablation(request, results)
    assert words in content.findings[0]
    assert ("not" in content.findings[0].split(";")[0]) is swapped
    assert table_row(content.tables[0], "w/o benchmark")["NDCG@20 paper"] == "0.0641"


def test_an_ablation_with_a_gap_draws_no_conclusion(request_for, card):
    request = request_for(datasets=(paper_card(card),))
    cells = ablation_cells(request)
    content = show_ablation(request, {cell.key: result(0.2) for cell in cells[:-1]})
    assert content.findings == (
        "ali-display: the order of effects is open, nothing was measured for w/o normalization.",
    )


def test_the_runtime_table_uses_the_comparisons_trainings_and_says_how_they_ran(request_for, card):
    request = request_for(datasets=(paper_card(card),))
    cells = runtime_cells(request)
    assert [cell.key for cell in cells] == [cell.key for cell in comparison_cells(request)]
    workers = {"rankformer": 1, "lightgcn": 3}
    content = show_runtime(request, {c.key: result(0.2, workers[c.model]) for c in cells if c.model in workers})
    ours, light = (table_row(content.tables[0], name) for name in ("Rankformer", "LightGCN"))
    assert (ours["timed"], light["timed"]) == ("1 thread, alone", "1 thread, beside 2 others")
    assert (ours["seconds per epoch"], ours["seconds to best"], ours["best epoch"]) == ("0.5", "15.0", "20")
    assert ours["paper's seconds (GPU)"] == "109"
    assert light["paper's seconds (GPU)"] == "1,687 / 99 (source code / rewrite)"
    assert content.findings == (
        "ali-display: Rankformer reaches its best validation after 15.0 s here, the paper's GPU run took 109 s.",
    )


def test_figure_tau_has_a_line_per_depth_and_shares_the_point_without_layers(request_for, card):
    request = request_for(step=0.5, epochs=2)
    cells = tau_cells(request)
    assert len({cell.key for cell in cells}) == 5 * 2 + 1
    results = {cell.key: result(0.1 * cell.settings["num_layers"] + 0.1 * cell.settings["tau"]) for cell in cells}
    content = show_tau(request, results)
    [panel] = content.picture.panels
    assert [line.label for line in panel.lines] == [f"L = {depth}" for depth in range(1, 6)]
    assert panel.lines[2].y == pytest.approx((0.1, 0.35, 0.4), abs=1e-6)
    assert content.picture.remark.startswith("grid: tau in steps of 0.5 (the paper's: 0.1); trial")
    assert (panel.x_label, panel.y_label) == ("step size tau", "test NDCG@20")


def test_figure_alpha_is_over_the_values_asked_for(request_for):
    request = request_for(alphas=(0.0, 2.0, 4.0), seeds=(0, 1))
    results = {c.key: result(0.4 - 0.05 * abs(c.settings["alpha"] - 2) + 0.1 * c.seed) for c in alpha_cells(request)}
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


@pytest.mark.parametrize("show", [show_comparison, show_ablation, show_runtime, show_random, show_tau, show_alpha])
def test_without_results_every_exhibit_is_whole(request_for, show):
    content = show(request_for(step=0.5, alphas=(0.0, 1.0)), {})
    assert content.picture is None
    assert content.tables
