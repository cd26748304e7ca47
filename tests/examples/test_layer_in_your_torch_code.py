import pytest
import torch

from rankformer import BipartiteGraph


@pytest.fixture
def module(example, one_thread):
    return example("layer_in_your_torch_code")


def test_the_loss_falls(module, capsys):
    history = module.main(epochs=10)
    assert history[-1] < 0.9 * history[0]
    assert "best items of user 0" in capsys.readouterr().out


def test_gradients_reach_every_parameter_through_the_layers(module):
    users, items, features = module.invented_data(20, 8)
    model = module.MyModel(20, features.shape[1])
    z_users, z_items = model(BipartiteGraph.from_pairs(users, items, 20, 8), features)
    assert (z_users.shape, z_items.shape) == ((20, 32), (8, 32))
    (z_users @ z_items.T).square().mean().backward()
    assert all(torch.isfinite(p.grad).all() and p.grad.abs().sum() > 0 for p in model.parameters())
