"""The folder a training writes to: what is in it, who may use it, and what is removed from it."""

import json

import numpy as np
import pytest
from tests.runs.test_legacy import write_version_1
from tests.runs.trainings import PARTS, stopped_at

from rankformer.data.interactions import Interactions
from rankformer.data.parts import Parts
from rankformer.errors import RunFolderError
from rankformer.models.ials import IALS
from rankformer.models.lightgcn import LightGCN
from rankformer.models.rankformer import Rankformer
from rankformer.runs.folder import RunFolder, State
from rankformer.runs.manifest import FILES, MANIFEST, is_run
from rankformer.runs.model_card import CARD

TRAIN, VALID, TEST = PARTS
SETTINGS = {"embedding_dim": 4, "num_layers": 1, "epochs": 4, "validate_every": 1}


@pytest.fixture
def unfinished(tmp_path):
    stopped_at(3, Rankformer(**SETTINGS).fit, TRAIN, VALID, run_folder=tmp_path / "run")
    return RunFolder(tmp_path / "run")


@pytest.fixture
def finished(tmp_path):
    data = {"fingerprint": PARTS.fingerprint}
    Rankformer(seed=3, **SETTINGS).fit(TRAIN, VALID).save(tmp_path / "run", data=data)
    return RunFolder(tmp_path / "run")


def test_an_absent_or_empty_folder_is_empty(tmp_path):
    assert RunFolder(tmp_path / "none").state is State.EMPTY
    assert RunFolder(tmp_path).state is State.EMPTY
    assert RunFolder(tmp_path).claim(resume=False, overwrite=False) is State.EMPTY
    assert RunFolder(tmp_path).checkpoint_epoch() is None


def test_an_unfinished_training_needs_a_flag(unfinished):
    assert unfinished.state is State.UNFINISHED
    assert unfinished.checkpoint_epoch() == 2
    with pytest.raises(
        RunFolderError, match="has not finished; use --resume to continue it, --overwrite to start again"
    ):
        unfinished.claim(resume=False, overwrite=False)
    assert unfinished.claim(resume=True, overwrite=False) is State.UNFINISHED
    assert unfinished.claim(resume=False, overwrite=True) is State.UNFINISHED


def test_a_finished_run_needs_a_flag(finished):
    assert finished.state is State.FINISHED
    with pytest.raises(RunFolderError, match="holds a finished run; use --overwrite to replace it"):
        finished.claim(resume=False, overwrite=False)
    assert finished.claim(resume=True, overwrite=False) is State.FINISHED


def test_what_is_not_ours_is_refused(tmp_path):
    (tmp_path / "file").write_text("mine")
    with pytest.raises(RunFolderError, match="is a file; --out needs a folder"):
        _ = RunFolder(tmp_path / "file").state
    with pytest.raises(RunFolderError, match=r"holds other files \(file\) and no run"):
        RunFolder(tmp_path).claim(resume=True, overwrite=True)


def test_what_a_crash_left_is_an_unfinished_training(tmp_path):
    (tmp_path / ".users.parquet.x1.tmp").write_bytes(b"half")
    (tmp_path / "log.jsonl").write_text("")
    assert RunFolder(tmp_path).state is State.UNFINISHED


@pytest.mark.parametrize("name", ["unfinished", "finished"])
def test_clearing_removes_a_training_and_nothing_else(name, request):
    folder = request.getfixturevalue(name)
    folder.checkpoint.mkdir(parents=True, exist_ok=True)
    (folder.path / "notes.txt").write_text("mine")
    (folder.checkpoint / "notes.txt").write_text("mine")
    folder.clear()
    left = sorted(str(path.relative_to(folder.path)) for path in folder.path.rglob("*"))
    run = [".training", ".training/checkpoint", ".training/checkpoint/notes.txt", *FILES, MANIFEST, CARD]
    training = ["checkpoint", "checkpoint/notes.txt"]
    assert left == sorted(["notes.txt", *(run if name == "finished" else training)])
    folder.clear()  # a second time is no error


def test_a_fit_that_is_saved_in_its_folder_leaves_no_checkpoint(tmp_path):
    model = Rankformer(**SETTINGS)
    model.fit(TRAIN, VALID, run_folder=tmp_path / "run")
    assert (tmp_path / "run" / "checkpoint" / "latest.json").is_file()
    model.save(tmp_path / "run")
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == sorted([*FILES, MANIFEST, CARD])
    with pytest.raises(RunFolderError, match="already holds a finished run"):
        model.fit(TRAIN, VALID, run_folder=tmp_path / "run")


def test_the_run_that_is_asked_for_is_taken_as_finished(finished):
    finished.check_finished(Rankformer(seed=3, **SETTINGS), PARTS)
    assert is_run(finished.path)


def other_parts(part):
    changed = {"train": TRAIN, "valid": VALID, "test": TEST}
    log = changed[part]
    changed[part] = Interactions(log.users[1:], np.roll(log.items[1:], 1), log.user_ids, log.item_ids)
    return Parts(**changed)


@pytest.mark.parametrize(
    ("model", "parts", "complaint"),
    [
        (LightGCN(seed=3, **SETTINGS), PARTS, 'its model is "rankformer", this one\'s is "lightgcn"'),
        (IALS(seed=3), PARTS, "its model"),
        (Rankformer(seed=3, tau=0.1, **SETTINGS), PARTS, "its settings"),
        (Rankformer(seed=4, **SETTINGS), PARTS, "its seed is 3, this one's is 4"),
        (Rankformer(seed=3, **SETTINGS), other_parts("train"), "its data"),
        (Rankformer(seed=3, **SETTINGS), other_parts("valid"), "its data"),
        (Rankformer(seed=3, **SETTINGS), other_parts("test"), "its data"),
    ],
)
def test_another_model_setting_seed_or_data_is_refused(finished, model, parts, complaint):
    with pytest.raises(RunFolderError, match=complaint) as caught:
        finished.check_finished(model, parts)
    assert MANIFEST in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_run_saved_from_python_is_known_by_its_training_part(tmp_path):
    Rankformer(**SETTINGS).fit(TRAIN, VALID).save(tmp_path / "run")
    RunFolder(tmp_path / "run").check_finished(Rankformer(**SETTINGS), PARTS)
    with pytest.raises(RunFolderError, match="its data"):
        RunFolder(tmp_path / "run").check_finished(Rankformer(**SETTINGS), other_parts("train"))


def test_a_run_of_version_1_is_taken_as_finished_though_it_lacks_newer_settings(finished):
    write_version_1(finished.path, {"initialization": "start"}, lambda manifest: manifest["settings"].pop("loss"))
    assert "loss" not in json.loads((finished.path / MANIFEST).read_bytes())["settings"]
    finished.check_finished(Rankformer(seed=3, **SETTINGS), PARTS)
    with pytest.raises(RunFolderError, match="its settings"):
        finished.check_finished(Rankformer(seed=3, tau=0.1, **SETTINGS), PARTS)
