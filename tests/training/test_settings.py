"""L2 regularization that follows the density of the log."""

import pytest
from tests.logs import random_log

from rankformer.data.interactions import Interactions
from rankformer.errors import ConfigError
from rankformer.graph.bipartite import BipartiteGraph
from rankformer.models.lightgcn import LightGCNSettings
from rankformer.training.settings import DensitySettings


class Usual(DensitySettings):
    usual_l2 = 0.01


def graph_of(users, items, interactions):
    """A graph of so many users and items that occur, one more of each that does not, and so many interactions."""
    pairs = [(number % users, number % items) for number in range(interactions)]
    return BipartiteGraph.from_interactions(
        Interactions.from_indices(*zip(*pairs, strict=True), num_users=users + 1, num_items=items + 1)
    )


@pytest.mark.parametrize(
    ("users", "items", "interactions", "l2"),
    [
        (4, 4, 40, 0.01),  # 5 interactions per user or item: the usual value
        (4, 4, 80, 0.01 / 2**2.4),
        (8, 8, 40, 0.01 * 2**2.4),
        (40, 40, 40, 0.3),  # 0.01 * 10^2.4 = 2.5 is beyond the bound
    ],
)
def test_auto_follows_the_interactions_per_node_that_occurs(users, items, interactions, l2):
    graph = graph_of(users, items, interactions)
    assert graph.edges_per_node == interactions / (users + items)
    assert Usual().l2_strength(graph) == pytest.approx(l2)


@pytest.mark.parametrize(("text", "factor"), [("auto", 1), ("4*auto", 4), ("0.25*auto", 0.25), ("1*auto", 1)])
def test_multiples_of_auto(text, factor):
    graph = graph_of(4, 4, 40)
    assert Usual(l2=text).l2_strength(graph) == pytest.approx(0.01 * factor)
    assert Usual(**Usual(l2=text).model_dump()).l2 == text, "as a run folder keeps it"


@pytest.mark.parametrize("given", [0, 0.5, "0.5", 1e-4, "1e-4", 7.0])
def test_a_number_is_taken_as_it_is(given):
    settings = LightGCNSettings(l2=given)
    assert settings.l2 == float(given)
    assert settings.l2_strength(BipartiteGraph.from_interactions(random_log())) == float(given)


@pytest.mark.parametrize("wrong", ["often", "-1*auto", "auto*4", "*auto", "1e3*auto", "", -1, "-0.5", "nan", [1]])
def test_anything_else_is_refused_in_one_line(wrong):
    with pytest.raises(ConfigError, match="l2") as refused:
        LightGCNSettings(l2=wrong)
    assert "\n" not in str(refused.value)
