"""The graphs that GFormer draws: sizes, contents, scaling, and the law of the weighted draws."""

from itertools import permutations

import numpy as np
import pytest
import torch

from rankformer.data.interactions import Interactions
from rankformer.graph.bipartite import BipartiteGraph
from rankformer.graph.edge_sampling import SamplingShares, sample_graphs, scaled, weighted_choice, widened

OFFICIAL = SamplingShares(encoder=0.9, view=0.1, decoder=0.8, extra=0.5)


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def graph_of(n=15, m=12, size=60, copies=1):
    pairs = np.tile(np.random.default_rng(0).choice(n * m, size, replace=False), copies)
    return BipartiteGraph.from_interactions(Interactions.from_indices(pairs // m, pairs % m, n, m))


def positions(entries):
    return set(zip(entries.rows.tolist(), entries.columns.tolist(), strict=True))


def loops(size):
    return {(node, node) for node in range(size)}


@pytest.mark.parametrize("copies", [1, 3])
def test_the_widened_graph_holds_both_ways_all_loops_and_random_pairs(copies):
    graph = graph_of(copies=copies)
    edges = set(zip(graph.edge_users.tolist(), graph.edge_items.tolist(), strict=True))
    own = edges | {(item, user) for user, item in edges} | loops(27)
    assert positions(widened(graph, 0.0, seeded())) == own
    wider = positions(widened(graph, 0.2, seeded()))
    assert own < wider
    added = wider - own
    assert added == {(column, row) for row, column in added}
    assert len(added) <= 2 * int(0.2 * len(own))


@pytest.mark.parametrize("count", [0, 1, 2, 4])
def test_a_weighted_choice_has_the_distribution_of_drawing_one_after_the_other(count):
    weights = torch.tensor([0.5, 1.0, 2.0, 6.0])
    expected = torch.zeros(4)
    for drawn in permutations(range(4), count):
        chance, left = 1.0, weights.sum().item()
        for position in drawn:
            chance *= weights[position].item() / left
            left -= weights[position].item()
        expected[list(drawn)] += chance
    generator, times = seeded(), 4000
    seen = sum(weighted_choice(weights.log(), count, generator).float() for _ in range(times)) / times
    assert seen.sum().item() == pytest.approx(count, abs=1e-4)
    torch.testing.assert_close(seen, expected, atol=4 * (0.25 / times) ** 0.5, rtol=0)


def test_a_scaled_graph_is_the_symmetrically_normalised_sum_of_entries_and_identity():
    entries = widened(graph_of(), 0.1, seeded())
    chosen = torch.rand(len(entries), generator=seeded()) < 0.4
    got = scaled(entries, chosen, torch.float64)
    full = torch.eye(27, dtype=torch.float64)
    full[entries.rows[chosen].long(), entries.columns[chosen].long()] += 1  # a chosen loop makes 2
    degrees = full.sum(1)
    expected = full / (degrees[:, None] * degrees).sqrt()
    torch.testing.assert_close(got @ torch.eye(27, dtype=torch.float64), expected)
    assert full.diagonal().max() == 2
    assert not torch.equal(full, full.T), "each direction is drawn for itself"


def test_the_draws_have_the_sizes_asked_for(monkeypatch):
    counts = []

    def counting(log_weights, count, generator):
        chosen = weighted_choice(log_weights, count, generator)
        counts.append((count, int(chosen.sum())))
        return chosen

    monkeypatch.setattr("rankformer.graph.edge_sampling.weighted_choice", counting)
    entries = widened(graph_of(), 0.01, seeded())
    sample_graphs(entries, torch.ones(len(entries)), OFFICIAL, seeded())
    size = len(entries)
    assert counts == [(int(0.9 * size),) * 2, (int(0.1 * size),) * 2, (int(0.1 * size),) * 2]


def test_every_graph_has_all_loops_and_only_the_decoder_has_new_entries():
    entries = widened(graph_of(), 0.01, seeded())
    graphs = sample_graphs(entries, torch.rand(len(entries), generator=seeded()), OFFICIAL, seeded())
    known = positions(entries)
    for matrix in (graphs.encoder, graphs.rationale, graphs.complement):
        assert loops(27) <= positions(matrix.entries) <= known
    decoder = positions(graphs.decoder)
    assert positions(graphs.encoder.entries) <= decoder
    new = decoder - known
    assert new
    assert new == {(column, row) for row, column in new}


def test_new_pairs_of_the_decoder_come_from_dropped_entries_if_there_is_no_extra():
    entries = widened(graph_of(), 0.0, seeded())
    attention = torch.zeros(len(entries))
    attention[entries.rows == 3] = 50.0  # all dropped: 50 is far more than the noise can make up for
    fraction = 1 - float((entries.rows == 3).float().mean()) + 1e-6
    shares = SamplingShares(encoder=fraction, view=0.0, decoder=0.8, extra=0.0)
    graphs = sample_graphs(entries, attention, shares, seeded())
    new = positions(graphs.decoder) - positions(graphs.encoder.entries)
    assert new
    assert all(3 in pair for pair in new)


def test_high_attention_leaves_the_encoder_and_the_complement_and_enters_the_rationale():
    entries = widened(graph_of(), 0.0, seeded())
    position = int((entries.rows != entries.columns).nonzero()[0])
    attention = torch.full((len(entries),), 0.2)
    attention[position] = 3.0
    generator, times, shares = seeded(), 300, SamplingShares(0.5, 0.3, 0.0, 0.0)
    pair = entries.rows[position].item(), entries.columns[position].item()
    kept = np.zeros(3)
    for _ in range(times):
        graphs = sample_graphs(entries, attention, shares, generator)
        kept += [pair in positions(matrix.entries) for matrix in (graphs.encoder, graphs.rationale, graphs.complement)]
    encoder, rationale, complement = kept / times
    assert encoder < 0.5 - 0.2
    assert rationale > 0.3 + 0.2
    assert complement < 0.3 - 0.1


def test_draws_repeat_with_the_generator_and_differ_without():
    entries = widened(graph_of(), 0.1, seeded())
    attention = torch.rand(len(entries), generator=seeded())
    one, same, other = (sample_graphs(entries, attention, OFFICIAL, seeded(seed)) for seed in (0, 0, 1))
    assert torch.equal(one.encoder.values, same.encoder.values)
    assert torch.equal(one.decoder.columns, same.decoder.columns)
    assert positions(one.encoder.entries) != positions(other.encoder.entries)


@pytest.mark.parametrize(
    "shares", [SamplingShares(1.0, 1.0, 0.8, 0.5), SamplingShares(0.0, 0.0, 0.0, 0.0), SamplingShares(0, 0, 2.0, 3.0)]
)
def test_the_extremes_are_no_obstacle(shares):
    graph = BipartiteGraph.from_interactions(Interactions.from_indices([0], [0]))
    entries = widened(graph, 0.5, seeded())
    graphs = sample_graphs(entries, torch.ones(len(entries)), shares, seeded())
    for found in (graphs.encoder.entries, graphs.decoder, graphs.rationale.entries, graphs.complement.entries):
        assert loops(2) <= positions(found)
