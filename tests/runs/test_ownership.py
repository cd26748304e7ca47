"""What is not ours stays as it is; an older run stays until the new one is whole; one writer at a time."""

import json
import os
import subprocess
import sys
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from attack.writers import killed_replacements, two_writers
from tests.runs.test_saved import assert_equal_runs, make_run
from tests.runs.trainings import PARTS, stopped_at

from rankformer.errors import RunFolderError
from rankformer.files import LOCK, locked
from rankformer.models.ials import IALS
from rankformer.models.rankformer import Rankformer
from rankformer.runs.checkpoint import remove_checkpoint
from rankformer.runs.checksums import checksummed_json
from rankformer.runs.folder import RunFolder, State
from rankformer.runs.manifest import EVALUATION, FILES, MANIFEST, STAGED, is_run
from rankformer.runs.model_card import CARD
from rankformer.runs.saved import load_run, save_run
from rankformer.runs.training_log import read_log

SETTINGS = {"embedding_dim": 4, "num_layers": 1, "epochs": 4, "validate_every": 1}
FOREIGN = {
    "manifest.json": b'{"name": "a web app"}',
    "users.parquet": b"mine",
    "evaluation.parquet": b"mine",
    "log.jsonl": b'{"level": "info", "message": "mine"}\n',
    "checkpoint/model.pt": b"weeks of work",
    "checkpoint/latest.json": b'{"step": 1000}',
    "checkpoint/epoch-00000003.safetensors": b"weeks of work",
}


