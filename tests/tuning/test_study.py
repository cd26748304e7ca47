import json
import shutil
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from optuna.distributions import FloatDistribution

from rankformer.data.parts import Parts
from rankformer.errors import RunFolderError
from rankformer.models.registry import model_class
from rankformer.runs.checksums import checksummed_json
from rankformer.tuning.objective import RUNNING, Objective, TuningData
from rankformer.tuning.space import make_space, space_of, to_json
from rankformer.tuning.study import LOCK, STUDY, open_study

from .conftest import TINY


def searched(objective, space, count, **hooks):
    with open_study(objective, space) as study:
        assert study.search(count, **hooks)
    return study


@pytest.fixture(scope="module")
def finished(data, space, tmp_path_factory):
    """A search of four trials; copy it before changing it."""
    folder = tmp_path_factory.mktemp("finished")
    return searched(Objective(model_class("mf"), data, TINY, seed=3, folder=folder), space, 4)


@pytest.fixture
def study(finished, objective, space):
    shutil.copytree(finished.objective.folder, objective.folder)
    return searched(objective, space, 4)


@pytest.mark.parametrize("name", ["lightgcn", "rankformer", "ials"])
def test_other_methods_with_their_own_spaces(objective, plain, tmp_path, name):
    method = model_class(name)
    fixed = {"embedding_dim": 4, "metric": "ndcg@5"} | ({} if name == "ials" else {"epochs": 3, "validate_every": 1})
    aim = replace(objective, method=method, fixed=fixed)
    study = searched(aim, space_of(method), 3)
    assert [trial.state for trial in study.trials] == ["complete"] * 3
    assert study.trials[0].settings == {key: getattr(method().settings, key) for key in study.space}
    assert study.best.value >= study.trials[0].value
    again = searched(replace(aim, folder=tmp_path / "again"), space_of(method), 3)
    assert plain(again.trials) == plain(study.trials)


def test_what_is_in_the_folder(study):
    folder = study.objective.folder
    assert sorted(path.name for path in folder.iterdir()) == [STUDY, LOCK]
    content = json.loads((folder / STUDY).read_text(encoding="utf-8"))
    assert (content["data"], content["metric"], len(content["trials"])) == ("tastes", "ndcg@5", 4)
    assert content["identity"]["data"] == study.objective.data.fingerprint


def test_a_search_that_is_done_stays_as_it_is(study, space):
    before = study.path.read_bytes()
    again = searched(study.objective, space, 3)
    assert again.trials == study.trials
    assert study.path.read_bytes() == before


def test_more_trials_are_the_same_search_carried_on(study, space, plain, tmp_path):
    carried_on = searched(study.objective, space, 6)
    at_once = searched(replace(study.objective, folder=tmp_path / "at once"), space, 6)
    assert plain(carried_on.trials) == plain(at_once.trials)
    assert carried_on.trials[:4] == study.trials


@pytest.mark.parametrize("count", [7, 16, 17, 64])
def test_interrupted_at_any_event_it_ends_the_same(objective, study, space, plain, tmp_path, count):
    """A trial has 16 events; 64 is the last of all."""
    seen = []

    def stop(event):
        seen.append(event)
        if len(seen) == count:
            raise KeyboardInterrupt

    folder = tmp_path / "cut"
    with pytest.raises(KeyboardInterrupt):
        searched(replace(objective, folder=folder, on_event=stop), space, 4)
    resumed = searched(replace(objective, folder=folder), space, 4)
    assert plain(resumed.trials) == plain(study.trials)
    assert not (folder / RUNNING).exists()


KILLED = """
import json, os, signal, sys
from pathlib import Path
import numpy as np, torch
from rankformer.data.interactions import Interactions
from rankformer.models.registry import model_class
from rankformer.tuning.objective import Objective, TuningData
from rankformer.tuning.space import make_space
from rankformer.tuning.study import open_study

torch.set_num_threads(1)
pairs = np.load(sys.argv[1])
train, valid = (Interactions.from_indices(*pairs[part], 30, 20) for part in ("train", "valid"))
seen = []

def kill(event):
    seen.append(event)
    if len(seen) == 23:
        os.kill(os.getpid(), signal.SIGKILL)

method = model_class("mf")
data = TuningData("tastes", sys.argv[2], train, valid)
space = make_space(method, json.loads(sys.argv[3]), "a test")
aim = Objective(method, data, json.loads(sys.argv[4]), 3, Path(sys.argv[5]), on_event=kill)
with open_study(aim, space) as study:
    study.search(4)
"""


