import csv
import gzip
import json
import time
import tracemalloc

import pyarrow as pa
import pyarrow.parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rankformer.data import Interactions
from rankformer.data.readers import READERS, reader_by_suffix
from rankformer.data.readers.lines import _tokenize
from rankformer.errors import ConfigError, DataError

TESTED = {"files": ("source", "pyarrow", "csv tsv inter parquet jsonl txt pairs adjacency")}


def raw_pairs(log):
    table = log.to_arrow()
    return list(zip(table["user"].to_pylist(), table["item"].to_pylist(), strict=True))


def write(folder, name, content):
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def read(folder, name, content, **arguments):
    return Interactions.read(write(folder, name, content), **arguments)


# Any text but the empty one, which csv cannot tell from a missing value.
ODD_IDS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("readers")


@settings(deadline=None)
@given(pairs=st.lists(st.tuples(ODD_IDS, ODD_IDS), min_size=1, max_size=20))
@pytest.mark.parametrize(("extension", "delimiter"), [("csv", ","), ("tsv", "\t")])
def test_odd_text_ids_survive_delimited_files(folder, extension, delimiter, pairs):
    path = folder / f"odd.{extension}"
    with open(path, "w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream, delimiter=delimiter)
        writer.writerow(["user", "item"])
        writer.writerow(["not a number", "not a number"])
        writer.writerows(pairs)
    assert raw_pairs(Interactions.read(path))[1:] == pairs


@settings(deadline=None)
@given(pairs=st.lists(st.tuples(ODD_IDS, st.integers(-(2**63), 2**63 - 1)), min_size=1, max_size=20))
def test_odd_ids_survive_typed_files(folder, pairs):
    path = folder / "odd.jsonl"
    path.write_text("".join(json.dumps({"user": u, "item": i}) + "\n" for u, i in pairs), encoding="utf-8")
    assert raw_pairs(Interactions.read(path)) == pairs
    path = folder / "odd.parquet"
    pyarrow.parquet.write_table(pa.table({"user": [u for u, _ in pairs], "item": [i for _, i in pairs]}), path)
    assert raw_pairs(Interactions.read(path)) == pairs


@settings(deadline=None)
@given(numbers=st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=20))
def test_integers_come_back_as_integers(folder, numbers):
    text = "user,item\n" + "".join(f"{number},{number}\n" for number in numbers)
    assert raw_pairs(read(folder, "numbers.csv", text)) == [(number, number) for number in numbers]


@pytest.mark.parametrize("odd", ["007", "+7", "7.0", " 7", "-0", "9223372036854775808", "1e3", "0x1F", "seven"])
def test_one_id_that_is_no_canonical_integer_keeps_the_column_of_strings(tmp_path, odd):
    assert raw_pairs(read(tmp_path, "a.csv", f"user,item\n7,1\n{odd},2\n")) == [("7", 1), (odd, 2)]


def test_very_long_ids(tmp_path):
    long = "é" * 1_000_000
    assert raw_pairs(read(tmp_path, "a.csv", f"user,item\n{long},1\n")) == [(long, 1)]
    assert raw_pairs(read(tmp_path, "a.txt", f"{long} 1\n")) == [(long, 1)]