def contents(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture(params=FOREIGN)
def foreign(request, tmp_path):
    """A folder of someone else that holds a file with a name like one of ours."""
    path = tmp_path / request.param
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(FOREIGN[request.param])
    return tmp_path


def test_a_folder_of_someone_else_is_refused_by_the_name_of_its_file_and_stays(foreign):
    before = contents(foreign)
    [name] = before
    for resume, overwrite in ((False, False), (True, False), (False, True)):
        with pytest.raises(RunFolderError, match=name.partition("/")[0]):
            RunFolder(foreign).claim(resume=resume, overwrite=overwrite)
    for resume in (False, True):
        with pytest.raises(RunFolderError, match=name.partition("/")[0]):
            Rankformer(**SETTINGS).fit(PARTS.train, run_folder=foreign, resume=resume)
    assert contents(foreign) == before


def test_saving_leaves_what_it_does_not_write_and_refuses_what_it_would(foreign):
    before = contents(foreign)
    try:
        save_run(foreign, make_run())
    except RunFolderError:
        assert contents(foreign) == before
    assert before.items() <= contents(foreign).items()


@pytest.mark.parametrize("name", ["checkpoint", "manifest.json", "log.jsonl", ".training", STAGED])
def test_symbolic_links_are_refused_and_their_targets_stay(tmp_path, name):
    elsewhere, run = tmp_path / "elsewhere", tmp_path / "run"
    run.mkdir()
    stopped_at(3, Rankformer(**SETTINGS).fit, PARTS.train, run_folder=elsewhere)
    target = {"checkpoint": elsewhere / "checkpoint", "log.jsonl": elsewhere / "log.jsonl"}.get(name, elsewhere)
    if name == MANIFEST:
        save_run(tmp_path / "other", make_run())
        target = tmp_path / "other" / MANIFEST
    (run / name).symlink_to(target)
    before = contents(elsewhere)
    for write in (
        lambda: save_run(run, make_run()),
        lambda: Rankformer(**SETTINGS).fit(PARTS.train, run_folder=run),
        lambda: RunFolder(run).claim(resume=False, overwrite=True),
    ):
        with pytest.raises(RunFolderError, match=r"is a symbolic link|already holds a finished run"):
            write()
    assert contents(elsewhere) == before


def test_a_training_killed_before_its_first_checkpoint_can_be_continued_and_replaced(tmp_path):
    """iALS writes none at all: what is left must be known as ours all the same."""
    for name in ("a", "b"):
        stopped_at(1, Rankformer(**SETTINGS).fit, PARTS.train, run_folder=tmp_path / name)
        assert RunFolder(tmp_path / name).checkpoint_epoch() is None
        assert RunFolder(tmp_path / name).state is State.UNFINISHED
    RunFolder(tmp_path / "a").claim(resume=True, overwrite=False)
    RunFolder(tmp_path / "b").claim(resume=False, overwrite=True)
    Rankformer(**SETTINGS).fit(PARTS.train, run_folder=tmp_path / "a", resume=True).save(tmp_path / "a")
    assert is_run(tmp_path / "a")
    IALS(embedding_dim=2).fit(PARTS.train, run_folder=tmp_path / "c")
    assert RunFolder(tmp_path / "c").claim(resume=True, overwrite=False) is State.UNFINISHED


def test_what_a_kill_left_beside_a_run_is_swept(tmp_path):
    save_run(tmp_path, make_run())
    stopped_at(3, Rankformer(**SETTINGS).fit, PARTS.train, run_folder=tmp_path / "t")
    (tmp_path / "t" / "checkpoint").rename(tmp_path / "checkpoint")  # killed between the manifest and this
    (tmp_path / "t" / "log.jsonl").unlink()
    (tmp_path / "t").rmdir()
    (tmp_path / f"{STAGED}.tmp").mkdir()
    (tmp_path / f"{STAGED}.tmp" / ".users.parquet.x.tmp").write_bytes(b"half")
    (tmp_path / f"{STAGED}.tmp" / "items.parquet").write_bytes(b"half")
    (tmp_path / ".manifest.json.x.tmp").write_bytes(b"half")
    assert RunFolder(tmp_path).claim(resume=True, overwrite=False) is State.FINISHED
    assert sorted(os.listdir(tmp_path)) == sorted([*FILES, MANIFEST, CARD])


@pytest.mark.parametrize("moved", range(len(FILES) + 2))
def test_a_run_counts_from_the_moment_it_is_staged(tmp_path, moved):
    """Killed after any number of its files have been moved to where the old ones were."""
    save_run(tmp_path / "run", make_run(seed=0))
    save_run(tmp_path / "run" / STAGED, make_run(seed=1))
    (tmp_path / "run" / STAGED / CARD).unlink()
    for name in [*FILES, MANIFEST][:moved]:
        os.replace(tmp_path / "run" / STAGED / name, tmp_path / "run" / name)
    assert_equal_runs(load_run(tmp_path / "run"), make_run(seed=1))
    save_run(tmp_path / "run", make_run(seed=2))
    assert_equal_runs(load_run(tmp_path / "run"), make_run(seed=2))
    assert sorted(os.listdir(tmp_path / "run")) == sorted([*FILES, MANIFEST, CARD])


def with_lists(seed):
    return replace(make_run(seed=seed), lists=np.array([[seed, 0], [1, -1]]))


@pytest.mark.parametrize("moved", range(len(FILES) + 3))
@pytest.mark.parametrize(("old", "new"), [(make_run, with_lists), (with_lists, make_run), (with_lists, with_lists)])
def test_lists_of_the_evaluation_go_with_their_run(tmp_path, old, new, moved):
    """Whether the older run has them or the new one, killed after any number of files have been moved."""
    save_run(tmp_path / "run", old(seed=0))
    save_run(tmp_path / "run" / STAGED, new(seed=1))
    (tmp_path / "run" / STAGED / CARD).unlink()
    wanted = new(seed=1).lists
    for name in [*FILES, EVALUATION, MANIFEST][:moved]:
        if name == EVALUATION and wanted is None:
            (tmp_path / "run" / name).unlink(missing_ok=True)
        else:
            os.replace(tmp_path / "run" / STAGED / name, tmp_path / "run" / name)
    assert np.array_equal(load_run(tmp_path / "run").lists, wanted)
    RunFolder(tmp_path / "run").claim(resume=True, overwrite=False)
    assert np.array_equal(load_run(tmp_path / "run").lists, wanted)
    names = {*FILES, MANIFEST, CARD} | ({EVALUATION} if wanted is not None else set())
    assert set(os.listdir(tmp_path / "run")) == names


def test_lists_that_no_manifest_names_are_someone_elses(tmp_path):
    save_run(tmp_path, make_run())
    (tmp_path / EVALUATION).write_bytes(b"mine")
    for write in (
        lambda: save_run(tmp_path, with_lists(seed=1)),
        lambda: RunFolder(tmp_path).claim(resume=False, overwrite=True),
    ):
        with pytest.raises(RunFolderError, match=EVALUATION):
            write()
    assert (tmp_path / EVALUATION).read_bytes() == b"mine"


def test_a_run_that_could_not_be_loaded_is_not_saved(tmp_path):
    save_run(tmp_path, make_run())
    before = contents(tmp_path)
    with pytest.raises(RunFolderError, match="metrics"):
        save_run(tmp_path, replace(make_run(seed=1), metrics={"ndcg@20": 1e300}))
    assert contents(tmp_path) == before


@pytest.fixture
def refitting(tmp_path):
    """A training that was killed in its refit."""
    fit = Rankformer(**SETTINGS).fit
    stopped_at(3, fit, PARTS.train, run_folder=tmp_path)
    stopped_at(3, fit, PARTS.whole, run_folder=tmp_path / "checkpoint" / "refit")
    (tmp_path / "checkpoint" / "refit" / LOCK).touch()  # which a kill leaves
    return tmp_path


def test_what_a_refit_left_is_ours_and_removed_with_its_training(refitting):
    assert RunFolder(refitting).is_refitting
    assert RunFolder(refitting).claim(resume=False, overwrite=True) is State.UNFINISHED
    RunFolder(refitting).clear()
    assert not refitting.exists()


@pytest.mark.parametrize("name", ["log.jsonl", "checkpoint/latest.json", "checkpoint/epoch-00000003.safetensors"])
def test_a_folder_of_someone_else_with_the_name_of_a_refit_is_refused_and_stays(tmp_path, name):
    stopped_at(3, Rankformer(**SETTINGS).fit, PARTS.train, run_folder=tmp_path)
    path = tmp_path / "checkpoint" / "refit" / name
    path.parent.mkdir(parents=True)
    path.write_bytes(b"mine\n")
    with pytest.raises(RunFolderError, match=r"refit/(log|checkpoint)"):
        RunFolder(tmp_path).claim(resume=False, overwrite=True)
    with pytest.raises(RunFolderError, match=r"refit/(log|checkpoint)"):
        save_run(tmp_path, make_run())
    assert path.read_bytes() == b"mine\n"


def test_a_link_with_the_name_of_a_refit_is_refused_and_its_target_stays(refitting, tmp_path_factory):
    elsewhere = tmp_path_factory.mktemp("elsewhere") / "refit"
    (refitting / "checkpoint" / "refit").rename(elsewhere)
    (refitting / "checkpoint" / "refit").symlink_to(elsewhere)
    before = contents(elsewhere)
    with pytest.raises(RunFolderError, match="is a symbolic link"):
        RunFolder(refitting).claim(resume=False, overwrite=True)
    assert contents(elsewhere) == before


def test_a_removal_killed_anywhere_leaves_what_is_known_as_ours(tmp_path, monkeypatch):
    """The next training begins where this one stopped, whichever file was the last to go."""
    fit, real = Rankformer(**SETTINGS).fit, Path.unlink
    for call in range(20):
        folder, count = tmp_path / str(call), [0]
        stopped_at(3, fit, PARTS.train, run_folder=folder)
        stopped_at(3, fit, PARTS.whole, run_folder=folder / "checkpoint" / "refit")

        def killed(path, call=call, count=count, **options):
            count[0] += 1
            if count[0] > call:
                raise KeyboardInterrupt
            real(path, **options)

        with monkeypatch.context() as patch:
            patch.setattr(Path, "unlink", killed)
            with suppress(KeyboardInterrupt):
                remove_checkpoint(folder / "checkpoint")
        RunFolder(folder).claim(resume=False, overwrite=True)
        if not (folder / "checkpoint").exists():
            break
    assert 5 <= call < 19


@pytest.mark.parametrize("name", ["replace", "fsync", "open", "chmod"])
def test_a_save_that_fails_at_any_call_leaves_the_old_run_or_the_new(tmp_path, monkeypatch, name):
    real, seeds = getattr(os, name), []
    for call in range(200):
        folder, count = tmp_path / str(call), [0]
        save_run(folder, make_run(seed=0))

        def failing(*arguments, call=call, count=count, **options):
            count[0] += 1
            if count[0] == call + 1:
                raise OSError(28, "No space left on device")
            return real(*arguments, **options)

        with monkeypatch.context() as patch:
            patch.setattr(os, name, failing)
            try:
                save_run(folder, make_run(seed=1))
                finished = True
            except OSError:
                finished = False
        found = load_run(folder)
        assert_equal_runs(found, make_run(seed=found.seed))
        seeds.append(found.seed)
        if finished:
            break
    assert seeds == sorted(seeds)
    assert (seeds[0], seeds[-1]) == (0, 1)
    assert call >= 5


def test_a_replacement_killed_anywhere_leaves_the_old_run_or_the_new(tmp_path):
    found = killed_replacements(tmp_path, kills=25, seed=0)
    assert found["kills"] == 25
    assert found["lost or mixed"] == 0


def test_two_writers_never_make_a_mixture(tmp_path):
    found = two_writers(tmp_path, rounds=15)
    assert found["rounds"] == 15
    assert found["mixed"] == 0
    assert found["unexpected"] == []
    assert found["saved"] >= 15


def test_a_folder_in_use_is_refused_with_the_process_that_uses_it(tmp_path):
    code = "import sys, pathlib; from rankformer.files import locked\nwith locked(pathlib.Path(sys.argv[1])):\n"
    code += "    print('held', flush=True); sys.stdin.read()"
    folder = tmp_path / "run"
    command = [sys.executable, "-c", code, str(folder)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(RunFolderError, match=f"is being written by process {holder.pid}"):
            save_run(folder, make_run())
        with pytest.raises(RunFolderError, match=f"process {holder.pid}"):
            Rankformer(**SETTINGS).fit(PARTS.train, run_folder=folder)
        holder.kill()
    assert (folder / LOCK).exists()  # which holds nobody back
    save_run(folder, make_run())
    assert sorted(os.listdir(folder)) == sorted([*FILES, MANIFEST, CARD])


def test_a_lock_leaves_nothing_and_may_be_taken_twice_by_one_thread(tmp_path):
    with locked(tmp_path / "new"), locked(tmp_path / "new"):
        assert (tmp_path / "new" / LOCK).read_text() == str(os.getpid())
    assert not (tmp_path / "new").exists()


def test_a_damaged_manifest_is_refused_and_stays(tmp_path):
    save_run(tmp_path, make_run())
    manifest = json.loads((tmp_path / MANIFEST).read_bytes())
    (tmp_path / MANIFEST).write_bytes(checksummed_json({"format": manifest["format"], "version": 99}))
    before = contents(tmp_path)
    with pytest.raises(RunFolderError, match="version 99"):
        save_run(tmp_path, make_run(seed=1))
    with pytest.raises(RunFolderError, match="version 99"):
        RunFolder(tmp_path).claim(resume=False, overwrite=True)
    assert contents(tmp_path) == before


def test_a_training_that_replaces_a_run_leaves_it_alone_until_it_is_done(tmp_path):
    save_run(tmp_path, make_run())
    before, folder = contents(tmp_path), RunFolder(tmp_path)
    assert folder.claim(resume=False, overwrite=True) is State.FINISHED
    stopped_at(3, Rankformer(**SETTINGS).fit, PARTS.train, run_folder=folder.training)
    assert before.items() <= contents(tmp_path).items()
    assert_equal_runs(load_run(tmp_path), make_run())
    assert folder.checkpoint_epoch() == 2
    with pytest.raises(RunFolderError, match="--resume"):
        folder.claim(resume=False, overwrite=False)
    assert folder.claim(resume=True, overwrite=False) is State.UNFINISHED
    model = Rankformer(**SETTINGS).fit(PARTS.train, run_folder=folder.training, resume=True)
    assert len(read_log(folder.training)) > 3
    model.save(tmp_path)
    assert load_run(tmp_path).model == "rankformer"
    assert sorted(os.listdir(tmp_path)) == sorted([*FILES, MANIFEST, CARD])
