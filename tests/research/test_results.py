import json
import subprocess
from dataclasses import replace

import pytest

from rankformer.research import results
from rankformer.research.results import Computation, ResultStore

from .conftest import tiny_settings

SETTINGS = tiny_settings("tiny", "mf").settings
LEMMA = Computation("lemma", {"taus": (0.1, 0.2)}, 0)


def training(data, settings=SETTINGS, seed=0, model="mf", label=""):
    return Computation("training", settings, seed, model, data, label)


@pytest.fixture
def store(tmp_path):
    return ResultStore(tmp_path / "stored")


def test_all_that_decides_a_result_is_in_its_key(data):
    others = [
        training(data, seed=1),
        training(data, {**SETTINGS, "learning_rate": 0.2}),
        training(data, model="lightgcn"),
        training(replace(data, fingerprint="another")),
        Computation("untrained", {"variant": "lightgcn"}, 0, data=data),
        LEMMA,
    ]
    assert len({training(data).key, *(other.key for other in others)}) == len(others) + 1


def test_labels_names_of_data_and_the_order_of_settings_are_not(data):
    key = training(data).key
    assert training(replace(data, name="elsewhere"), label="again").key == key
    assert training(data, dict(reversed(SETTINGS.items()))).key == key


def test_a_dataset_is_what_the_files_say(data):
    assert (data.name, data.users, data.items) == ("tiny", 24, 18)
    assert data.interactions[1:] == (24, 24)
    with pytest.raises(AttributeError):
        data.users = 3


def test_what_was_stored_comes_back_with_its_commit(store, monkeypatch):
    assert store.load(LEMMA) == (None, None)
    monkeypatch.setattr(results, "code_version", lambda: "0123456789ab")
    saved = store.save(LEMMA, {"value": 0.25, "none": None})
    assert saved == {"value": 0.25, "none": None, "commit": "0123456789ab"}
    monkeypatch.setattr(results, "code_version", lambda: "another")
    assert store.load(LEMMA).result == saved
    assert [path.name for path in store.folder.iterdir()] == [f"{LEMMA.key}.json"]


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data[: len(data) // 2],
        lambda data: data.replace(b"0.25", b"0.26"),
        lambda data: b"",
        lambda data: b"[" * 100_000,
        lambda data: b"\x80\x04N.",
    ],
    ids=["cut", "changed", "empty", "deep", "pickle"],
)
def test_a_damaged_file_is_not_a_result_and_says_so(store, damage):
    store.save(LEMMA, {"value": 0.25})
    path = store.path_of(LEMMA)
    path.write_bytes(damage(path.read_bytes()))
    found = store.load(LEMMA)
    assert found.result is None
    assert path.name in found.problem
    assert "computed again" in found.problem


def test_a_file_under_another_name_is_not_a_result(store):
    other = replace(LEMMA, seed=1)
    store.save(other, {"value": 1})
    store.path_of(other).rename(store.path_of(LEMMA))
    assert "another result" in store.load(LEMMA).problem


def test_saving_drops_the_unfinished_work_and_the_lock(store):
    with store.locked(LEMMA):
        work = store.work_folder(LEMMA)
        (work / "checkpoint").mkdir(parents=True)
        store.save(LEMMA, {})
        assert not work.exists()
    assert list(store.folder.glob("unfinished/*")) == []


def test_work_without_a_result_is_left_for_the_next_time(store):
    with store.locked(LEMMA):
        store.work_folder(LEMMA).mkdir(parents=True)
    assert store.work_folder(LEMMA).is_dir()


def test_removing_leaves_neither_result_nor_work(store):
    store.save(LEMMA, {})
    store.work_folder(LEMMA).mkdir(parents=True)
    store.remove(LEMMA)
    assert store.load(LEMMA) == (None, None)
    assert not store.work_folder(LEMMA).exists()


def test_a_result_is_plain_json_that_names_commit_settings_and_data(store, data):
    store.save(training(data), {"value": 1})
    content = json.loads(store.path_of(training(data)).read_text())
    assert content["commit"] == results.code_version()
    assert content["computation"]["settings"] == SETTINGS
    assert content["computation"]["data"] == data.fingerprint


def test_outside_of_a_checkout_the_version_stands_for_the_commit(monkeypatch):
    def no_git(*_, **__):
        raise subprocess.CalledProcessError(128, "git")

    monkeypatch.setattr(subprocess, "run", no_git)
    assert results.code_version.__wrapped__().startswith("version ")


@pytest.mark.parametrize(("status", "ending"), [("", ""), (" M file.py", "+changes")])
def test_a_checkout_is_named_by_its_commit(monkeypatch, status, ending):
    answers = {"ls-files": "results.py", "status": status, "rev-parse": "0123456789ab"}

    def git(command, **_):
        return subprocess.CompletedProcess(command, 0, answers[command[3]] + "\n", "")

    monkeypatch.setattr(subprocess, "run", git)
    assert results.code_version.__wrapped__() == "0123456789ab" + ending