@pytest.mark.parametrize(
    ("content", "arguments", "expected"),
    [
        ("user_id,item_id\n1,2\n", {}, [(1, 2)]),
        ("ItemId,rating,UserID\n2,5,1\n", {}, [(1, 2)]),
        ("\ufeffuser,item\r\n1,2\r\n", {}, [(1, 2)]),
        ("1,2\n3,4\n", {}, [(1, 2), (3, 4)]),
        ("alice,7\n", {}, [("alice", 7)]),
        ("who,what\n1,2\n", {"user": "who", "item": "what"}, [(1, 2)]),
        ("who,what\na,b\n", {"header": False}, [("who", "what"), ("a", "b")]),
        ("user,item\na,b\n", {"header": False}, [("user", "item"), ("a", "b")]),
        ("who,what\na,b\n", {"user": "1", "item": "0"}, [("what", "who"), ("b", "a")]),
        ("7,1,2\n8,3,4\n", {"user": "2", "item": "1"}, [(2, 1), (4, 3)]),
        ("5,6\n1,2\n", {"header": True, "user": "6", "item": "5"}, [(2, 1)]),
        ("x,x,user,item\n1,2,3,4\n", {}, [(3, 4)]),
        ("user,item\n\n1,2\n\n", {}, [(1, 2)]),
    ],
)
def test_headers_and_columns_of_csv(tmp_path, content, arguments, expected):
    assert raw_pairs(read(tmp_path, "a.csv", content, **arguments)) == expected


def test_known_names_are_tried_in_order(tmp_path):
    log = read(tmp_path, "a.csv", "uid,user_id,item,ts,rating,title\n1,2,3,4,5,Six\n")
    assert raw_pairs(log) == [(2, 3)]
    assert (log.times.tolist(), log.weights.tolist(), log.item_titles.to_pylist()) == ([4], [5], ["Six"])
    assert log.name == "a"


def test_an_empty_name_leaves_an_optional_column_out(tmp_path):
    log = read(tmp_path, "a.csv", "user,item,time,rating\n1,2,yesterday,good\n", time="", weight="")
    assert log.times is None
    assert log.weights is None


def test_recbole_inter(tmp_path):
    text = 'user_id:token\titem_id:token\trating:float\ttimestamp:float\n"1\t0\t4.5\t881250949.0\n2\t10\t3\t5\n'
    log = read(tmp_path, "ml.inter", text)
    assert raw_pairs(log) == [('"1', 0), ("2", 10)]
    assert log.weights.tolist() == [4.5, 3]
    assert log.times.tolist() == [881250949.0, 5.0]


@pytest.mark.parametrize(
    ("times", "expected"),
    [
        (["3", "-1"], [3, -1]),
        (["1.5", "2"], [1.5, 2.0]),
        (["1970-01-01", "1970-01-02"], [0, 86_400_000_000]),
        (["1970-01-01T00:00:01", "1970-01-01 00:00:02.5"], [1_000_000, 2_500_000]),
        (["1970-01-01T01:00:00+01:00", "1970-01-01T00:00:00Z"], [0, 0]),
    ],
)
def test_times_as_numbers_or_iso_dates(tmp_path, times, expected):
    log = read(tmp_path, "a.csv", "user,item,time\n" + "".join(f"1,2,{time}\n" for time in times))
    assert log.times.tolist() == expected
    assert log.times.dtype.str in ("<i8", "<f8")


def test_pairs_of_lines(tmp_path):
    assert raw_pairs(read(tmp_path, "a.txt", "\ufeff1 2\n\n 3\t 4 \r\n5 6")) == [(1, 2), (3, 4), (5, 6)]
    assert raw_pairs(read(tmp_path, "b.txt", "ann x\u00a0y\n")) == [("ann", "x\u00a0y")]


def test_the_format_of_text_lines_can_be_left_to_the_reader(tmp_path):
    assert raw_pairs(read(tmp_path, "a.log", "1 2\n3 4\n", format="txt")) == [(1, 2), (3, 4)]


def test_a_reader_is_found_by_name_and_suffix(tmp_path):
    assert list(READERS) == ["csv", "tsv", "inter", "parquet", "jsonl", "txt", "pairs", "adjacency"]
    assert reader_by_suffix(tmp_path / "Clicks.CSV.gz").name == "csv"
    assert reader_by_suffix(tmp_path / "clicks.gz") is None
    assert all(reader_by_suffix(tmp_path / f"a{suffix}") is r for r in READERS.values() for suffix in r.suffixes)


