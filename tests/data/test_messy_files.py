"""Files as they come: each is read, or refused in one line that says what to do."""

import codecs
import gzip
import io
import json
import logging
import sys
import tracemalloc
import zipfile

import pyarrow as pa
import pyarrow.parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rankformer.data import DataSource, Interactions
from rankformer.data.readers import READERS, read_table
from rankformer.errors import ConfigError, DataError, RankformerError


def raw_pairs(log):
    table = log.to_arrow()
    return list(zip(table["user"].to_pylist(), table["item"].to_pylist(), strict=True))


def write(folder, name, content):
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def read(folder, name, content, **arguments):
    return Interactions.read(write(folder, name, content), **arguments)


def zipped(**files):
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name if "." in name else name.replace("_", "."), content)
    return stream.getvalue()


def zstd(content):
    return pa.compress(content, codec="zstd", asbytes=True)


CSV = b"user,item\n1,2\n3,4\n"
COLUMNS = {"user": "Besucher", "item": "Artikel"}
PAIRS = [(1, 2), (3, 4)]


@pytest.mark.parametrize(
    ("name", "content", "options", "expected"),
    [
        ("semicolons.csv", "user;item\n1;2\n3;4\n", {}, PAIRS),
        ("semicolons_and_other_names.csv", "Besucher;Artikel\n1;2\n3;4\n", COLUMNS, PAIRS),
        ("pipes.csv", "user|item|note\n1|2|a,b\n3|4|c,d\n", {}, PAIRS),
        ("tabs.csv", "user\titem\n1\t2\n3\t4\n", {}, PAIRS),
        ("commas.tsv", "user,item\n1,2\n3,4\n", {}, PAIRS),
        ("no_header.csv", "1;2\n3;4\n", {}, PAIRS),
        ("stated.csv", "user~item\n1~2\n3~4\n", {"delimiter": "~"}, PAIRS),
        ("several_letters.csv", "1::2\n3::4\n", {"delimiter": "::", "header": False}, PAIRS),
        ("beyond_ascii.csv", "user¦item\n1¦2\n3¦4\n", {"delimiter": "¦"}, PAIRS),
        ("word.csv", "user\titem\n1\t2\n3\t4\n", {"delimiter": "tab"}, PAIRS),
        ("lists_in_a_cell.csv", "user,item,tags\n1,2,a;b;c\n3,4,d;e;f\n", {}, PAIRS),
        ("utf16.csv", "user,item\nzoë,2\nbob,4\n".encode("utf-16"), {}, [("zoë", 2), ("bob", 4)]),
        ("utf16_le.csv", "user;item\n1;2\n3;4\n".encode("utf-16-le"), {}, PAIRS),
        ("utf16_be.tsv", "user\titem\n1\t2\n3\t4\n".encode("utf-16-be"), {}, PAIRS),
        ("utf16.jsonl", codecs.BOM_UTF16_LE + '{"user":1,"item":2}\n'.encode("utf-16-le"), {}, PAIRS[:1]),
        ("latin1.csv", "user,item\nZoë Müller,2\nbob,4\n".encode("latin-1"), {}, [("Zoë Müller", 2), ("bob", 4)]),
        ("stated.csv", "user,item\nпетр,2\n".encode("cp1251"), {"encoding": "cp1251"}, [("петр", 2)]),
        ("stated.txt", "ÿ 2\n".encode("latin-1"), {"encoding": "latin-1"}, [("ÿ", 2)]),
        ("packed.csv.zst", zstd(CSV), {}, PAIRS),
        ("packed.csv.zip", zipped(a_csv=CSV), {}, PAIRS),
        ("packed.zip", zipped(a_tsv="user\titem\n1\t2\n3\t4\n"), {}, PAIRS),
        ("really_gzip.csv", gzip.compress(CSV), {}, PAIRS),
        ("really_zstd.jsonl", zstd(b'{"user":1,"item":2}\n'), {}, PAIRS[:1]),
        ("NULL_and_NA.csv", "user,item\nNULL,NA\nnan,None\n", {}, [("NULL", "NA"), ("nan", "None")]),
        ("old_mac_and_windows.csv", "user,item\r\n1,2\r\n3,4\r\n", {}, PAIRS),
        ("quoted.csv", '"user";"item"\n"1";"2"\n"3";"4"\n', {}, PAIRS),
        ("surrogate_key.jsonl", '{"\\ud800": 1, "user": 1, "item": 2}\n', {}, PAIRS[:1]),
        ("one.json", '{"user":1,"item":2}\n{"user":3,"item":4}\n', {}, PAIRS),
    ],
    ids=lambda value: value if isinstance(value, str) and "." in value and "\n" not in value else "",
)
def test_read(tmp_path, name, content, options, expected):
    assert raw_pairs(read(tmp_path, name, content, **options)) == expected


