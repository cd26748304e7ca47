import pytest
import torch

from rankformer.evaluation.validator import make_validator
from rankformer.graph.bipartite import BipartiteGraph
from rankformer.layers.light_propagation import light_propagation, neighbour_means
from rankformer.layers.rank_attention import rank_attention
from rankformer.layers.rank_attention_reference import count_matrix
from rankformer.research.cells import load_parts
from rankformer.research.untrained import VARIANTS, untrained_quality
from rankformer.scoring.embeddings import Embeddings

SETTINGS = {"layers": 2, "tau": 0.4, "alpha": 2.0, "embedding_dim": 4, "scale": 0.1}


@pytest.fixture
def parts(card):
    return load_parts(card.source)


@pytest.mark.parametrize("variant", VARIANTS)
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
        "rankformer": [table, rank_attention(graph, table, tau=0.4)],
        "rankformer after its warm-up": [warm, rank_attention(graph, warm, tau=0.4)],
        "lightgcn": [table, light_propagation(graph, table, 1), (table + step @ table + step @ step @ table) / 3],
        "lightgcn, last layer": [table, step @ table, step @ step @ table],
    }[variant]
    measure = make_validator(parts.train, parts.test)
    n = graph.num_users
    found = untrained_quality(parts, {**SETTINGS, "variant": variant}, 7)["ndcg@20"]
    assert len(found) == 3
    for value, rows in zip(found, wanted, strict=False):
        assert value == pytest.approx(measure(Embeddings(rows[:n], rows[n:]))["ndcg@20"], abs=1e-6)


def test_seeds_decide_the_rows(parts):
    runs = [untrained_quality(parts, {**SETTINGS, "variant": "lightgcn"}, seed)["ndcg@20"] for seed in (0, 0, 1)]
    assert runs[0] == runs[1] != runs[2]
