import pytest
import torch

from rankformer.evaluation.validator import make_validator
from rankformer.graph.bipartite import BipartiteGraph
from rankformer.layers.light_propagation import light_propagation, neighbour_means
from rankformer.layers.rank_attention import rank_attention
from rankformer.layers.rank_attention_reference import count_matrix
from rankformer.research.experiments import EXPERIMENTS
from rankformer.research.results import load_parts
from rankformer.research.untrained import (
    LIGHT_LAST,
    LIGHT_MEAN,
    NAMES,
    PLAIN,
    WARM,
    _drawn,
    untrained_quality,
)
from rankformer.scoring.embeddings import Embeddings

from .conftest import called

random_computations, show_random = EXPERIMENTS["figure-random"].computations, EXPERIMENTS["figure-random"].show

SETTINGS = {"layers": 2, "tau": 0.4, "alpha": 2.0, "embedding_dim": 4, "scale": 0.1, "draws": "own"}


@pytest.fixture
def parts(data):
    return load_parts(data.source)


@pytest.mark.parametrize("variant", NAMES)
def test_each_depth_is_the_quality_of_that_many_layers(parts, variant):
    graph = BipartiteGraph.from_interactions(parts.train)
    table = torch.randn(graph.num_nodes, 4, generator=torch.Generator().manual_seed(7)) * 0.1
    counts = count_matrix(graph, table.dtype)
    adjacency = torch.zeros(graph.num_nodes, graph.num_nodes)
    adjacency[: graph.num_users, graph.num_users :] = counts
    adjacency += adjacency.T.clone()
    shrink = graph.degree.clamp(min=1).rsqrt().float()
    step = shrink[:, None] * adjacency * shrink
    warm = neighbour_means(graph, table)
    wanted = {
        PLAIN: [table, rank_attention(graph, table, tau=0.4)],
        WARM: [warm, rank_attention(graph, warm, tau=0.4)],
        LIGHT_MEAN: [table, light_propagation(graph, table, 1), (table + step @ table + step @ step @ table) / 3],
        LIGHT_LAST: [table, step @ table, step @ step @ table],
    }[variant]
    measure = make_validator(parts.train, parts.test)
    n = graph.num_users
    found = untrained_quality(parts, {**SETTINGS, "variant": variant}, 7)["ndcg@20"]
    assert len(found) == 3
    for value, z in zip(found, wanted, strict=False):
        assert value == pytest.approx(measure(Embeddings(z[:n], z[n:]))["ndcg@20"], abs=1e-6)


def test_seeds_decide_the_embeddings(parts):
    runs = [untrained_quality(parts, {**SETTINGS, "variant": LIGHT_MEAN}, seed)["ndcg@20"] for seed in (0, 0, 1)]
    assert runs[0] == runs[1] != runs[2]


def test_the_authors_draws_are_those_of_two_embedding_modules_filled_again(parts):
    graph = BipartiteGraph.from_interactions(parts.train)
    with torch.random.fork_rng():
        torch.manual_seed(12345)
        modules = [torch.nn.Embedding(count, 4) for count in (graph.num_users, graph.num_items)]
        for module in modules:
            torch.nn.init.normal_(module.weight, std=0.1)
    wanted = torch.cat([module.weight for module in modules])
    assert torch.equal(_drawn(graph, {**SETTINGS, "draws": "authors"}, 12345), wanted)


def made_up_results(request, best_tau=0.75):
    """Curves that rise with depth: LightGCN's a little, Rankformer's most at the best tau."""
    results = {}
    for each in random_computations(request):
        tau = each.settings["tau"]
        slope = 0.01 if tau is None else 0.2 - abs(tau - best_tau) - (0.1 if each.settings["variant"] == PLAIN else 0)
        results[each.key] = {"ndcg@20": [0.01 * each.seed + slope * depth for depth in range(11)]}
    return results


def test_the_figure_is_over_tau_and_over_depth_with_all_readings(request_for):
    request = request_for(layers=10, seeds=(0, 1), step=0.25)
    assert len(random_computations(request)) == 2 * (2 + 2 * 3)
    content = show_random(request, made_up_results(request))
    over_tau, by_depth = content.picture.panels
    assert [line.label for line in over_tau.lines] == list(NAMES.values())
    assert over_tau.lines[0].x == (0.25, 0.5, 0.75)
    assert over_tau.lines[0].y == pytest.approx((-2.995, -0.495, 2.005))
    assert by_depth.lines[0].label == "Rankformer after its warm-up, tau = 0.75"
    assert by_depth.lines[0].y[2] == pytest.approx(0.405)
    assert content.tables[0].rows[2][1] == "2.0050±.0071"
    assert "tiny" in content.data


def test_it_says_at_which_tau_the_papers_shape_appears(request_for):
    request = request_for(seeds=(0,), step=0.25)
    warm, plain = show_random(request, made_up_results(request)).findings
    assert warm == (
        "tiny: Rankformer after its warm-up is above LightGCN at every depth, the paper's shape, at tau = 0.75 "
        "(LightGCN, mean of its layers; its best is 0.1000 at 10 layers) and at tau = 0.75 (LightGCN, last layer; its "
        "best is 0.1000 at 10 layers). Its best is 2.0000 (tau = 0.75, 10 layers)."
    )
    assert plain.startswith("tiny: Rankformer is above LightGCN at every depth, the paper's shape, at tau = 0.75 ")
    low = show_random(request, made_up_results(request, best_tau=0.5)).findings[1]
    assert "at tau = 0.5 " in low
    assert "at no tau" in show_random(request, made_up_results(request, best_tau=5)).findings[0]


@pytest.mark.parametrize(("gap", "words"), [(0.00004, "agrees with"), (0.002, "DIFFERS from")])
def test_ours_stands_beside_the_authors_code(request_for, data, gap, words):
    request = request_for(datasets=(called(data, "epinions"),), seeds=(0,), step=0.1)
    results = made_up_results(request)
    authors = [each for each in random_computations(request) if each.settings["draws"] == "authors"]
    assert [(each.settings["tau"], each.settings["variant"], each.seed) for each in authors] == [
        (0.4, WARM, 12345),
        (0.9, WARM, 12345),
        (0.9, PLAIN, 12345),
    ]
    for each, known in zip(authors, (0.0006, 0.0083, 0.0037), strict=True):
        results[each.key] = {"ndcg@20": [0.0] * 10 + [known + gap]}
    content = show_random(request, results)
    assert f"from the same random numbers our layer {words} the authors' code" in content.findings[-1]
    assert content.tables[-1].rows[0][:3] == ("0.4", "yes", "0.0006")


def test_without_results_it_has_no_picture(request_for):
    content = show_random(request_for(), {})
    assert content.picture is None
    assert content.notes