# The ten messiest, and what is said about those that cannot be read.
@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("cyrillic.csv", "user,item\nпетр,2\n".encode("cp1251"), r"line 2 is not UTF-8; .*--encoding"),
        ("both.csv", "user,item\nzoë,2\n".encode() + "zoë,3\n".encode("latin-1"), r"line 3 is not UTF-8; .*--encoding"),
        ("cut.csv", "user,item\nzo,ë".encode()[:-1], r"line 2 is not UTF-8"),
        (
            "workbook.csv",
            zipped(**{"[Content_Types].xml": "<x/>", "a.xml": ""}),
            "is an office document, .*save it as csv",
        ),
        ("two.zip", zipped(a_csv="1,2\n", b_csv="1,2\n"), r"holds 2 files \(a\.csv, b\.csv\); unpack it"),
        ("cut.csv.zst", zstd(CSV * 50)[:-4], "is not a whole zst file"),
        ("cut.csv.zip", zipped(a_csv=CSV)[:-30], "is not a whole zip file"),
        ("packed.parquet.gz", gzip.compress(b"PAR1"), "packed Parquet file; unpack it first"),
        ("list.json", '[{"user": 1, "item": 2}]\n', r"expected an object .* on each line \(jq -c '\.\[\]'"),
        ("one_column.csv", "a^b\nc^d\n", "it has one column: state what separates columns with --delimiter"),
        ("duplicate.csv", "user,user,item\n1,2,3\n", r"more than one column 'user': .*; rename one of them"),
        ("duplicate.tsv", "user\titem\titem\n1\t2\t3\n", r"more than one column 'item'"),
        (
            "duplicate.inter",
            "user_id:token\tuser_id:float\titem_id:token\n1\t2\t3\n",
            r"more than one column 'user_id'",
        ),
        ("surrogate.jsonl", '{"user": "\\ud800", "item": 2}\n', r"lone surrogate .*in column 'user'"),
        (
            "large.jsonl",
            '{"user": 123456789012345678901234567890, "item": 2}\n',
            r"'user' .*beyond 64 bits; write .* strings",
        ),
        ("digits.jsonl", '{"user": ' + "9" * 5000 + ', "item": 2}\n', r"line 1 is not JSON \(Exceeds the limit"),
        ("deep.jsonl", "[" * 100_000, r"line 1 is not JSON"),
        (
            "days.csv",
            "user,item,time\n1,2,01/02/2024\n1,3,03/04/2024\n",
            r"day or the month; .*--time-format '%d/%m/%Y' or",
        ),
        ("words.csv", "user,item,time\n1,2,yesterday\n", r"line 2: time 'yesterday' .*--time-format"),
        ("short.csv", "user,item\n1,2\n3\n", r"line 3 has 1 fields where 2 .*--on-bad-row skip"),
        (
            "gaps.csv",
            "user,item\n1,2\n,3\n,4\n",
            r"the user id is missing \(column 'user', 2 such rows\); .*--on-bad-row skip",
        ),
        ("same.csv", "user,x\n1,2\n", r"no item column"),
        ("joined.csv", "user,item\n1,2\nuser,item\n3,4\n", r"line 3 repeats the header.*--on-bad-row skip"),
        ("joined_marks.csv", "\ufeffuser,item\n1,2\n\ufeffuser,item\n3,4\n", r"line 3 repeats the header"),
        ("page.csv", "<!DOCTYPE html>\n<html>403 Forbidden</html>\n", r"is a web page, .*fetch the file again"),
        ("objects.csv", '{"user": 1, "item": 2}\n', r"holds JSON; say so with --format jsonl"),
        ("really.csv", b"PAR1\0\0", r"is a Parquet file; say so with --format parquet"),
        ("base.csv", b"SQLite format 3\0\xff", r"is an SQLite database; name it as sqlite:FILE"),
        ("old_workbook.csv", b"\xd0\xcf\x11\xe0\xa1\xb1", r"office document, .*save it as csv"),
        ("spreadsheet.csv", "sep=;\nuser;item\n1;2\n", r"line 1 .*drop that line"),
    ],
    ids=lambda value: value if isinstance(value, str) and "." in value[:60] and "\n" not in value else "",
)
def test_refused_in_one_helpful_line(tmp_path, name, content, words):
    with pytest.raises(DataError, match=words) as caught:
        read(tmp_path, name, content)
    assert "\n" not in str(caught.value)


