"""Items on the command line: an items file kept by `train`, filters of `recommend` and `similar`."""

import json

import pyarrow.parquet as pq
import pytest

from .conftest import CLICK_COLUMNS, write_clicks

ITEMS = ["product,name,price,colour,in_stock"] + [
    f"{item},Product {item} XL,{item}.5,{'red' if item % 4 == 0 else 'blue'},{'true' if item % 3 else 'false'}"
    for item in range(12)  # 10 and 11 are in no interaction
]


@pytest.fixture(scope="module")
def shop(tmp_path_factory):
    """A folder with a run that knows its items, and the files it came from."""
    from rankformer.cli.main import run

    folder = tmp_path_factory.mktemp("shop")
    write_clicks(folder / "clicks.csv")
    (folder / "items.csv").write_text("\n".join(ITEMS) + "\n", encoding="utf-8")
    arguments = ["train", folder / "clicks.csv", "--out", folder / "run", "--items", folder / "items.csv"]
    assert run([*map(str, arguments), *CLICK_COLUMNS, "--model", "ials", "--set", "embedding_dim=4"]) == 0
    return folder


def listed(cli, shop, *arguments, key="item_id"):
    found = cli(*arguments[:1], shop / "run", *arguments[1:], "--json")
    assert found.code == 0, found.err
    return [row[key] for row in next(iter(found.json.values()))]


def test_lists_show_titles_and_attributes_and_flag_cold_items(cli, shop):
    rows = cli("recommend", shop / "run", "--user", "u1", "-k", "20", "--json").json["recommendations"]
    row = next(row for row in rows if row["item_id"] == 10)
    assert (row["title"], row["price"], row["colour"], row["in_stock"]) == ("Product 10 XL", 10.5, "blue", True)
    assert {row["item_id"] for row in rows if row["cold"]} == {10, 11}
    shown = cli("recommend", shop / "run", "--user", "u1").out
    assert "colour" in shown
    assert "Product 10 XL" in shown


def test_filters_of_recommend(cli, shop, tmp_path):
    every = listed(cli, shop, "recommend", "--user", "u1", "--include-seen", "-k", "20")
    assert sorted(every) == list(range(12))

    def ask(*flags, k="20"):
        return listed(cli, shop, "recommend", "--user", "u1", "--include-seen", "-k", k, *flags)

    assert ask("--where", "colour = 'blue' and in_stock") == [item for item in every if item % 4 and item % 3]
    assert ask("--no-cold") == [item for item in every if item < 10]
    (tmp_path / "allow.txt").write_text("3\n4\n\n500\n", encoding="utf-8")
    (tmp_path / "block.csv").write_text("product\n4\n7\n", encoding="utf-8")
    assert sorted(ask("--allow", tmp_path / "allow.txt")) == [3, 4]
    assert ask("--block", tmp_path / "block.csv") == [item for item in every if item not in (4, 7)]
    assert len(ask("--at-most", "1:colour")) == 2
    assert ask("--boost", "50:price > 9", k="3")[0] in (9, 10, 11)
    assert every[0] not in ask("--boost", f"-50:item_id = {every[0]}", k="5")
    history = cli("recommend", shop / "run", "--history", "1,2", "--where", "colour = 'red'", "--json").json
    assert {row["item_id"] % 4 for row in history["recommendations"]} == {0}


def test_an_allow_list_of_any_size(cli, shop, tmp_path):
    (tmp_path / "many.txt").write_text("\n".join(str(item) for item in range(5, 50_000)), encoding="utf-8")
    found = listed(
        cli, shop, "recommend", "--user", "u1", "--include-seen", "-k", "20", "--allow", tmp_path / "many.txt"
    )
    assert sorted(found) == list(range(5, 12))


def test_filters_of_similar(cli, shop):
    every = listed(cli, shop, "similar", "--item", "1", "-k", "20", key="similar_item_id")
    found = listed(cli, shop, "similar", "--item", "1", "--where", "colour = 'blue'", key="similar_item_id")
    assert found == [item for item in every if item % 4]
    assert found != every
    nothing = cli("similar", shop / "run", "--item", "1", "--where", "price > 1000")
    assert "the filters leave nothing" in nothing.out


def test_items_of_tonight_in_place_of_those_of_the_training(cli, shop, tmp_path):
    rows = [{"id": item, "sold_out": item < 8} for item in range(10)]
    path = tmp_path / "tonight.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    found = listed(cli, shop, "recommend", "--user", "u1", "--include-seen", "--items", path, "--where", "not sold_out")
    assert sorted(found) == [8, 9]


def test_exported_lists_have_the_attributes(cli, shop, tmp_path):
    out = tmp_path / "lists.parquet"
    assert cli("recommend", shop / "run", "--all", "-k", "3", "--out", out).code == 0
    assert {"price", "colour", "in_stock", "cold"} <= set(pq.read_table(out).column_names)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (
            ["--where", "colour = red"],
            "where: expected a number, true, false or a string in single quotes, found 'red'",
        ),
        (["--where", "size = 1"], "no column 'size' at position 1; there are"),
        (["--at-most", "colour"], "--at-most 'colour': expected a number, a colon"),
        (["--at-most", "0:colour"], "expected an integer from 1"),
        (["--boost", "much:in_stock"], "--boost 'much:in_stock': expected a number"),
        (["--allow", "missing.txt"], "missing.txt cannot be read"),
        (["--items", "missing.csv"], "missing.csv does not exist"),
    ],
)
def test_wrong_filters_end_with_2_and_one_line(cli, shop, flags, message):
    outcome = cli("recommend", shop / "run", "--user", "u1", *flags)
    assert outcome.code == 2
    assert message in outcome.error


def test_ids_of_another_kind_are_reported_before_the_training(cli, shop, tmp_path):
    (tmp_path / "items.csv").write_text("item_id,price\nA1,2\n", encoding="utf-8")
    arguments = ["train", shop / "clicks.csv", "--out", tmp_path / "run", "--items", tmp_path / "items.csv"]
    outcome = cli(*arguments, *CLICK_COLUMNS, "--model", "ials")
    assert outcome.code == 2
    assert "ids of type" in outcome.error
    assert not (tmp_path / "run" / "manifest.json").exists()
