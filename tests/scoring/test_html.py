"""What notebooks show."""

from html.parser import HTMLParser

import pyarrow as pa
import pytest
import torch

from rankformer.data.id_map import IdMap
from rankformer.data.interactions import Interactions
from rankformer.evaluation.evaluator import evaluate
from rankformer.scoring.html import html_table
from rankformer.scoring.item_matrix import DenseWeights
from rankformer.scoring.item_scorer import ItemScorer
from rankformer.scoring.recommender import Recommender

HOSTILE = "<script>alert(1)</script>"


class Cells(HTMLParser):
    """The text of every cell, and every tag that occurs."""

    def __init__(self, html):
        super().__init__()
        self.rows, self.tags, self.inside = [], set(), False
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        if tag == "tr":
            self.rows.append([])
        self.inside = tag in ("td", "th")
        if self.inside:
            self.rows[-1].append("")

    def handle_endtag(self, tag):
        self.inside = False

    def handle_data(self, data):
        if self.inside:
            self.rows[-1][-1] += data


@pytest.fixture
def recommender():
    items = IdMap(pa.array([HOSTILE, "b", "c"]))
    history = Interactions.from_indices([0, 0], [0, 1], 2, 3)
    history = Interactions(history.users, history.items, history.user_ids, items, name=HOSTILE)
    scorer = ItemScorer.of(DenseWeights(torch.tensor([[0.0, 1, 2], [0, 0, 3], [0, 0, 0]])), history)
    return Recommender(scorer, history.user_ids, items, history)


def test_lists(recommender):
    found = Cells(recommender.recommend([0, 1], k=2)._repr_html_())
    assert found.rows[0] == ["user_id", "item_id", "score", "rank"]
    assert found.rows[1:] == [["0", "c", "5.0000", "1"], ["1", HOSTILE, "1.0000", "1"], ["1", "b", "1.0000", "2"]]
    assert "script" not in found.tags
    assert "the model knows nothing of theirs: 1" in recommender.recommend([0, 1], k=2)._repr_html_()


def test_long_lists_are_cut():
    history = Interactions.from_indices(range(40), [0] * 40, 40, 4)
    scorer = ItemScorer.of(DenseWeights(torch.ones(4, 4)), history)
    lists = Recommender(scorer, history.user_ids, history.item_ids, history).recommend(k=3)
    html = lists._repr_html_()
    assert len(Cells(html).rows) == 51
    assert "... 70 more rows" in html


def test_an_explanation_adds_up(recommender):
    found = Cells(recommender.explain(0, "c")._repr_html_())
    assert found.rows[1:] == [["b", "3.0000"], [HOSTILE, "2.0000"], ["(all other items)", "0.0000"]]
    assert "script" not in found.tags


def test_an_evaluation_has_both_figures_where_there_are_cold_users(recommender):
    test = Interactions.from_indices([0, 1], [2, 2], 2, 3)
    test = Interactions(test.users, test.items, test.user_ids, recommender.item_ids, name="later")
    found = Cells(evaluate(recommender, test, metrics="mrr@3")._repr_html_())
    assert found.rows == [["metric", "all users", "warm users"], ["mrr@3", "0.6667", "1.0000"]]
    warm = Cells(evaluate(recommender, test.rows([0]), metrics="mrr@3")._repr_html_())
    assert warm.rows == [["metric", "all users"], ["mrr@3", "1.0000"]]


def test_nothing_is_an_empty_cell():
    assert Cells(html_table(("a",), [(None,)], "c")).rows == [["a"], [""]]