def test_a_header_in_the_middle_is_skipped_and_later_lines_keep_their_number(tmp_path, caplog):
    content = "user,item,time\n1,2,3\nuser,item,time\n3,4,5\n1\nuser,item,time\n5,6,7\n"
    assert raw_pairs(read(tmp_path, "joined.csv", content, on_bad_row="skip")) == [(1, 2), (3, 4), (5, 6)]
    assert "2 that repeat the header" in caplog.text
    with pytest.raises(DataError, match=r"line 6: time 'x'"):
        read(tmp_path, "later.csv", "user,item,time\n" + "1,2,3\n" * 4 + "1,2,x\n")
    caplog.clear()
    log = read(tmp_path, "both.csv", content + "7,8,x\n", on_bad_row="skip")
    assert raw_pairs(log) == [(1, 2), (3, 4), (5, 6)]
    assert "user" not in log.to_arrow()["user"].to_pylist()


def test_an_item_called_item_is_one(tmp_path):
    assert raw_pairs(read(tmp_path, "a.csv", "user,item\nuser,1\n2,item\n")) == [("user", "1"), ("2", "item")]


def test_one_column_cannot_be_user_and_item(tmp_path):
    with pytest.raises(DataError, match="column 'a' is named as user and as item"):
        read(tmp_path, "a.csv", "a,b\n1,2\n", user="a", item="a")


def test_parquet_columns_that_cannot_be_titles_or_are_there_twice(tmp_path):
    path = tmp_path / "a.parquet"
    odd = {
        "lists": pa.array([["a"], ["b"]]),
        "maps": pa.array([[("a", 1)], []], pa.map_(pa.string(), pa.int64())),
        "bytes": pa.array([b"\xff", b"a"]),
    }
    for titles in odd.values():
        pyarrow.parquet.write_table(pa.table({"user": [1, 2], "item": [1, 2], "title": titles}), path)
        with pytest.raises(
            DataError, match=r"title column 'title' has type .*, which is not text in UTF-8; name another"
        ):
            Interactions.read(path)
        assert Interactions.read(path, title="").item_titles is None
    columns = [pa.array([1]), pa.array([2]), pa.array([3])]
    pyarrow.parquet.write_table(pa.table(columns, names=["user", "user", "item"]), path)
    with pytest.raises(DataError, match=r"more than one column 'user'; rename one of them"):
        Interactions.read(path)
    pyarrow.parquet.write_table(pa.table(columns, names=["x", "x", "item"]), path)
    with pytest.raises(DataError, match="no user column"):
        Interactions.read(path)


def test_an_encoding_that_was_guessed_is_said(tmp_path, caplog):
    with caplog.at_level(logging.WARNING):
        read(tmp_path, "a.csv", "user,item\nZoë,2\n".encode("latin-1"))
    assert "a.csv is not UTF-8; it is read as cp1252" in caplog.text


@pytest.mark.parametrize(
    ("times", "expected"),
    [
        (["31.01.1970", "01.02.1970 "], [30 * 86_400_000_000, 31 * 86_400_000_000]),
        (["1970/01/01 00:00:01", "1970/01/01 00:00:02"], [1_000_000, 2_000_000]),
        (["13/01/1970", "01/02/1970"], [12 * 86_400_000_000, 31 * 86_400_000_000]),
        (["01/13/1970 00:01", "02/01/1970 00:00"], [12 * 86_400_000_000 + 60_000_000, 31 * 86_400_000_000]),
        (["Jan 2, 1970", "Jan 3, 1970"], [86_400_000_000, 2 * 86_400_000_000]),
        (["02/Jan/1970:00:00:00 +0000", "01/Jan/1970:23:00:00 -0100"], [86_400_000_000, 86_400_000_000]),
        (["Fri, 02 Jan 1970 00:00:00 GMT", "Sat, 03 Jan 1970 00:00:00 GMT"], [86_400_000_000, 2 * 86_400_000_000]),
    ],
)
def test_dates_in_common_forms(tmp_path, times, expected):
    log = read(tmp_path, "a.tsv", "user\titem\ttime\n" + "".join(f"1\t2\t{time}\n" for time in times))
    assert log.times.tolist() == expected