def test_pairs_with_weight_and_time_when_stated(tmp_path):
    log = read(tmp_path, "a.txt", "1 2 0.5 100\n3 4 1 90\n", format="pairs")
    assert raw_pairs(log) == [(1, 2), (3, 4)]
    assert (log.weights.tolist(), log.times.tolist()) == ([0.5, 1], [100, 90])


def test_adjacency_lists(tmp_path):
    text = "0 5 6 7\n1 \n2 5\n\n3 9 8\n"
    expected = [(0, 5), (0, 6), (0, 7), (2, 5), (3, 9), (3, 8)]
    assert raw_pairs(read(tmp_path, "a.txt", text)) == expected
    assert raw_pairs(read(tmp_path, "a.txt", "0 5 6\n1 5 6\n", format="adjacency")) == [(0, 5), (0, 6), (1, 5), (1, 6)]


@given(st.lists(st.lists(st.text("ab1é", min_size=1, max_size=3), max_size=4), max_size=6), st.booleans())
def test_tokens_are_those_of_split(lines, ends_with_newline):
    block = "\n".join("  ".join(line) for line in lines) + ("\n" if ends_with_newline else "")
    expected = [line.split() or None for line in block.splitlines()] or [None]
    assert _tokenize(block).to_pylist() == expected


def test_blocks_are_cut_between_lines(tmp_path, monkeypatch):
    monkeypatch.setattr("rankformer.data.readers.lines.BLOCK_BYTES", 5)
    pairs = [(number, number * 37) for number in range(50)]
    assert raw_pairs(read(tmp_path, "a.txt", "".join(f"{u} {i}\n" for u, i in pairs))) == pairs


def test_jsonl_keeps_types_and_ignores_other_columns(tmp_path):
    lines = (
        '{"user": "7", "item": 3, "x": 1, "time": "2020-01-01"}',
        "",
        '{"item": 4, "user": "2020-01-01", "x": "y", "time": "2020-01-02"}',
    )
    text = "\n".join(lines)
    log = read(tmp_path, "a.jsonl", text)
    assert raw_pairs(log) == [("7", 3), ("2020-01-01", 4)]
    assert log.times.tolist() == [1_577_836_800_000_000, 1_577_923_200_000_000]


@pytest.mark.parametrize(
    ("name", "content"),
    [("a.csv.gz", "user,item\n1,2\n"), ("a.txt.gz", "1 2\n"), ("a.jsonl.gz", '{"user":1,"item":2}')],
)
def test_gzip(tmp_path, name, content):
    assert raw_pairs(read(tmp_path, name, gzip.compress(content.encode()))) == [(1, 2)]
    for damaged in (gzip.compress(content.encode())[:-6], b"plain bytes"):
        with pytest.raises(DataError, match=r"a\.\w+\.gz is not a whole gzip file"):
            read(tmp_path, name, damaged)


