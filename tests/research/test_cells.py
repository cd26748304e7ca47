from dataclasses import replace

import pytest

from rankformer.research.cells import lemma_cell, training_cell, untrained_cell

from .conftest import tiny_settings

SETTINGS = tiny_settings("tiny", "mf").settings


def test_all_that_decides_a_result_is_in_its_key(card):
    cell = training_cell(card, "mf", SETTINGS, 0)
    others = [
        training_cell(card, "mf", SETTINGS, 1),
        training_cell(card, "mf", {**SETTINGS, "learning_rate": 0.2}, 0),
        training_cell(card, "lightgcn", SETTINGS, 0),
        training_cell(replace(card, fingerprint="another"), "mf", SETTINGS, 0),
        replace(cell, code="another"),
        untrained_cell(card, {"variant": "lightgcn"}, 0),
        lemma_cell({}, 0),
    ]
    assert len({cell.key, *(other.key for other in others)}) == len(others) + 1


def test_what_data_and_cell_are_called_is_not(card):
    cell = training_cell(card, "mf", SETTINGS, 0)
    assert training_cell(replace(card, name="elsewhere"), "mf", SETTINGS, 0, "again").key == cell.key
    assert training_cell(card, "mf", dict(reversed(SETTINGS.items())), 0).key == cell.key


def test_the_label_says_what_is_computed(card):
    assert training_cell(card, "mf", SETTINGS, 3, "w/o all").label == "mf w/o all on tiny, seed 3"
    assert training_cell(card, "mf", SETTINGS, 3).label == "mf on tiny, seed 3"


def test_a_card_is_what_the_files_say(card):
    assert (card.name, card.users, card.items) == ("tiny", 24, 18)
    assert card.pairs[1:] == (24, 24)
    with pytest.raises(AttributeError):
        card.users = 3
