"""Run folders made to harm are refused in one line, though every checksum in them is right."""

import os

import pytest
from attack.hostile import BY_HAND, at_random, outcome
from tests.serving.runs import write_run

from rankformer.errors import RunFolderError
from rankformer.runs.saved import load_run
from rankformer.serving.model import load_served_model


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return write_run(tmp_path_factory.mktemp("hostile") / "run")


@pytest.mark.parametrize("name", BY_HAND)
def test_a_harm_is_refused(run, tmp_path, name):
    assert outcome(run, tmp_path, BY_HAND[name]) == "refused"


def test_harms_at_random_are_refused(run, tmp_path):
    for name, harm in at_random(40, seed=0):
        assert outcome(run, tmp_path, harm) == "refused", name


def test_a_copy_without_harm_is_loaded(run, tmp_path):
    assert outcome(run, tmp_path, lambda folder: None) == "loaded"


@pytest.mark.parametrize("name", ["manifest.json", "users.parquet", "log.jsonl"])
def test_a_pipe_in_place_of_a_file_is_refused_without_waiting_for_a_writer(run, tmp_path, name):
    folder = write_run(tmp_path / "run")
    (folder / name).unlink()
    os.mkfifo(folder / name)
    with pytest.raises(RunFolderError, match=name):
        load_run(folder)
    with pytest.raises(RunFolderError, match=name):
        load_served_model(folder)
