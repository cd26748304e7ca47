import pytest

from rankformer.models.registry import MODELS
from rankformer.research.comparison import METHODS, comparison_cells, show_comparison

from .conftest import called, made_up, table_row


@pytest.fixture
def compared(request_for, card):
    request = request_for(datasets=(called(card),), seeds=(0, 1))
    scores = {"rankformer": 0.3, "lightgcn": 0.2, "mf": 0.1, "popularity": 0.35}
    cells = comparison_cells(request)
    results = {cell.key: made_up(scores[cell.model] + 0.01 * cell.seed) for cell in cells if cell.model in scores}
    return request, show_comparison(request, results)


def test_the_comparison_sets_the_paper_beside_ours(compared):
    _, content = compared
    row = table_row(content.tables[0], "Rankformer")
    assert row["NDCG@20 published"] == "0.0652"
    assert row["NDCG@20 ours"] == "0.3050 ± 0.0071"
    assert row["difference"] == f"{0.305 - 0.0652:+.4f} ({100 * (0.305 - 0.0652) / 0.0652:+.1f}%)"
    assert (row["seeds"], row["settings"]) == ("2", "made up for tests")


def test_methods_that_are_not_there_and_rows_not_run_say_so(request_for, card, monkeypatch):
    monkeypatch.delitem(MODELS, "dualvae")
    request = request_for(datasets=(called(card),))
    assert "dualvae" not in {cell.model for cell in comparison_cells(request)}
    content = show_comparison(request, {})
    assert len(content.tables[0].rows) == len(METHODS)
    assert table_row(content.tables[0], "XSimGCL")["settings"] == "not run"
    assert table_row(content.tables[0], "DualVAE")["settings"] == "not available in this version"
    assert table_row(content.tables[0], "DualVAE")["NDCG@20 published"] == "0.0603"
    assert content.data["ali-display"]["rows"]["dualvae"]["available"] is False


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
    request = request_for(datasets=(called(card, "yelp2018-lightgcn"),), methods=("lightgcn",))
    content = show_comparison(request, {})
    assert table_row(content.tables[0], "LightGCN")["recall published"] == "0.0653"
    assert content.tables[0].title == "yelp2018-lightgcn: NDCG@20 and recall@20"
    assert "train and valid together" in content.notes[0]


def test_without_results_it_is_whole(request_for):
    content = show_comparison(request_for(), {})
    assert content.findings == ()
    assert len(content.tables[0].rows) == len(METHODS)
