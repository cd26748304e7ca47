"""The mask by degree: its algebra, its initialization, its buckets."""

import math

import numpy as np
import pytest
import torch

from rankformer.data.interactions import Interactions
from rankformer.graph.bipartite import BipartiteGraph
from rankformer.layers.degree_mask import DegreeMask, degree_buckets, mask_parts, mask_reference
from rankformer.layers.kernel_attention import attention_reference


def uniform(*shape, seed=0):
    return torch.rand(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


@pytest.fixture
def graph():
    users = np.repeat([0, 1, 2, 3], [1, 4, 70, 3])
    return BipartiteGraph.from_interactions(Interactions.from_indices(users, np.arange(78) % 75, 5, 76))


def test_two_products_make_the_sine():
    z = uniform(20)
    a, c = mask_parts(z).unbind(1)
    torch.testing.assert_close(torch.outer(a, c) + torch.outer(c, a), mask_reference(z, z), rtol=1e-12, atol=1e-12)


def test_the_mask_is_symmetric_within_0_and_1_and_full_only_between_nodes_of_full_importance():
    z = torch.cat([uniform(20), torch.ones(1, dtype=torch.float64)])
    mask = mask_reference(z, z)
    torch.testing.assert_close(mask, mask.T)
    assert (mask > 0).all()
    assert mask[-1, -1].item() == pytest.approx(1, abs=1e-15)
    mask[-1, -1] = 0
    assert mask.max() < 1


@pytest.mark.parametrize("level", [0.3, 1.0])
def test_equal_importance_masks_nothing(level):
    queries, keys, values = uniform(9, 4), uniform(9, 4, seed=1), uniform(9, 3, seed=2)
    z = torch.full((9,), level, dtype=torch.float64)
    masked = attention_reference(queries, keys, values, mask_reference(z, z))
    torch.testing.assert_close(masked, attention_reference(queries, keys, values, torch.ones(9, dtype=torch.float64)))


def test_more_importance_of_one_node_gives_it_more_of_every_other_nodes_attention():
    z, scores = uniform(9) * 0.9, uniform(9, 9, seed=1)
    raised = z.clone()
    raised[4] += 0.05
    before, after = ((scores * mask_reference(v, v)) for v in (z, raised))
    parts = [(weights / weights.sum(1, keepdim=True))[:, 4] for weights in (before, after)]
    others = torch.arange(9) != 4
    assert (parts[1] > parts[0])[others].all()


def test_buckets_are_degrees_up_to_64_then_doublings():
    degrees = torch.tensor([0.0, 1, 63, 64, 65, 128, 129, 256, 257, 2**30 - 1], dtype=torch.float64)
    assert degree_buckets(degrees).tolist() == [0, 1, 63, 64, 65, 65, 66, 66, 67, 88]


def test_importance_starts_from_the_logarithm_of_the_degree(graph):
    mask = DegreeMask("buckets")
    mask.initialize(graph)
    z = mask(graph).detach()
    assert z[:4].tolist() == pytest.approx(
        [min(max(math.log(1 + d) / math.log(71), 0.05), 0.95) for d in (1, 4, 69, 3)], abs=0.01
    )
    assert z[4].item() == pytest.approx(0.05)  # no interaction
    assert z[5].item() == pytest.approx(0.95)  # an item of the largest degree
    assert z[-1].item() == pytest.approx(0.05)


@pytest.mark.parametrize("kind", ["buckets", "logarithm"])
def test_importance_grows_with_the_degree_and_stays_off_the_ends(graph, kind):
    mask = DegreeMask(kind)
    mask.initialize(graph)
    z = mask(graph)
    order = graph.degree[:5].argsort()
    assert (z[:5][order].diff() >= 0).all()
    with torch.no_grad():
        mask.levels.fill_(1e4)
    assert mask(graph).max() <= 0.98 + 1e-6
    with torch.no_grad():
        mask.levels.fill_(-1e4)
    assert mask(graph).min() >= 0.02 - 1e-6


@pytest.mark.parametrize("kind", ["buckets", "logarithm"])
def test_both_sides_learn_for_themselves(graph, kind):
    mask = DegreeMask(kind)
    mask.initialize(graph)
    mask(graph)[:5].sum().backward()
    assert mask.levels.grad[0].abs().sum() > 0
    assert mask.levels.grad[1].abs().sum() == 0