def test_dates_in_a_stated_form(tmp_path):
    text = "user,item,time\n1,2,01/02/1970 5h\n1,3,02/02/1970 6h\n"
    log = read(tmp_path, "a.csv", text, time_format="%d/%m/%Y %Hh")
    assert log.times.tolist() == [(31 * 24 + 5) * 3_600_000_000, (32 * 24 + 6) * 3_600_000_000]
    with pytest.raises(DataError, match=r"line 2: time '01/02/1970 5h' .* is not a time such as %Y"):
        read(tmp_path, "a.csv", text, time_format="%Y")


def test_decimal_commas(tmp_path):
    assert read(tmp_path, "a.csv", "user;item;rating\n1;2;3,5\n1;3;4\n").weights.tolist() == [3.5, 4.0]
    with pytest.raises(DataError, match=r"'1,234' .*is not a finite number"):
        read(tmp_path, "a.csv", "user;item;rating\n1;2;1,234\n1;3;4\n")


BAD = "user,item,rating,time\n1,2,5,10\n1,2\n,3,5,10\nx,4,good,10\n5,6,1,noon\n7,,2,11\n8,9,3,12\n"


def test_bad_rows_are_left_out_counted_and_shown(tmp_path, caplog):
    examples = tmp_path / "bad.txt"
    with caplog.at_level(logging.WARNING):
        log = read(tmp_path, "a.csv", BAD, on_bad_row="skip", bad_rows=str(examples))
    assert raw_pairs(log) == [(1, 2), (8, 9)]  # integers again: "x" was in a bad row only
    assert (log.weights.tolist(), log.times.tolist()) == ([5, 3], [10, 12])
    first, *rest = examples.read_text(encoding="utf-8").splitlines()
    assert first.startswith("a.csv: skipped 5 of 7 rows (1 with another number of fields, 1 without a user id, ")
    assert "a.csv row 3: 2 fields where 4 were expected: '1,2'" in rest
    assert "a.csv line 4: user '' in column 'user'" in rest
    assert "a.csv line 5: weight 'good' in column 'rating'" in rest
    assert "a.csv line 6: time 'noon' in column 'time'" in rest
    assert len(rest) == 5
    assert "skipped 5 of 7 rows" in caplog.text
    with pytest.raises(DataError, match="line 3 has 2 fields"):
        read(tmp_path, "a.csv", BAD)


@pytest.mark.parametrize(
    ("name", "content", "options", "expected"),
    [
        ("a.jsonl", '{"user":1,"item":2}\nnonsense\n[]\n{"user":null,"item":5}\n{"user":3,"item":4}\n', {}, PAIRS),
        ("a.txt", "1 2 3\n1 2\n3 4\n", {"format": "pairs"}, PAIRS),
        ("a.csv", "user,item\n" + "1,2,3\n" * 500 + "1,2\n3,4\n", {}, PAIRS),
    ],
)
def test_bad_rows_of_other_formats(tmp_path, name, content, options, expected):
    assert raw_pairs(read(tmp_path, name, content, on_bad_row="skip", **options)) == expected


def test_nothing_but_bad_rows(tmp_path):
    with pytest.raises(DataError, match=r"no row that can be used \(2 without a user id\)"):
        read(tmp_path, "a.csv", "user,item\n,2\n,3\n", on_bad_row="skip")
    with pytest.raises(DataError, match=r"no row with 2 fields; .*--delimiter"):
        read(tmp_path, "a.csv", "user,item\n1\n2\n", on_bad_row="skip")
    with pytest.raises(ConfigError, match="on_bad_row='ignore'"):
        read(tmp_path, "a.csv", CSV, on_bad_row="ignore")


