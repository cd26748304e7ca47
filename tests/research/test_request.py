import pytest

from rankformer.errors import ConfigError


def test_a_trial_bounds_epochs_and_validates_at_least_once(request_for, card):
    request = request_for(epochs=1)
    settings = request.settings(card, "mf")
    assert (settings["epochs"], settings["validate_every"]) == (1, 1)
    assert request_for(epochs=100).settings(card, "mf") == request_for().settings(card, "mf")
    assert request_for(epochs=1).settings(card, "popularity") == {}


def test_a_row_has_a_cell_per_seed_and_none_for_an_unknown_method(request_for, card):
    cells = request_for(seeds=(0, 1, 2)).row(card, "mf")
    assert [cell.seed for cell in cells] == [0, 1, 2]
    assert len(request_for(seeds=(0, 1, 2)).row(card, "popularity")) == 1
    assert request_for().row(card, "not yet written") == []


def test_changes_are_checked(request_for, card):
    assert request_for().settings(card, "rankformer", tau=1.0)["tau"] == 1.0
    with pytest.raises(ConfigError, match="tau"):
        request_for().settings(card, "rankformer", tau=2.0)


def test_the_grid_over_tau_reaches_from_0_to_1(request_for):
    assert request_for(step=0.2).taus() == (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
    assert len(request_for().taus()) == 11
    with pytest.raises(ConfigError, match="divides 1"):
        request_for(step=0.3).taus()
