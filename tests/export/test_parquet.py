"""Parquet as any other program sees it."""

import json
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rankformer.data.items import Items
from rankformer.export.exporter import export_run
from rankformer.export.targets import ParquetFiles
from rankformer.runs.saved import save_run

from .conftest import DIMENSION, ITEMS, make_run, odd_items

TESTED = {"Parquet": ("target", "pyarrow", "parquet")}


@pytest.fixture
def exported(saved, tmp_path):
    ids, titles = odd_items()
    export_run(saved(item_ids=ids, titles=titles), ParquetFiles(), tmp_path / "out")
    return tmp_path / "out"


def test_columns_and_their_types(exported):
    users, items = (pq.read_table(exported / name) for name in ("users.parquet", "items.parquet"))
    assert users.column_names == ["id", "vector"]
    assert items.column_names == ["id", "title", "vector"]
    assert items.schema.field("id").type == pa.string()
    vector = items.schema.field("vector").type
    assert (vector.value_type, vector.list_size) == (pa.float32(), DIMENSION)


def test_another_reader_finds_the_vectors(exported):
    polars = pytest.importorskip("polars")
    ids, titles = odd_items()
    table = polars.read_parquet(exported / "items.parquet")
    assert table["id"].to_list() == ids.to_pylist()
    assert table["title"].to_list() == titles.to_pylist()
    assert np.array_equal(table["vector"].to_numpy(), make_run(item_ids=ids).recommender.embeddings.items.numpy())


def test_the_metadata_stands_in_the_files_too(exported):
    metadata = json.loads((exported / "metadata.json").read_bytes())
    for name in ("users.parquet", "items.parquet"):
        assert json.loads(pq.read_schema(exported / name).metadata[b"rankformer"]) == metadata


def test_attributes_of_items_come_along(tmp_path):
    run = make_run()
    items = Items.from_arrow(pa.table({"id": run.recommender.item_ids.ids, "price": [float(n) for n in range(ITEMS)]}))
    save_run(tmp_path / "run", replace(run, recommender=run.recommender.with_items(items)))
    export_run(tmp_path / "run", ParquetFiles(), tmp_path / "out")
    assert pq.read_table(tmp_path / "out" / "items.parquet")["attribute.price"].to_pylist() == list(range(ITEMS))