def test_merge_on_reading(tmp_path):
    log = read(tmp_path, "a.csv", "user,item,weight\n1,2,3\n1,2,4\n", duplicates="merge")
    assert log.weights.tolist() == [7]
    with pytest.raises(ConfigError, match="duplicates='drop'"):
        read(tmp_path, "a.csv", "user,item\n1,2\n", duplicates="drop")


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("a.csv", "", r"a\.csv is empty"),
        ("a.csv", "\n\n", "only blank lines"),
        ("a.csv", "user,item\n", "header but no rows"),
        ("a.csv", "user,item", "header but no rows"),
        ("a.csv", "user,thing\n1,2\n", r"no item column: found columns 'user', 'thing'; .*--item-column"),
        ("a.csv", "user,item\n1,2\n\n3,4,5\n", r"line 4 has 3 fields where 2 were expected: '3,4,5'"),
        ("a.csv", "user,item\n1,2\n3\n", r"a\.csv: line 3 has 1 fields where 2 were expected: '3'"),
        ("a.csv", 'user,item\n"a\nb",2\nx,y,z\n', "line 4 has 3 fields"),
        ("a.csv", b"user,item\n1,2\n\xff\xfe,4\n", r"line 3 is not UTF-8"),
        ("a.csv", b"us\xffer,item\n1,2\n", r"line 1 is not UTF-8"),
        ("a.csv", "user,item\n1,2\n,4\n,5\n", r"a\.csv line 3: the user id is missing \(column 'user', 2 such rows\)"),
        ("a.csv", 'user,item\n"a\nb",2\n\nc,\n', "line 5: the item id is missing"),
        (
            "a.csv",
            "user,item,rating\n1,2,3\n1,3,good\n",
            r"line 3: weight 'good' in column 'rating' is not a finite number",
        ),
        ("a.csv", "user,item,rating\n1,2,3\n1,3,nan\n", r"line 3: weight 'nan' .* is not a finite number"),
        ("a.csv", "user,item,rating\n1,2,3\n1,3,1e300\n", r"line 3: weight '1e300' .* is not a finite number"),
        ("a.csv", "user,item,rating\n1,2,3\n1,3,\n", r"line 3: weight '' "),
        ("a.csv", "user,item,time\n1,2,3\n1,3,noon\n", r"line 3: time 'noon' .* is not a finite number or an ISO date"),
        ("a.csv", "user,item,time\n1,2,3\n1,3,inf\n", r"line 3: time 'inf'"),
        ("a.csv", "user,item,time\n1,2,3\n1,3,4\n1,4,2020-01-01\n", r"line 4: time '2020-01-01'"),
        ("a.csv", "user,user,item\n1,2,3\n", r"more than one column 'user'"),
        ("a.csv", "alice,tea\nbob,cake\n", r"cannot tell whether the first line \(alice, tea\) is a header"),
        ("a.csv", "who,what\n1,2\n", r"no user column: found columns 'who', 'what'"),
        ("a.tsv", "user\titem\n1\t2\t3\n", r"line 2 has 3 fields where 2 were expected: '1\\\\t2\\\\t3'"),
        ("a.inter", "user_id\titem_id\n1\t2\n", r"line 1: expected a header such as user_id:token"),
        ("a.xlsx", "x", r"unknown extension '\.xlsx'; expected \.csv"),
        ("a.parquet", "PAR1 no", "a.parquet is not a readable Parquet file"),
        ("a.jsonl", '{"user": 1, "item": 2}\n{"user": 1,\n', r"line 2 is not JSON .*'\{\"user\": 1,'"),
        ("a.jsonl", "[1, 2]\n", r"line 1 is '\[1, 2\]'; expected an object"),
        ("a.jsonl", '{"user": 1, "item": 2}\n\n{"user": 1}\n', "line 3: the item id is missing"),
        ("a.jsonl", '{"user": 1, "item": 2}\n{"user": "x", "item": 2}\n', "mixes types in column 'user'"),
        ("a.jsonl", b'{"user": 1, "item": 2}\n{"user": "\xff", "item": 2}\n', "line 2 is not UTF-8"),
        ("a.jsonl", "\n", "only blank lines"),
        ("a.txt", "\n \n", "only blank lines"),
        ("a.txt", b"1 2\n\xff 4\n", r"a\.txt: line 2 is not UTF-8"),
        ("a.txt", "1 2 3\n4 5 6\n", 'has 3 fields on every line: state format="pairs"'),
        (
            "a.txt",
            "1 2\n1 3\n1 4 5\n",
            r"line 3 has 3 fields where pairs have two, and users occur more than once.*'1 4 5'",
        ),
        ("a.txt", "1 2 3\n\n2 x\n", r"line 3: 'x' is not an integer from 0"),
        ("a.txt", "1 2 3\n-2 4\n", r"line 2: '-2' is not an integer from 0"),
        ("a.txt", "1\n2\n", "users but no items"),
    ],
)
def test_errors_say_where_and_what(tmp_path, name, content, words):
    with pytest.raises(DataError, match=words) as caught:
        read(tmp_path, name, content)
    assert "\n" not in str(caught.value)


