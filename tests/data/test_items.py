"""Items files: what is read of them, and how they are put in a model's order."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rankformer.data.id_map import IdMap
from rankformer.data.items import Items, read_item_ids
from rankformer.errors import ConfigError, DataError

CSV = """sku,name,price,rank,in_stock,zip,brand,note
7,Boot,49.5,3,true,00123,acme,
12,Sandal,,1,False,04000,,
9,"Clog, red",-1e2,2,TRUE,00123,apex,
"""


def write(path, text):
    path.write_text(text, encoding="utf-8")
    return path


def test_a_csv_file_gets_types_titles_and_nulls(tmp_path):
    items = Items.read(write(tmp_path / "items.csv", CSV))
    assert items.ids.ids.to_pylist() == ["7", "12", "9"]  # a column of text; aligned with integers below
    assert items.titles.to_pylist() == ["Boot", "Sandal", "Clog, red"]
    assert {name: column.to_pylist() for name, column in items.columns.items()} == {
        "price": [49.5, None, -100.0],
        "rank": [3, 1, 2],
        "in_stock": [True, False, True],
        "zip": ["00123", "04000", "00123"],  # a code, not a number
        "brand": ["acme", None, "apex"],
        "note": [None, None, None],
    }


@pytest.mark.parametrize("kind", ["parquet", "jsonl"])
def test_typed_files_keep_their_types(tmp_path, kind):
    rows = [
        {"id": 1, "title": "A", "tags": ["x", "y"], "price": 2, "empty": None},
        {"id": 2, "title": None, "tags": None, "price": 3, "empty": None},
    ]
    path = tmp_path / f"items.{kind}"
    if kind == "parquet":
        pq.write_table(pa.Table.from_pylist(rows), path)
    else:
        write(path, "".join(json.dumps(row) + "\n" for row in rows))
    items = Items.read(path)
    assert items.ids.ids.type == pa.int64()
    assert items.columns["tags"].to_pylist() == [["x", "y"], None]
    assert items.columns["price"].type == pa.int64()
    assert items.columns["empty"].to_pylist() == [None, None]


def test_alignment_takes_the_models_order_and_type_and_keeps_the_rest_after_it(tmp_path):
    items = Items.read(write(tmp_path / "items.csv", CSV))
    aligned = items.align(IdMap(pa.array([5, 9, 7])), pa.array(["Five", "Nine", None]))
    assert aligned.ids.ids.to_pylist() == [5, 9, 7, 12]
    assert aligned.titles.to_pylist() == ["Five", "Clog, red", "Boot", "Sandal"]  # the file's own title goes first
    assert aligned.columns["brand"].to_pylist() == [None, "apex", "acme", None]


@pytest.mark.parametrize("written", ["007", "7.0", "A7"])
def test_ids_that_would_change_are_refused_and_never_matched_to_another_item(tmp_path, written):
    items = Items.read(write(tmp_path / "items.csv", f"item_id,price\n{written},1\n"))
    with pytest.raises(DataError, match=r"items.csv has item ids of type string, such as .* type int64"):
        items.align(IdMap(pa.array([7])))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("price,brand\n1,a\n", "has no item column"),
        ("id,price\n1,2\n2,3\n1,4\n", "line 4: item '1' occurs twice"),
        ("id,price\n,2\n", "line 2: the item id is missing"),
        ("id,price,price\n1,2,3\n", "has two columns 'price'"),
    ],
)
def test_what_is_refused(tmp_path, text, message):
    with pytest.raises(DataError, match=message):
        Items.read(write(tmp_path / "items.csv", text))


def test_a_column_of_another_type_is_named():
    with pytest.raises(DataError, match="column 'size' has type struct"):
        Items.from_arrow(pa.table({"id": [1], "size": [{"width": 2}]}))


def test_sets_are_boolean_attributes():
    items = Items.from_arrow(pa.table({"id": ["a", "b", "c"], "price": [1, 2, 3]}))
    named = items.with_sets({"available": ["c", "a", "unknown"], "none": []})
    assert named.columns["available"].to_pylist() == [True, False, True]
    assert named.columns["none"].to_pylist() == [False] * 3
    with pytest.raises(ConfigError, match="'price' has the name of an attribute"):
        items.with_sets({"price": ["a"]})


@pytest.mark.parametrize(
    ("name", "text"), [("ids.txt", "3\r\n\n1\n"), ("ids", "3\n1"), ("ids.csv", "sku,x\n3,a\n1,b\n")]
)
def test_ids_of_a_file_have_the_type_of_the_known_ones(tmp_path, name, text):
    assert read_item_ids(write(tmp_path / name, text), IdMap(pa.array([1, 2]))) == [3, 1]