def test_killed_by_the_system_it_ends_the_same(objective, study, space, parts, plain, tmp_path):
    pairs = {name: np.stack([part.users, part.items]) for name, part in zip(Parts._fields, parts, strict=True)}
    np.savez(tmp_path / "pairs.npz", **pairs)
    described = json.dumps(to_json(space))
    fixed = json.dumps(objective.fixed)
    words = [tmp_path / "pairs.npz", objective.data.fingerprint, described, fixed, tmp_path / "killed"]
    process = subprocess.run([sys.executable, "-c", KILLED, *map(str, words)], capture_output=True, check=False)
    assert process.returncode == -9, process.stderr
    folder = tmp_path / "killed"
    assert len(json.loads((folder / STUDY).read_text(encoding="utf-8"))["trials"]) == 1
    assert list((folder / RUNNING).iterdir())
    assert plain(searched(replace(objective, folder=folder), space, 4).trials) == plain(study.trials)


def test_a_failure_is_kept_and_the_search_goes_on(objective, space):
    """Half of this space diverges at once."""
    rates = make_space(objective.method, {"learning_rate": {"low": 1e-3, "high": 1e38, "log": True}}, "a test")
    study = searched(objective, {**rates, "l2": space["l2"]}, 5)
    states = [trial.state for trial in study.trials]
    assert "failed" in states
    assert states[0] == "complete"
    again = searched(objective, {**rates, "l2": space["l2"]}, 5)
    assert again.trials == study.trials


def test_each_trial_is_told_of_once_it_is_on_disk(objective, space):
    counts = []

    def note(trial):
        content = json.loads((objective.folder / STUDY).read_text(encoding="utf-8"))
        counts.append((trial.number, len(content["trials"])))

    searched(objective, space, 3, on_trial=note)
    assert counts == [(0, 1), (1, 2), (2, 3)]


def test_no_trial_begins_when_the_time_is_up(objective, space):
    with open_study(replace(objective, deadline=0.0), space) as study:
        assert not study.search(3)
    assert study.trials == []
    assert not (objective.folder / STUDY).exists()


class TestRefused:
    """Each of these is one sentence that names the file."""

    def refuse(self, objective, space, message):
        with pytest.raises(RunFolderError) as caught, open_study(objective, space):
            pass
        assert message in str(caught.value)
        assert str(objective.folder) in str(caught.value)
        assert "\n" not in str(caught.value)

    def test_another_search(self, study, space, parts):
        aim = study.objective
        other_data = TuningData("tastes", "f" * 64, parts.train, parts.valid)
        self.refuse(replace(aim, data=other_data), space, f'its data is "{aim.data.fingerprint}"')
        self.refuse(replace(aim, method=model_class("lightgcn")), space, 'its model is "mf", this one\'s is "lightgcn"')
        self.refuse(replace(aim, seed=4), space, "its seed is 3, this one's is 4")
        fixed = {**aim.fixed, "epochs": 9}
        self.refuse(replace(aim, fixed=fixed), space, 'its fixed settings is {"epochs": 8}')
        self.refuse(
            aim, {**space, "l2": FloatDistribution(0.0, 0.2)}, '{"l2": {"low": 0.0, "high": 0.1, "log": false}}'
        )
        self.refuse(aim, {"l2": space["l2"]}, "its search space")

    def test_every_changed_byte(self, study, space):
        whole = study.path.read_bytes()
        for place in range(0, len(whole), 97):
            study.path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
            self.refuse(study.objective, space, "damaged")
        study.path.write_bytes(whole[: len(whole) // 2])
        self.refuse(study.objective, space, "damaged")

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"format": 2}, "not a search that this version can read"),
            ({"trials": 3}, "not a search that this version can read"),
            ({"trials": [{"number": 0}]}, "a trial in it cannot be read"),
            ({"identity": {}}, "another search"),
        ],
        ids=str,
    )
    def test_a_checksummed_file_of_another_kind(self, study, space, change, message):
        content = json.loads(study.path.read_text(encoding="utf-8"))
        del content["checksum"]
        study.path.write_bytes(checksummed_json({**content, **change}))
        self.refuse(study.objective, space, message)

    def test_trials_that_were_taken_out(self, study, space):
        content = json.loads(study.path.read_text(encoding="utf-8"))
        del content["checksum"], content["trials"][1]
        study.path.write_bytes(checksummed_json(content))
        self.refuse(study.objective, space, "not in order")

    def test_a_folder_of_other_things(self, objective, space):
        objective.folder.mkdir()
        (objective.folder / "cat.jpg").write_bytes(b"cat")
        self.refuse(objective, space, "cat.jpg")
        assert [path.name for path in objective.folder.iterdir()] == ["cat.jpg"]

    def test_a_file(self, objective, space):
        objective.folder.write_text("x", encoding="utf-8")
        self.refuse(objective, space, "is a file")

    def test_a_folder_in_which_someone_searches(self, objective, space):
        with open_study(objective, space):
            self.refuse(objective, space, "another process")
        with open_study(objective, space):
            pass