def test_errors_of_stated_formats(tmp_path):
    with pytest.raises(DataError, match=r"line 2 has 3 fields where 2 were expected: '1 3 4'"):
        read(tmp_path, "a.txt", "1 2\n1 3 4\n", format="pairs")
    with pytest.raises(DataError, match=r"line 1 has 5 fields where 2"):
        read(tmp_path, "a.txt", "1 2 3 4 5\n", format="pairs")
    with pytest.raises(ConfigError, match="format='excel' is unknown; expected one of csv, tsv"):
        read(tmp_path, "a.txt", "1 2\n", format="excel")
    with pytest.raises(DataError, match="no header, and columns by position '0', '1'"):
        read(tmp_path, "a.csv", "1,2\n", user="4")
    with pytest.raises(DataError, match="more than one column 'x'"):
        read(tmp_path, "a.csv", "x,x,item\n1,2,3\n", user="x")


def test_missing_file_and_folder(tmp_path):
    with pytest.raises(DataError, match="does not exist"):
        Interactions.read(tmp_path / "no.csv")
    with pytest.raises(DataError, match="is a folder; expected a file"):
        Interactions.read(tmp_path)


def test_parquet_without_rows_or_ids(tmp_path):
    path = tmp_path / "a.parquet"
    pyarrow.parquet.write_table(pa.table({"user": pa.array([], pa.int64()), "item": pa.array([], pa.int64())}), path)
    with pytest.raises(DataError, match="has no rows"):
        Interactions.read(path)
    pyarrow.parquet.write_table(pa.table({"user": [1, None], "item": [1, 2]}), path)
    with pytest.raises(DataError, match=r"a\.parquet row 2: the user id is missing"):
        Interactions.read(path)
    pyarrow.parquet.write_table(pa.table({"a": [1], "b": [1]}), path)
    with pytest.raises(DataError, match="no user column: found columns 'a', 'b'"):
        Interactions.read(path)


def test_long_lines_are_clipped_in_errors(tmp_path):
    with pytest.raises(DataError, match=r"xxx\.\.\.'") as caught:
        read(tmp_path, "a.csv", "user,item\n1,2," + "x" * 5000 + "\n")
    assert len(str(caught.value)) < 200


def test_a_hundred_thousand_lines_are_quick_and_small(tmp_path):
    path = tmp_path / "big.csv"
    with open(path, "w") as stream:
        stream.write("user,item,rating,ts\n")
        stream.writelines(f"user-{row % 9973},{row % 4999},{row % 5}.5,{row}\n" for row in range(100_000))
    tracemalloc.start()
    arrow_before, begin = pa.total_allocated_bytes(), time.perf_counter()
    log = Interactions.read(path)
    seconds = time.perf_counter() - begin
    python_peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert (len(log), log.num_users, log.num_items) == (100_000, 9973, 4999)
    assert seconds < 5  # 0.1 s on two cores; a Python loop over rows under tracemalloc takes much longer
    assert python_peak < 20e6  # a list of Python objects per row would take more
    assert pa.total_allocated_bytes() - arrow_before < 5e6


def test_a_quote_that_is_never_closed_is_refused_and_a_stray_one_is_text(tmp_path):
    (tmp_path / "open.csv").write_text('user,item\na,1\nb,2\nc,"3\n')
    with pytest.raises(DataError, match=r"open.csv: a quote opened after line 3 is never closed"):
        Interactions.read(tmp_path / "open.csv")
    (tmp_path / "stray.csv").write_text('user,item\na,5" pipe\nb,2\n')
    assert Interactions.read(tmp_path / "stray.csv").item_ids.ids.to_pylist() == ["2", '5" pipe']
