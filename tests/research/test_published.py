import pytest

from rankformer.models.registry import MODELS
from rankformer.research.published import (
    ABLATION,
    COMPARISON,
    CONTRASTIVE,
    IMPROVEMENT,
    METHODS,
    PAPER_DATASETS,
    RUNTIME,
    RUNTIME_ROWS,
    recall_metric,
)


@pytest.mark.parametrize(
    ("dataset", "method", "ndcg", "recall"),
    [
        ("ali-display", "mf", 0.0586, 0.1094),
        ("ali-display", "nodeformer", 0.0205, 0.0358),
        ("ali-display", "rankformer-cl", 0.0680, 0.1246),
        ("epinions", "lightgcn", 0.0523, 0.0850),
        ("epinions", "gformer", 0.0602, 0.0978),
        ("epinions", "sgformer", 0.0333, 0.0571),
        ("amazon-cds", "dualvae", 0.0733, 0.1276),
        ("amazon-cds", "xsimgcl", 0.0796, 0.1346),
        ("yelp2018", "mgformer", 0.0468, 0.0869),
        ("yelp2018", "difformer", 0.0282, 0.0539),
        ("yelp2018-lightgcn", "gf-cf", 0.0571, 0.0697),
    ],
)
def test_numbers_stand_in_the_right_column(dataset, method, ndcg, recall):
    assert COMPARISON[dataset][method] == (ndcg, recall)


@pytest.mark.parametrize("dataset", PAPER_DATASETS)
@pytest.mark.parametrize("champion", ["rankformer", "rankformer-cl"])
def test_the_printed_improvements_follow_from_the_printed_scores(dataset, champion):
    """The paper rounds its scores to four digits, which moves an improvement by up to 0.12 of a per cent."""
    scores = COMPARISON[dataset]
    rivals = {name for name in METHODS if (name in CONTRASTIVE) == (champion in CONTRASTIVE)} - {champion}
    for column in (0, 1):
        runner_up = max(scores[rival][column] for rival in rivals if rival in scores)
        gain = 100 * (scores[champion][column] - runner_up) / runner_up
        assert gain == pytest.approx(IMPROVEMENT[dataset][champion][column], abs=0.13)


@pytest.mark.parametrize("dataset", PAPER_DATASETS)
def test_the_ablations_full_row_is_the_comparisons(dataset):
    assert ABLATION[dataset]["full"] == COMPARISON[dataset]["rankformer"]
    assert max(ABLATION[dataset].values()) == ABLATION[dataset]["full"]


def test_what_did_not_run_in_the_paper_has_no_number():
    assert "nodeformer" not in COMPARISON["amazon-cds"]
    assert "nodeformer" not in COMPARISON["yelp2018"]


def test_runtimes_are_the_papers():
    assert RUNTIME["ali-display"]["Rankformer"] == 109
    assert RUNTIME["epinions"] == {
        "LightGCN (source code)": 2773,
        "LightGCN (rewrite)": 62,
        "MGFormer": 1580,
        "GFormer": 3523,
        "Rankformer": 149,
    }
    assert RUNTIME["yelp2018"]["GFormer"] == 36587
    assert {name for names in RUNTIME_ROWS.values() for name in names} == set(RUNTIME["amazon-cds"])


def test_every_row_is_a_method_and_has_a_metric():
    assert set(METHODS) <= set(MODELS)
    assert recall_metric("epinions") == "recall_capped@20"
    assert recall_metric("yelp2018-lightgcn") == "recall@20"
