"""A run in, a proven export out: every format, every kind of id."""

import json

import pyarrow as pa
import pytest
import torch

from rankformer.errors import ConfigError, DataError, RankformerError, RunFolderError
from rankformer.export.exporter import FORMATS, export_run, make_format
from rankformer.export.numpy_arrays import NumpyArrays, write_array

from .conftest import ITEMS, USERS, needed, odd_items
from .test_sql_ids import KINDS


@pytest.fixture(params=FORMATS)
def form(request):
    if request.param == "faiss":
        needed("faiss")
    return make_format(request.param)


@pytest.mark.parametrize("kind", KINDS)
def test_ids_of_every_kind_come_through(saved, tmp_path, form, kind):
    """The self-test inside compares every id, title and number, and the lists."""
    ids = KINDS[kind][0]
    exported = export_run(saved(user_ids=ids, item_ids=ids), form, tmp_path / "out")
    assert (exported.self_test.users, exported.self_test.k) == (len(ids), min(20, len(ids)))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "run"]


def test_titles_odd_texts_and_tied_scores(saved, tmp_path, form):
    ids, titles = odd_items()
    vectors = [torch.ones(USERS, 4), torch.ones(ITEMS, 4)]
    exported = export_run(saved(item_ids=ids, titles=titles, vectors=vectors), form, tmp_path / "out")
    assert exported.self_test.users == 100


def test_vectors_of_64_bits(saved, tmp_path, form):
    export_run(saved(dtype=torch.float64), form, tmp_path / "out")


def test_the_files_and_the_card(saved, tmp_path, form):
    out = tmp_path / "out"
    exported = export_run(saved(), form, out)
    if form.single:
        assert out.is_file()
        comments = [line[3:] for line in out.read_text().splitlines() if line.startswith("-- ")]
        card = json.loads("\n".join(comments[2:]))
    else:
        assert sorted(path.name for path in out.iterdir()) == sorted(form.files)
        card = json.loads((out / "card.json").read_bytes())
        assert card["files"] == list(form.files)
    assert card == exported.card
    assert (card["to"], card["num_items"]) == (form.name, ITEMS)


def test_overwriting_gives_the_new_run(saved, tmp_path, form):
    out = tmp_path / "out"
    first = export_run(saved(seed=1), form, out)
    with pytest.raises(ConfigError, match="exists"):
        export_run(saved(seed=2), form, out)
    second = export_run(saved(seed=2), form, out, overwrite=True)
    assert first.card["model_hash"] != second.card["model_hash"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "run"]
    assert form.single or json.loads((out / "card.json").read_bytes()) == second.card


class Mangled(NumpyArrays):
    """A writer that loses the sign of the users."""

    def write(self, contents, folder):
        super().write(contents, folder)
        write_array(folder / "users.npy", abs(contents.tables.users.vectors))


def test_a_mismatch_leaves_nothing_behind(saved, tmp_path):
    run, out = saved(), tmp_path / "out"
    with pytest.raises(RankformerError, match="failed its self-test"):
        export_run(run, Mangled(), out)
    assert [path.name for path in tmp_path.iterdir()] == ["run"]
    card = export_run(run, NumpyArrays(), out).card
    with pytest.raises(RankformerError, match="failed its self-test"):
        export_run(run, Mangled(), out, overwrite=True)
    assert json.loads((out / "card.json").read_bytes()) == card


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


def test_formats_by_name():
    with pytest.raises(ConfigError, match="cannot export to 'csv'; expected one of parquet, numpy, faiss, pgvector"):
        make_format("csv")
    with pytest.raises(ConfigError, match="--prefix is for --to pgvector"):
        make_format("numpy", prefix="a_", dsn=None)
    assert make_format("pgvector", prefix="a_", dsn=None).names == ("a_users", "a_items")


def test_pgvector_refuses_a_nul_and_leaves_nothing(saved, tmp_path):
    run = saved(item_ids=pa.array(["a", "b\0"]))
    with pytest.raises(DataError, match="NUL"):
        export_run(run, make_format("pgvector"), tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["run"]
    export_run(run, make_format("parquet"), tmp_path / "out")
