import math

import numpy as np
import pytest
import torch

from rankformer.research.experiments import EXPERIMENTS
from rankformer.research.lemma import CLAIMS, OBJECTIVES, check_lemma, order_of

lemma_computations, show_lemma = EXPERIMENTS["lemma"].computations, EXPERIMENTS["lemma"].show

TAUS = [10 ** (-exponent / 2) for exponent in range(6, 10)]
EXACT, SECOND, INVERSE, PAPER, PAPER_INVERSE = CLAIMS


def check(objective, seed=0):
    settings = {"objective": objective, "users": 4, "items": 5, "embedding_dim": 2, "alpha": 2.0, "taus": TAUS}
    return check_lemma(settings, seed)


@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("seed", [0, 1])
def test_what_holds_of_the_lemma_and_what_does_not(objective, seed):
    outcome = check(objective, seed)
    orders = {claim: order_of(TAUS, outcome["errors"][claim]) for claim in CLAIMS}
    assert max(outcome["errors"][EXACT]) < 1e-13
    assert orders[SECOND] == pytest.approx(2, abs=0.1)
    assert orders[INVERSE] == pytest.approx(2, abs=0.1)
    assert orders[PAPER] == pytest.approx(1, abs=0.1)
    assert orders[PAPER_INVERSE] == pytest.approx(1, abs=0.1)
    assert outcome["factors"][-1] == pytest.approx(2, abs=0.01)


def test_the_objective_is_a_mean_over_each_users_triples():
    """With all scores 0 the BPR objective is n ln 2 and its L2 regularization 0."""
    from rankformer.research import lemma

    loss, point = lemma._problem({"objective": "bpr", "users": 3, "items": 4, "embedding_dim": 2, "alpha": 2.0}, 0)
    assert float(loss(torch.zeros_like(point))) == pytest.approx(3 * math.log(2))


def test_orders_are_slopes():
    taus = [0.1, 0.01, 0.001]
    assert order_of(taus, [5 * tau**3 for tau in taus]) == pytest.approx(3)
    assert np.isfinite(order_of(taus, [0.0, 0.0, 0.0]))


def test_the_report_says_what_holds(request_for):
    request = request_for(datasets=(), seeds=(0, 1))
    computations = lemma_computations(request)
    assert len({each.key for each in computations}) == len(computations) == 4
    content = show_lemma(request, {each.key: check_lemma(each.settings, each.seed) for each in computations})
    holds, second, paper, factor = content.findings
    assert "holds exactly" in holds
    assert "(I - 2 tau H) grad L holds" in second
    assert "factor 3 does not hold" in paper
    assert "2.000" in factor
    assert len(content.tables[0].rows) == 2 * len(CLAIMS)
    assert {panel.title for panel in content.picture.panels} == {"BPR, -ln sigmoid", "quadratic objective"}


def test_without_results_the_report_is_empty_and_whole(request_for):
    content = show_lemma(request_for(datasets=()), {})
    assert content.findings == ()
    assert content.picture is None
