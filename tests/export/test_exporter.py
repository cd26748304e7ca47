"""A run in, a tested export out: every target, every kind of id."""

import json

import numpy as np
import pyarrow as pa
import pytest
import torch

from rankformer.errors import ConfigError, DataError, RankformerError, RunFolderError
from rankformer.export import TARGETS
from rankformer.export.exporter import METADATA, export_run, make_target, target_class
from rankformer.export.targets import NumpyArrays

from .conftest import ITEMS, USERS, needed, odd_items
from .test_postgres_text import KINDS


@pytest.fixture(params=[name for name in TARGETS if name != "onnx"])  # which tests/tracking has
def target(request):
    if request.param == "faiss":
        needed("faiss")
    return make_target(request.param)


DATABASES = ("qdrant", "milvus", "opensearch", "redis")


@pytest.mark.parametrize("kind", KINDS)
def test_ids_of_every_kind_come_through(saved, tmp_path, target, kind):
    """The self-test inside compares every id, title and number, and the lists."""
    ids = KINDS[kind][0]
    if target.name in DATABASES and kind in ("raw bytes", "times of day"):
        with pytest.raises(DataError, match="cannot be kept"):
            export_run(saved(user_ids=ids, item_ids=ids), target, tmp_path / "out")
        return
    exported = export_run(saved(user_ids=ids, item_ids=ids), target, tmp_path / "out")
    assert (exported.self_test.users, exported.self_test.k) == (len(ids), min(20, len(ids)))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "run"]


def test_titles_odd_strings_and_tied_scores(saved, tmp_path, target):
    ids, titles = odd_items()
    vectors = [torch.ones(USERS, 4), torch.ones(ITEMS, 4)]
    exported = export_run(saved(item_ids=ids, titles=titles, vectors=vectors), target, tmp_path / "out")
    assert exported.self_test.users == 100


def test_vectors_of_64_bits(saved, tmp_path, target):
    export_run(saved(dtype=torch.float64), target, tmp_path / "out")


def test_the_files_and_the_metadata(saved, tmp_path, target):
    out = tmp_path / "out"
    exported = export_run(saved(), target, out)
    if target.single:
        assert out.is_file()
        comments = [line[3:] for line in out.read_text().splitlines() if line.startswith("-- ")]
        metadata = json.loads("\n".join(comments[2:]))
    else:
        assert sorted(path.name for path in out.iterdir()) == sorted([*target.files, METADATA])
        metadata = json.loads((out / "metadata.json").read_bytes())
        assert metadata["files"] == [*target.files, METADATA]
    assert metadata == exported.metadata
    assert (metadata["to"], metadata["num_items"]) == (target.name, ITEMS)


def test_overwriting_gives_the_new_run(saved, tmp_path, target):
    out = tmp_path / "out"
    first = export_run(saved(seed=1), target, out)
    with pytest.raises(ConfigError, match="exists"):
        export_run(saved(seed=2), target, out)
    second = export_run(saved(seed=2), target, out, overwrite=True)
    assert first.metadata["model_hash"] != second.metadata["model_hash"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "run"]
    assert target.single or json.loads((out / "metadata.json").read_bytes()) == second.metadata


class Mangled(NumpyArrays):
    """A writer that loses the sign of the users."""

    def write(self, contents, folder):
        super().write(contents, folder)
        np.save(folder / "users.npy", abs(contents.tables.users.vectors))


def test_a_mismatch_leaves_nothing_behind(saved, tmp_path):
    run, out = saved(), tmp_path / "out"
    with pytest.raises(RankformerError, match="failed its self-test"):
        export_run(run, Mangled(), out)
    assert [path.name for path in tmp_path.iterdir()] == ["run"]
    metadata = export_run(run, NumpyArrays(), out).metadata
    with pytest.raises(RankformerError, match="failed its self-test"):
        export_run(run, Mangled(), out, overwrite=True)
    assert json.loads((out / "metadata.json").read_bytes()) == metadata


def test_a_damaged_run_is_refused(saved, tmp_path):
    folder = saved()
    (folder / "items.parquet").unlink()
    with pytest.raises(RunFolderError, match=r"items\.parquet is missing"):
        export_run(folder, NumpyArrays(), tmp_path / "out")


def test_only_a_single_file_goes_to_stdout(saved):
    with pytest.raises(ConfigError, match="--to numpy makes a folder"):
        export_run(saved(), NumpyArrays(), None)


def test_a_link_to_a_folder_is_followed(saved, tmp_path):
    (tmp_path / "current").symlink_to(tmp_path / "real")
    export_run(saved(), NumpyArrays(), tmp_path / "current")
    assert (tmp_path / "current").is_symlink()
    assert (tmp_path / "real" / "items.npy").is_file()


def test_targets_by_name():
    assert all(target_class(name).name == name for name in TARGETS)
    with pytest.raises(ConfigError, match="cannot export to 'csv'; expected one of parquet, numpy, faiss, pgvector"):
        make_target("csv")
    with pytest.raises(ConfigError, match="--prefix is for --to pgvector"):
        make_target("numpy", prefix="a_", dsn=None)
    assert make_target("pgvector", prefix="a_", dsn=None).names == ("a_users", "a_items")


def test_pgvector_refuses_a_nul_and_leaves_nothing(saved, tmp_path):
    run = saved(item_ids=pa.array(["a", "b\0"]))
    with pytest.raises(DataError, match="NUL"):
        export_run(run, make_target("pgvector"), tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["run"]
    export_run(run, make_target("parquet"), tmp_path / "out")
