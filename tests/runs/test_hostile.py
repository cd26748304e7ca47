"""Run folders made to harm are refused in one line, though every checksum in them is right."""

import os

import pytest
from attack.hostile import BY_HAND, TO_A_BLEND, at_random, harm_of, harmed, outcome, rewrite
from tests.serving.runs import write_full_run, write_run

from rankformer.errors import RunFolderError
from rankformer.runs.saved import load_run
from rankformer.serving.model import load_served_model


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return write_run(tmp_path_factory.mktemp("hostile") / "run")


@pytest.fixture(scope="module")
def blend(tmp_path_factory):
    return write_full_run(tmp_path_factory.mktemp("hostile") / "blend")


@pytest.mark.parametrize("name", BY_HAND)
def test_a_harm_is_refused(run, tmp_path, name):
    assert outcome(harmed(run, tmp_path, BY_HAND[name])) == "refused"


@pytest.mark.parametrize("name", TO_A_BLEND)
def test_a_harm_to_a_blend_is_refused(blend, tmp_path, name):
    assert outcome(harmed(blend, tmp_path, TO_A_BLEND[name])) == "refused"


def test_harms_at_random_are_refused(run, tmp_path):
    for case in at_random(40, seed=0):
        assert outcome(harmed(run, tmp_path, harm_of(case))) == "refused", case


def test_a_copy_without_harm_is_loaded(run, blend, tmp_path):
    assert outcome(harmed(run, tmp_path, lambda folder: None)) == "loaded"
    assert outcome(harmed(blend, tmp_path, rewrite)) == "loaded"


@pytest.mark.parametrize("name", ["manifest.json", "users.parquet", "log.jsonl"])
def test_a_pipe_in_place_of_a_file_is_refused_without_waiting_for_a_writer(run, tmp_path, name):
    folder = write_run(tmp_path / "run")
    (folder / name).unlink()
    os.mkfifo(folder / name)
    with pytest.raises(RunFolderError, match=name):
        load_run(folder)
    with pytest.raises(RunFolderError, match=name):
        load_served_model(folder)
