import ast
import sys

import numpy as np
import pytest
import torch

from rankformer import BipartiteGraph, Rankformer
from rankformer.data.demo import demo_parts
from rankformer.graph.negatives import NegativeSampler
from rankformer.layers.rank_attention_reference import rank_attention_reference

from .conftest import EXAMPLES

SOURCE = EXAMPLES / "rankformer_from_scratch.py"


@pytest.fixture
def scratch(example, one_thread):
    return example("rankformer_from_scratch")


def test_it_is_short_and_needs_only_torch_and_numpy():
    text = SOURCE.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 250
    imports = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Import | ast.ImportFrom)]
    names = {alias.name for node in imports if isinstance(node, ast.Import) for alias in node.names}
    names |= {node.module for node in imports if isinstance(node, ast.ImportFrom)}
    assert {name.partition(".")[0] for name in names} - sys.stdlib_module_names == {"torch", "numpy"}


@pytest.mark.parametrize("seed", [0, 1])
def test_five_steps_give_the_embeddings_of_the_library(scratch, seed):
    data = demo_parts().train
    model = Rankformer(
        seed=seed,
        num_layers=2,
        tau=0.4,
        alpha=2.0,
        l2=3e-4,
        learning_rate=0.03,
        schedule="constant",
        initialization="normal",
        epochs=5,
    ).fit(data)
    sampler = NegativeSampler.of(BipartiteGraph.from_interactions(data))
    log = scratch.Log.of(data.users, data.items, data.num_users, data.num_items)
    found = scratch.train(
        log, steps=5, seed=seed, negatives=lambda step: sampler.draw(seed, step).long() - data.num_users
    )
    expected = torch.cat([model.embeddings.users, model.embeddings.items])
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)
    # Far more than the tolerance is learned in five steps, so that a wrong gradient would show.
    untrained = scratch.train(log, steps=0, seed=seed)
    assert (found - untrained).abs().max() > 1e-2


def test_the_layer_is_the_papers(scratch):
    """Against the n x m reference, with a user and an item without interactions."""
    rng = np.random.default_rng(0)
    pairs = rng.choice(9 * 6, 20, replace=False)
    log = scratch.Log.of(pairs // 6, pairs % 6, 10, 7)
    z = torch.randn(17, 5, generator=torch.Generator().manual_seed(0))
    graph = BipartiteGraph.from_pairs(pairs // 6, pairs % 6, 10, 7)
    found = scratch.rank_layer(z, log, tau=0.7, alpha=2.0)
    torch.testing.assert_close(found, rank_attention_reference(graph, z, tau=0.7))


def test_own_negatives_are_items_that_the_user_does_not_have(scratch):
    log = scratch.Log.of(np.array([0, 0, 0, 1]), np.array([0, 1, 2, 3]), 2, 4)
    for seed in range(20):
        drawn = scratch.draw_negatives(log, np.random.default_rng(seed)).tolist()
        assert drawn[:3] == [3, 3, 3]
        assert drawn[3] != 3


def test_the_script_learns_the_invented_groups(scratch):
    assert scratch.main([]) > 0.5  # ten random items of 120 would find a twelfth


def test_the_script_reads_a_file(scratch, tmp_path, capsys):
    users, items = scratch.invented_pairs(num_users=40, num_items=30)
    np.savetxt(tmp_path / "log.txt", np.stack([users, items], axis=1), fmt="%d")
    scratch.main([str(tmp_path / "log.txt")])
    assert "held-out interactions" in capsys.readouterr().out
