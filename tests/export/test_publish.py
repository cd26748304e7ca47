"""An export appears whole or not at all, and never at the cost of anything else."""

import json
import os
import stat

import pytest

from rankformer.errors import ConfigError
from rankformer.export.exporter import building, check_path, publish
from rankformer.export.pgvector import PgVector
from rankformer.export.targets import NumpyArrays


def make_export(folder, metadata="metadata.json"):
    folder.mkdir()
    (folder / metadata).write_text(json.dumps({"format": "rankformer-export", "files": [metadata, "items.npy"]}))
    (folder / "items.npy").write_text("old")
    return folder


def test_a_free_place_is_fine(tmp_path):
    check_path(tmp_path / "new", NumpyArrays(), overwrite=False)


def test_a_place_that_is_taken(tmp_path):
    for target in (make_export(tmp_path / "old"), tmp_path):
        with pytest.raises(ConfigError, match="exists; use --overwrite"):
            check_path(target, NumpyArrays(), overwrite=False)


def test_overwriting_an_export_or_an_empty_folder(tmp_path):
    (tmp_path / "empty").mkdir()
    check_path(tmp_path / "empty", NumpyArrays(), overwrite=True)
    check_path(make_export(tmp_path / "old"), NumpyArrays(), overwrite=True)
    check_path(make_export(tmp_path / "of version 1", "card.json"), NumpyArrays(), overwrite=True)
    (tmp_path / "dump.sql").write_text("old")
    check_path(tmp_path / "dump.sql", PgVector(), overwrite=True)


def test_nothing_else_is_overwritten(tmp_path):
    mine = make_export(tmp_path / "mixed")
    (mine / "thesis.tex").write_text("years of work")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "metadata.json").write_text('["not a metadata"]')
    for target in (mine, tmp_path / "other", tmp_path):
        with pytest.raises(ConfigError, match="holds other files"):
            check_path(target, NumpyArrays(), overwrite=True)
    with pytest.raises(ConfigError, match="is not a folder, which --to numpy writes"):
        check_path(mine / "items.npy", NumpyArrays(), overwrite=True)
    for target in (mine, os.devnull):
        with pytest.raises(ConfigError, match="is not a file, which --to pgvector writes"):
            check_path(type(mine)(target), PgVector(), overwrite=True)


@pytest.mark.parametrize("before", ["nothing", "an export"])
def test_a_folder_is_put_in_place(tmp_path, before):
    target = tmp_path / "deep" / "out"
    if before == "an export":
        target.parent.mkdir()
        make_export(target)
    with building(target) as folder:
        (folder / "new").write_text("new")
        publish(folder, target)
    assert [path.name for path in target.parent.iterdir()] == ["out"]
    assert [path.name for path in target.iterdir()] == ["new"]
    mask = os.umask(0)
    os.umask(mask)
    assert stat.S_IMODE(target.stat().st_mode) == 0o777 & ~mask


def test_a_file_is_put_in_place(tmp_path):
    (tmp_path / "out.sql").write_text("old")
    with building(tmp_path / "out.sql") as folder:
        (folder / "export.sql").write_text("new")
        publish(folder / "export.sql", tmp_path / "out.sql")
    assert [path.name for path in tmp_path.iterdir()] == ["out.sql"]
    assert (tmp_path / "out.sql").read_text() == "new"


def test_a_failure_leaves_nothing_behind(tmp_path):
    def stopped_halfway():
        with building(tmp_path / "out") as folder:
            (folder / "half").write_text("half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        stopped_halfway()
    assert list(tmp_path.iterdir()) == []


def test_a_failed_rename_brings_the_old_export_back(tmp_path, monkeypatch):
    target, rename = make_export(tmp_path / "out"), os.rename

    def full_disk(source, destination):
        if source.name == "export":
            raise OSError("no space left")
        rename(source, destination)

    monkeypatch.setattr(os, "rename", full_disk)
    with pytest.raises(OSError, match="no space left"), building(tmp_path / "out") as folder:
        publish(folder, target)
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    assert (target / "items.npy").read_text() == "old"