@settings(deadline=None, max_examples=30)
@given(st.lists(st.sampled_from(["1,2,3", "4,5", "6,7,8,9", ",1,2", "3,,4", "x,y,z"]), min_size=1, max_size=60))
def test_what_is_left_out_and_what_is_kept_add_up(tmp_path_factory, rows):
    text = "user,item,rating\n" + "".join(row + "\n" for row in rows) + "1,1,1\n"
    expected = [row.split(",")[:2] for row in [*rows, "1,1,1"] if row in ("1,2,3", "1,1,1")]
    log = read(tmp_path_factory.mktemp("rows"), "a.csv", text, on_bad_row="skip")
    assert [[str(user), str(item)] for user, item in raw_pairs(log)] == expected


class TestLimits:
    def test_expansion(self, tmp_path):
        bomb = gzip.compress(b"user,item\n" + b"1,2\n" * 25_000_000)
        tracemalloc.start()
        before = pa.total_allocated_bytes()
        with pytest.raises(DataError, match=r"unpacks to more than 200 times its size; .*--max-expansion"):
            read(tmp_path, "bomb.csv.gz", bomb)
        assert tracemalloc.get_traced_memory()[1] < 60e6
        tracemalloc.stop()
        assert pa.total_allocated_bytes() - before < 1e6
        small = gzip.compress(b"user,item\n" + b"1,2\n" * 100_000)
        assert len(read(tmp_path, "small.csv.gz", small, max_expansion=1)) == 100_000  # 64 MB are always allowed

    @pytest.mark.parametrize("name", ["a.csv", "a.txt", "a.jsonl"])
    def test_a_long_line(self, tmp_path, name):
        with pytest.raises(DataError, match=r"line 2 is longer than 1,000,000 bytes; .*--max-line-bytes"):
            read(tmp_path, name, "1 2\n" + "1" * 9_000_000, max_line_bytes=1_000_000)
        packed = write(tmp_path, f"{name}.gz", gzip.compress(b"1" * 20_000_000))
        with pytest.raises(DataError, match="line 1 is longer than 16,777,216 bytes"):
            Interactions.read(packed)

    def test_rows(self, tmp_path):
        for name, text in (
            ("a.csv", "user,item\n" + "1,2\n" * 5),
            ("a.txt", "1 2\n" * 5),
            ("b.txt", "1 2 3 4 5 6 7 8 9\n"),
        ):
            with pytest.raises(DataError, match=r"more than 3 (rows|lines); .*--max-rows"):
                read(tmp_path, name, text, max_rows=3)
        path = tmp_path / "a.parquet"
        pyarrow.parquet.write_table(pa.table({"user": [1] * 5, "item": [2] * 5}), path)
        with pytest.raises(DataError, match="more than 3 rows"):
            Interactions.read(path, max_rows=3)
        assert len(Interactions.read(path, max_rows=5)) == 5

    def test_a_parquet_file_that_claims_too_much_is_refused_before_it_is_unpacked(self, tmp_path):
        path, column = tmp_path / "a.parquet", pa.array([7]).take(pa.array([0]).take(pa.repeat(0, 5_000_000)))
        pyarrow.parquet.write_table(pa.table({"user": column, "item": column}), path)
        before = pa.total_allocated_bytes()
        with pytest.raises(DataError, match="more than 1,000 rows"):
            Interactions.read(path, max_rows=1000)
        with pytest.raises(DataError, match=r"unpacks to more than 200 times its size; .*--max-expansion"):
            Interactions.read(path)
        assert pa.total_allocated_bytes() - before < 1e6


def test_options_are_checked():
    for options, words in (
        ({"encoding": "klingon"}, "encoding='klingon' is unknown; expected utf-8, latin-1"),
        ({"delimiter": '"'}, "quotes and line ends cannot separate columns"),
        ({"format": "excel"}, "format='excel' is unknown; expected one of csv, .*, recbole, movielens, yelp, amazon"),
        ({"max_rows": 0}, "max_rows=0"),
    ):
        with pytest.raises(ConfigError, match=words):
            DataSource(source="x", **options)


def test_standard_input(tmp_path, monkeypatch):
    stream = io.TextIOWrapper(io.BytesIO(gzip.compress(CSV)))
    monkeypatch.setattr(sys, "stdin", stream)
    source = DataSource(source="-", format="csv")
    assert raw_pairs(source.load_log()) == PAIRS
    assert (source.name, source.absolute().source, source.is_there) == ("stdin", "-", False)
    with pytest.raises(ConfigError, match=r"standard input has no extension; state its format with --format"):
        DataSource(source="-").load()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"user,item\n1\n")))
    with pytest.raises(DataError, match=r"^standard input: line 2 has 1 fields"):
        DataSource(source="-", format="csv").load()


