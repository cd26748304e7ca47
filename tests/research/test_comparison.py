import pytest

from rankformer.models.registry import MODELS
from rankformer.research.experiments import EXPERIMENTS
from rankformer.research.published import METHODS

from .conftest import called, made_up, table_row

comparison_computations = EXPERIMENTS["table-comparison"].computations
show_comparison, show_runtime = (EXPERIMENTS[name].show for name in ("table-comparison", "table-runtime"))

PLUG_IN = "rankformer.models.matrix_factorization:MatrixFactorization"


@pytest.fixture
def compared(request_for, data):
    request = request_for(datasets=(called(data),), seeds=(0, 1))
    scores = {"rankformer": 0.3, "lightgcn": 0.2, "mf": 0.1, "popularity": 0.35}
    computations = comparison_computations(request)
    results = {
        each.key: made_up(scores[each.model] + 0.01 * each.seed) for each in computations if each.model in scores
    }
    return request, show_comparison(request, results)


def test_the_comparison_sets_the_paper_beside_ours(compared):
    _, content = compared
    row = table_row(content.tables[0], "Rankformer")
    assert row["NDCG paper"] == "0.0652"
    assert row["NDCG ours"] == "0.3050±.0071"
    assert row["gap"] == f"{100 * (0.305 - 0.0652) / 0.0652:+.1f}%"
    assert row["seeds"] == "2"
    assert content.data["ali-display"]["rows"]["rankformer"]["settings_from"] == "made up for tests"


def test_only_rows_with_a_result_are_shown_and_the_others_named(compared):
    _, content = compared
    assert [row[0] for row in content.tables[0].rows] == ["MF", "LightGCN", "Rankformer", MODELS["popularity"].title]
    assert "ali-display: no result for DualVAE, MGFormer" in content.notes[-1]


def test_every_registered_method_is_a_row_the_papers_first(request_for):
    rows = request_for().rows
    assert rows[: len(METHODS)] == METHODS
    assert set(rows) == set(MODELS)


def test_the_improvement_is_tested_against_the_best_baseline(compared):
    _, content = compared
    first, second = content.findings
    assert "Rankformer improves on LightGCN, the best of the paper's methods" in first
    assert "(significant at p < 0.05" in first
    assert f"Rankformer is below {MODELS['popularity'].title}, the best of the methods that the paper leaves" in second
    found = content.data["ali-display"]["improvements"]
    assert {(each["best_baseline"], each["metric"]) for each in found} == {
        (name, metric) for name in ("lightgcn", "popularity") for metric in ("ndcg@20", "recall_capped@20")
    }
    assert found[0]["published_percent"] == 0.42
    assert found[0]["test"]["difference"] == pytest.approx(0.1, abs=1e-6)
    assert content.tables[1].rows[0][:5] == ("Rankformer over LightGCN", "NDCG", "+48.78%", "+48.8 to +48.8%", "+0.42%")


def test_each_row_has_a_command_that_needs_nothing_but_the_package(compared, data):
    _, content = compared
    command = f"rankformer reproduce table-comparison --dataset {data.source.source} --methods mf --seeds 2"
    assert ("MF, ali-display", command) in content.commands


def test_the_command_names_other_configurations(request_for, data):
    request = request_for(methods=("mf",), configs="paper")
    content = show_comparison(request, {each.key: made_up(0.1) for each in comparison_computations(request)})
    assert content.commands[0][1].endswith(" --methods mf --seeds 1 --configs paper")


def test_a_row_of_ones_own_stands_beside_the_papers(request_for):
    request = request_for(methods=("rankformer", PLUG_IN))
    scores = {"rankformer": 0.3, PLUG_IN: 0.2}
    content = show_comparison(request, {c.key: made_up(scores[c.model]) for c in comparison_computations(request)})
    assert [row[0] for row in content.tables[0].rows] == ["Rankformer", "MF"]
    assert content.data["tiny"]["improvements"][0]["best_baseline"] == PLUG_IN


def test_rows_can_be_chosen(request_for):
    computations = comparison_computations(request_for(methods=("mf", "popularity")))
    assert {each.model for each in computations} == {"mf", "popularity"}


def test_public_numbers_of_the_other_yelp_use_the_other_recall(request_for, data):
    request = request_for(datasets=(called(data, "yelp2018-lightgcn"),), methods=("lightgcn",))
    content = show_comparison(request, {each.key: made_up(0.1) for each in comparison_computations(request)})
    assert table_row(content.tables[0], "LightGCN")["recall paper"] == "0.0653"
    assert content.tables[0].title == "yelp2018-lightgcn: NDCG@20 and recall@20"
    assert "train and valid together" in content.notes[0]


def test_a_training_that_stopped_early_is_marked(request_for):
    request = request_for(methods=("mf",))
    [training] = comparison_computations(request)
    content = show_comparison(request, {training.key: {**made_up(0.1), "failed": "the loss is not finite"}})
    assert content.tables[0].rows[0][0] == "MF (*)"
    assert "(*) stopped early" in content.tables[0].title


def test_the_runtime_table_says_how_the_trainings_ran(request_for, data):
    request = request_for(datasets=(called(data),))
    workers = {"rankformer": 1, "lightgcn": 3}
    computations = [each for each in comparison_computations(request) if each.model in workers]
    content = show_runtime(request, {each.key: made_up(0.2, workers[each.model]) for each in computations})
    ours, light = (table_row(content.tables[0], name) for name in ("Rankformer", "LightGCN"))
    assert content.tables[0].title == "ali-display: runtime (cpu; threads each: 1; trainings at a time: up to 3)"
    assert (ours["s per epoch"], ours["s to best"], ours["best epoch"]) == ("0.5", "15.0", "20")
    assert ours["paper's s (GPU)"] == "109"
    assert light["paper's s (GPU)"] == "1,687 / 99"
    assert content.findings == (
        "ali-display: Rankformer reaches its best validation after 15.0 s here, the paper's GPU run took 109 s.",
    )


@pytest.mark.parametrize("show", [show_comparison, show_runtime])
def test_without_results_it_is_whole(request_for, show):
    content = show(request_for(), {})
    assert content.findings == ()
    assert len(content.tables[0].rows) == 0
    assert "no result for MF" in content.notes[-1]
