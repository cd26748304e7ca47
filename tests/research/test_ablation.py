import pytest

from rankformer.layers.rank_weights import RankWeights
from rankformer.models.rankformer import RankformerSettings
from rankformer.research.experiments import EXPERIMENTS
from rankformer.research.tables import ALL, RELATIVES, VARIANTS

from .conftest import called, made_up, table_row

ablation_computations = EXPERIMENTS["table-ablation"].computations
show_ablation = EXPERIMENTS["table-ablation"].show


@pytest.mark.parametrize(
    ("swapped", "words"), [(False, "the paper's order of effects"), (True, "not the paper's order of effects")]
)
def test_the_ablation_says_whether_the_order_is_the_papers(request_for, data, swapped, words):
    request = request_for(datasets=(called(data),))
    order = ["w/o normalization", "w/o negative pairs", "w/o offset", "w/o benchmark", "full"]
    if swapped:
        order[1], order[2] = order[2], order[1]
    computations = ablation_computations(request)[: len(VARIANTS)]
    assert [each.settings["negatives"] for each in computations] == ["push", "none", "push", "push", "push"]
    assert [each.settings["benchmark"] for each in computations] == [True, True, False, True, True]
    assert [each.settings["alpha"] for each in computations] == [2.0, 2.0, 2.0, 0.0, 2.0]
    assert [each.settings["normalize"] for each in computations] == [True, True, True, True, False]
    results = {
        each.key: made_up(0.1 + 0.1 * order.index(name)) for each, name in zip(computations, VARIANTS, strict=True)
    }
    content = show_ablation(request, results)
    assert words in content.findings[0]
    assert ("not" in content.findings[0].split(";")[0]) is swapped
    assert table_row(content.tables[0], "w/o benchmark")["NDCG paper"] == "0.0641"


def test_a_term_that_costs_nothing_is_said_to_be_above_the_full_model(request_for, data):
    request = request_for(datasets=(called(data),))
    scores = {"w/o normalization": 0.1, "w/o negative pairs": 0.2, "w/o offset": 0.3, "w/o benchmark": 0.5, "full": 0.4}
    computations = ablation_computations(request)[: len(VARIANTS)]
    results = {each.key: made_up(scores[name]) for each, name in zip(computations, VARIANTS, strict=True)}
    assert show_ablation(request, results).findings[0] == (
        "ali-display: the four terms in the paper's order, from worst to best w/o normalization, w/o negative pairs, "
        "w/o offset, w/o benchmark, but not below the full model (0.4000): w/o benchmark (0.5000)."
    )


def test_an_ablation_with_a_gap_draws_no_conclusion(request_for, data):
    request = request_for(datasets=(called(data),))
    computations = ablation_computations(request)
    content = show_ablation(request, {each.key: made_up(0.2) for each in computations if each.settings["normalize"]})
    assert content.findings == (
        "ali-display: the order of effects is open, nothing was measured for w/o normalization.",
    )


@pytest.mark.parametrize(("name", "weights"), [("GAT", RankWeights.gat()), ("Transformer", RankWeights.transformer())])
def test_the_relatives_have_the_weights_of_table_1_and_no_published_number(request_for, data, name, weights):
    request = request_for(datasets=(called(data),))
    each = ablation_computations(request)[list(ALL).index(name)]
    assert RankformerSettings(**each.settings).rank_weights() == weights
    content = show_ablation(request, {each.key: made_up(0.2)})
    row = table_row(content.tables[0], name)
    assert (row["NDCG paper"], row["NDCG ours"]) == ("-", "0.2000")
    assert name in RELATIVES
