import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from rankformer.research.results import Computation, ResultStore, load_parts
from rankformer.research.runner import Conditions, StaleError, compute, run_computations, stored_results

from .conftest import tiny_settings, write_parts
from .kill_worker import LAST_EPOCH, long_training

WORKER = Path(__file__).with_name("kill_worker.py")
MF = tiny_settings("tiny", "mf").settings


@pytest.fixture
def store(tmp_path):
    return ResultStore(tmp_path / "stored")


def training(data, model="mf", settings=MF, seed=0):
    return Computation("training", settings, seed, model, data, f"{model} on {data.name}, seed {seed}")


class Listener:
    """Keeps what it is told."""

    def __init__(self):
        self.steps = []

    def __call__(self, step):
        self.steps.append(step)

    def messages(self, what):
        return [step.text for step in self.steps if step.what == what]


def run(computations, store, fresh=False, **conditions):
    told = Listener()
    return run_computations(computations, store, Conditions(**conditions), told, fresh), told


def without_seconds(results):
    kept = ("metrics", "per_user", "failed")
    return {key: {name: result[name] for name in kept} for key, result in results.items()}


def test_a_second_call_computes_nothing(data, store):
    computations = [training(data, seed=seed) for seed in (0, 1)]
    first, told = run(computations, store)
    assert told.messages("done") == ["mf on tiny, seed 0", "mf on tiny, seed 1"]
    assert (told.steps[-1].done, told.steps[-1].total) == (2, 2)
    again, told = run(computations, store)
    assert told.steps == []
    assert again == first
    assert stored_results(computations, store, told) == first


def test_only_what_changed_is_computed(data, store):
    run([training(data, seed=0)], store)
    changed = {**MF, "learning_rate": 0.07}
    computations = [training(data, seed=0), training(data, settings=changed), training(data, seed=5)]
    results, told = run(computations, store)
    assert told.messages("done") == ["mf on tiny, seed 0", "mf on tiny, seed 5"]
    assert len(results) == 3


def test_a_method_without_epochs_is_computed_like_any_other(data, store):
    computation = training(data, "ease", tiny_settings("tiny", "ease").settings)
    results, told = run([computation], store)
    assert results[computation.key]["metrics"]["ndcg@20"] > 0
    assert told.messages("done") == ["ease on tiny, seed 0"]


def test_what_is_asked_for_twice_is_computed_once(data, store):
    _, told = run([training(data, seed=0)] * 3, store)
    assert len(told.messages("done")) == 1


def test_a_damaged_result_is_told_of_and_computed_again(data, store):
    computation = training(data, seed=0)
    first, _ = run([computation], store)
    path = store.path_of(computation)
    path.write_bytes(path.read_bytes().replace(b"ndcg@20", b"ndcg@21", 1))
    again, told = run([computation], store)
    assert [path.name in note for note in told.messages("note")] == [True]
    assert told.messages("done") == ["mf on tiny, seed 0"]
    assert without_seconds(again) == without_seconds(first)


def test_two_workers_give_what_one_gives(data, store, tmp_path):
    computations = [training(data, seed=seed) for seed in (0, 1)]
    alone, _ = run(computations, store)
    together, told = run(computations, ResultStore(tmp_path / "other"), workers=2)
    assert without_seconds(together) == without_seconds(alone)
    assert sorted(told.messages("done")) == ["mf on tiny, seed 0", "mf on tiny, seed 1"]
    assert {result["conditions"]["workers"] for result in together.values()} == {2}


def test_after_a_kill_a_training_continues_from_its_checkpoint(folder, store, tmp_path):
    killed = subprocess.run([sys.executable, str(WORKER), str(folder), str(store.folder)], check=False)
    assert killed.returncode == -signal.SIGKILL
    computation = long_training(folder)
    assert store.load(computation).result is None
    epochs = []
    result = compute(computation, store, Conditions(), lambda event: epochs.append(event["epoch"]))
    assert epochs[0] == LAST_EPOCH - LAST_EPOCH % 5 + 1, "it must continue from the last checkpoint"
    assert not store.work_folder(computation).exists()
    undisturbed = compute(computation, ResultStore(tmp_path / "other"), Conditions())
    assert result["metrics"] == undisturbed["metrics"]
    assert result["history"]["validations"] == undisturbed["history"]["validations"]


def test_data_that_changed_meanwhile_is_refused(tmp_path, store):
    folder = write_parts(tmp_path / "data")
    computation = long_training(folder)
    write_parts(folder, seed=1)
    load_parts.cache_clear()
    with pytest.raises(StaleError, match="changed since"):
        compute(computation, store, Conditions())
    load_parts.cache_clear()


def test_fresh_computes_what_is_stored_again(data, store):
    computations = [training(data, seed=seed) for seed in (0, 1)]
    first, _ = run(computations, store)
    again, told = run(computations[:1], store, fresh=True)
    assert told.messages("done") == ["mf on tiny, seed 0"]
    assert without_seconds(again) == {computations[0].key: without_seconds(first)[computations[0].key]}
    assert store.load(computations[1]).result == first[computations[1].key]


def test_what_cannot_be_computed_does_not_stop_the_others(data, store):
    empty = replace(data, source=data.source.model_copy(update={"source": "no such folder"}), fingerprint="none")
    good = training(data, seed=0)
    results, told = run([training(empty, seed=0), good], store)
    assert list(results) == [good.key]
    assert "could not be computed: 'no such folder' is no" in told.messages("note")[0]