def test_several_files_by_a_pattern(tmp_path, monkeypatch):
    write(tmp_path, "logs/b.csv", "user,item\n3,4\n")
    write(tmp_path, "logs/a.csv.gz", gzip.compress(b"user,item\n1,2\n"))
    write(tmp_path, "logs/c.jsonl", '{"user": 5, "item": 6}\n')
    assert raw_pairs(Interactions.read(tmp_path / "logs" / "*.csv*")) == PAIRS
    monkeypatch.chdir(tmp_path)
    source = DataSource(source="logs/*")
    assert raw_pairs(source.load_log()) == [*PAIRS, (5, 6)]
    with pytest.raises(DataError, match=r"more than 2 rows; .*--max-rows"):  # of all files together
        source.replace(max_rows=2).load()
    assert source.name == "logs"
    assert raw_pairs(DataSource(**source.absolute().model_dump()).load_log()) == [*PAIRS, (5, 6)]
    with pytest.raises(DataError, match=r"no file fits .*\*\.parquet"):
        DataSource(source=str(tmp_path / "*.parquet")).load()


def test_a_folder_of_parts_with_partition_columns(tmp_path):
    for day, user in (("2024-01-02", 7), ("2024-01-01", 8)):
        path = tmp_path / "log" / f"date={day}" / "shop=a%2Fb" / "part-0.parquet"
        path.parent.mkdir(parents=True)
        pyarrow.parquet.write_table(pa.table({"user": [user], "item": [1]}), path)
    write(tmp_path, "log/_SUCCESS", "")
    write(tmp_path, "log/.part.parquet.crc", "x")
    write(tmp_path, "log/_delta_log/0.json", '{"add": 1}')
    log = DataSource(source=tmp_path / "log").load_log()
    assert raw_pairs(log) == [(8, 1), (7, 1)]
    assert log.times.tolist() == [1_704_067_200_000_000, 1_704_153_600_000_000]
    assert not DataSource(source=tmp_path / "log").comes_split, "so that it is refitted, and a test part as it is"
    log = DataSource(source=tmp_path / "log", title="shop").load_log()
    assert log.item_titles.to_pylist() == ["a/b"]


def test_every_column_of_any_table_can_be_had(tmp_path):
    """What reads the attributes of items uses."""
    raw = read_table(write(tmp_path, "items.csv", "item;colour;price\n1;red;3\n"), named=None)
    assert raw.table.to_pylist() == [{"item": "1", "colour": "red", "price": "3"}]
    raw = read_table(write(tmp_path, "items.jsonl", '{"item": 1, "colour": "red"}\n'), named=None)
    assert raw.table.to_pylist() == [{"item": 1, "colour": "red"}]


PIECES = [
    b"user",
    b"item",
    b",",
    b";",
    b"\t",
    b"\n",
    b'"',
    b"1",
    b"2.5",
    b"\xff",
    b"\x00",
    b"::",
    b"{",
    b"}",
    b'"user":',
    b"\r",
]


@settings(deadline=None, max_examples=150)
@given(
    st.sampled_from(sorted(READERS)), st.lists(st.sampled_from(PIECES), max_size=40), st.sampled_from(["stop", "skip"])
)
def test_any_bytes_are_read_or_refused_in_one_line(tmp_path_factory, format, pieces, on_bad_row):
    path = write(tmp_path_factory.getbasetemp(), "fuzz.dat", b"".join(pieces))
    try:
        Interactions.read(path, format=format, on_bad_row=on_bad_row)
    except RankformerError as problem:
        assert "\n" not in str(problem)  # noqa: PT017


@settings(deadline=None, max_examples=60)
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters()), st.lists, max_leaves=4
    )
)
def test_any_json_value_as_an_id_is_read_or_refused_in_one_line(tmp_path_factory, value):
    text = json.dumps({"user": value, "item": 1, "title": value}) + "\n" + json.dumps({"user": 1, "item": value}) + "\n"
    path = write(tmp_path_factory.getbasetemp(), "fuzz.jsonl", text)
    try:
        Interactions.read(path)
    except RankformerError as problem:
        assert "\n" not in str(problem)  # noqa: PT017
