"""Numbering by clusters: communities end up together, and nothing but the numbers changes."""

import numpy as np
import torch

from rankformer.data.clusters import clustered_order
from rankformer.data.interactions import Interactions
from rankformer.data.source import DataSource
from rankformer.graph.bipartite import BipartiteGraph
from rankformer.layers.rank_attention import rank_attention


def communities(count=8, size=60, seed=0):
    """Users and items of separate communities, numbered at random, with an item that everybody has."""
    draw = np.random.default_rng(seed)
    users = np.repeat(np.arange(count * size), 12)
    items = users // size * size + draw.integers(0, size, len(users))
    users, items = np.append(users, np.arange(count * size)), np.append(items, np.full(count * size, count * size))
    user_numbers, item_numbers = draw.permutation(count * size), draw.permutation(count * size + 1)
    return user_numbers[users], item_numbers[items], np.argsort(user_numbers) // size


def test_users_of_a_community_are_numbered_next_to_each_other():
    users, items, community = communities()
    user_order, item_order = clustered_order(users, items, 480, 481)
    assert np.array_equal(np.sort(user_order), np.arange(480))
    assert np.array_equal(np.sort(item_order), np.arange(481))
    changes = (np.diff(community[user_order]) != 0).sum()
    assert changes < 60, f"{changes} changes of community; 7 are the least, about 420 those of a random order"


def test_only_the_numbers_change_and_a_layer_computes_the_same():
    users, items, _ = communities()
    data = Interactions.from_indices(users, items, 480, 481, times=np.arange(len(users)))
    other = data.clustered()
    assert other.to_arrow().equals(data.to_arrow())
    assert not np.array_equal(other.users, data.users)
    z = torch.randn(961, 8, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    rows = np.concatenate([np.asarray(other.user_ids.ids), 480 + np.asarray(other.item_ids.ids)])
    first, second = (BipartiteGraph.from_interactions(each, dtype=torch.float64) for each in (data, other))
    assert torch.allclose(rank_attention(first, z)[rows], rank_attention(second, z[rows]), atol=1e-12)


def test_a_source_is_numbered_by_clusters_if_asked():
    given, found = (DataSource(source="demo", **order).load() for order in ({}, {"order": "clusters"}))
    assert found.train.user_ids != given.train.user_ids
    for part, other in zip(given, found, strict=True):
        assert part.to_arrow().equals(other.to_arrow())


def test_users_and_items_without_votes_are_kept():
    user_order, item_order = clustered_order(np.array([0, 0]), np.array([1, 1]), 3, 4)
    assert (len(user_order), len(item_order)) == (3, 4)
