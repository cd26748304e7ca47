"""Published datasets as they are unpacked: which file has the interactions, its columns, and where titles are.

recbole      X.inter, or X.train.inter, X.valid.inter and X.test.inter; titles in X.item
movielens    u.data and u.item (100K); ratings.dat and movies.dat (1M, 10M); ratings.csv and movies.csv (20M and later)
amazon       reviews of 2014 to 2023 as JSON lines or csv; titles in meta_*
yelp         yelp_academic_dataset_review.json; titles in yelp_academic_dataset_business.json
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from rankformer.data.readers import READERS, read_table, reader_by_suffix
from rankformer.data.readers.base import RawTable
from rankformer.data.readers.input_file import InputFile
from rankformer.data.readers.options import ReadOptions
from rankformer.errors import ConfigError, DataError

Names = Mapping[str, tuple[str, ...]]


class Layout(NamedTuple):
    """How one form of a dataset is stored; of alternative column names the first that is there counts.

    Attributes:
        name: what `format=` calls it.
        log: pattern of the file with the interactions.
        options: how it is read, where that does not follow from the file.
        names: columns of each role.
        titles: pattern of the file with the titles.
        title_options: how that is read.
        title_names: its columns with the item id ("item") and the title ("title").
        by_itself: whether a folder with such a file is recognised without its name.
    """

    name: str
    log: str
    options: Mapping[str, Any]
    names: Names
    titles: str
    title_options: Mapping[str, Any]
    title_names: Names
    by_itself: bool = True


_POSITIONS = {"user": ("0",), "item": ("1",), "weight": ("2",), "time": ("3",)}
_FIRST_TWO = {"item": ("0",), "title": ("1",)}
_COLONS = {"format": "csv", "delimiter": "::", "header": False}
_AMAZON = {
    "user": ("user_id", "reviewerID"),
    "item": ("parent_asin", "asin"),
    "weight": ("rating", "overall", "2"),  # the third column where there is no header
    "time": ("timestamp", "unixReviewTime", "3"),
}
_AMAZON_TITLES = ("meta_*", {"format": "jsonl"}, {"item": ("parent_asin", "asin"), "title": ("title",)}, False)
_ALL = (
    Layout(
        *("recbole", "*.inter", {"format": "inter"}, {}, "*.item", {"format": "inter"}),
        {"item": ("item_id",), "title": ("title", "movie_title", "item_title", "name", "item_name", "venue_name")},
    ),
    Layout(
        *("movielens", "u.data", {"format": "tsv", "header": False}, _POSITIONS, "u.item"),
        *({"format": "csv", "delimiter": "|", "header": False, "encoding": "latin-1"}, _FIRST_TWO),
    ),
    Layout(
        *("movielens", "ratings.dat", _COLONS, _POSITIONS, "movies.dat", {**_COLONS, "encoding": "latin-1"}),
        _FIRST_TWO,
    ),
    Layout(
        *("movielens", "ratings.csv", {"format": "csv", "header": True}),
        {"user": ("userId",), "item": ("movieId",), "weight": ("rating",), "time": ("timestamp",)},
        *("movies.csv", {"format": "csv", "header": True}, {"item": ("movieId",), "title": ("title",)}),
    ),
    Layout(
        *("yelp", "yelp_academic_dataset_review.json*", {"format": "jsonl"}),
        {"user": ("user_id",), "item": ("business_id",), "weight": ("stars",), "time": ("date",)},
        *("yelp_academic_dataset_business.json*", {"format": "jsonl"}),
        {"item": ("business_id",), "title": ("name",)},
    ),
    Layout("amazon", "*.json*", {"format": "jsonl"}, _AMAZON, *_AMAZON_TITLES),
    Layout("amazon", "*.csv*", {"format": "csv"}, _AMAZON, *_AMAZON_TITLES),
)
LAYOUTS = tuple(dict.fromkeys(layout.name for layout in _ALL))


def check_format(format: str) -> str:
    """Return the name of a format or layout, or say which there are."""
    if format not in READERS and format not in LAYOUTS:
        raise ConfigError(f"format={format!r} is unknown; expected one of {', '.join((*READERS, *LAYOUTS))}")
    return format


def find_layout(path: Path, format: str | None) -> tuple[Layout, list[Path]] | None:
    """Return the layout of a folder or file, and its files of interactions; None if it has none.

    Args:
        path: the folder or file.
        format: name of the layout; without one a folder is recognised by its files, and a file by its name where
            its extension says nothing.
    """
    if format is not None and check_format(format) not in LAYOUTS:
        return None
    for layout in _ALL:
        if layout.name != (format or layout.name) or not (format or layout.by_itself):
            continue
        if path.is_dir():
            meta = set(path.glob(layout.titles))
            files = sorted(file for file in path.glob(layout.log) if file.is_file() and file not in meta)
            # Anybody's ratings.csv may be something else, so the titles have to be there as well.
            if files and (format or meta or layout.log != "ratings.csv"):
                return layout, files
        elif path.match(layout.log) and (format or layout.name == "yelp" or reader_by_suffix(path) is None):
            return layout, [path]
    if format is None:
        return None
    expected = ", ".join(layout.log for layout in _ALL if layout.name == format)
    raise DataError(f"{path} is not {format}: expected {expected}")


def read_layout(
    layout: Layout, path: Path, options: ReadOptions, named: Sequence[str] = ()
) -> tuple[RawTable, dict[str, str]]:
    """Return the table with the interactions and its column of each role; titles are in its column `title`.

    Columns that the caller `named` are read besides those of the layout.
    """
    every = [name for alternatives in layout.names.values() for name in alternatives]
    chosen = {**layout.options, **options.model_dump(exclude_defaults=True), "format": layout.options["format"]}
    if layout.name == "amazon" and layout.options["format"] == "csv":
        chosen.setdefault("header", bool(set(_first_cells(path)) & set(every)))
    raw = read_table(path, [*every, *named], options.replace(**chosen, bad_rows=options.bad_rows))
    names = _existing(raw, layout.names)
    if layout.name == "amazon" and not raw.has_header:
        names |= _amazon_ids(raw)
    found = sorted(path.parent.glob(layout.titles))
    if layout.name == "recbole":
        found = [file for file in found if file.name.split(".")[0] == path.name.split(".")[0]]
    return (_with_titles(raw, names, layout, found[0]), {**names, "title": "title"}) if found else (raw, names)


def _first_cells(path: Path) -> list[str]:
    with InputFile(path).open() as stream:
        return stream.readline().decode("utf-8-sig").strip().split(",")


def _amazon_ids(raw: RawTable) -> dict[str, str]:
    """Return which of the first two columns has users: ids of products have ten characters, those of users more."""
    if len(raw.table.column_names) < 2:
        return {}
    first, second = (len(raw.table[name][0].as_py() or "") for name in raw.table.column_names[:2])
    return {"user": "1", "item": "0"} if first == 10 and second > 10 else {"user": "0", "item": "1"}


def _existing(raw: RawTable, names: Names) -> dict[str, str]:
    there = set(raw.table.column_names)
    found = {role: [name for name in alternatives if name in there] for role, alternatives in names.items()}
    return {role: columns[0] for role, columns in found.items() if columns}


def _with_titles(raw: RawTable, names: Mapping[str, str], layout: Layout, path: Path) -> RawTable:
    """Return the table with a column of the titles that another file has for its items."""
    every = [name for alternatives in layout.title_names.values() for name in alternatives]
    titles = read_table(path, every, ReadOptions(**layout.title_options, on_bad_row="skip"))
    found = _existing(titles, layout.title_names)
    for name in found.values():
        if titles.table.column_names.count(name) > 1:
            raise DataError(
                f"{path.name} has more than one column {name!r}; rename one of them and write the file again"
            )
    item = names.get("item", "item_id")
    if len(found) < 2 or raw.table.column_names.count(item) != 1:  # of two, none is taken for the ids: refused later
        return replace(raw, table=_set_column(raw.table, pa.nulls(raw.table.num_rows, pa.string())))
    ids, strings = (titles.table[found[role]].cast(pa.string()).combine_chunks() for role in ("item", "title"))
    items = raw.table[item].cast(pa.string())
    return replace(raw, table=_set_column(raw.table, strings.take(pc.index_in(items, value_set=ids))))


def _set_column(table: pa.Table, titles: pa.Array | pa.ChunkedArray) -> pa.Table:
    kept = [place for place, name in enumerate(table.column_names) if name != "title"]  # of which some may be empty
    return table.select(kept).append_column("title", titles.dictionary_encode())
