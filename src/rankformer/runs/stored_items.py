"""`items.parquet` of a run: ids, titles, attributes, and how items without interactions are scored."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from scipy.sparse import csr_array

from rankformer.data.id_map import IdMap
from rankformer.data.items import Items
from rankformer.errors import DataError
from rankformer.scoring.base import MOST
from rankformer.scoring.cold_items import ColdItems
from rankformer.scoring.recommender import Recommender

_ATTRIBUTE = "attribute."  # what the names of attributes begin with in items.parquet


def item_columns(recommender: Recommender) -> dict[str, pa.Array]:
    """Return the columns of items.parquet."""
    columns, known = {"id": recommender.catalogue.ids}, len(recommender.item_ids)
    if recommender.titles is not None:
        columns["title"] = recommender.titles
    if recommender.items is not None:
        columns |= {f"{_ATTRIBUTE}{name}": values for name, values in recommender.items.columns.items()}
    if len(recommender.catalogue) > known:
        columns["new"] = pa.array(np.arange(len(recommender.catalogue)) >= known)
    cold = recommender.cold_items
    if cold is not None:
        counts = np.zeros(len(recommender.catalogue), dtype=np.int32)
        counts[cold.items] = np.diff(cold.weights.indptr)
        offsets = pa.array(np.concatenate([[0], np.cumsum(counts)]), pa.int32())
        columns["cold"] = pa.array(recommender.is_cold)
        for name, values in (("neighbours", cold.weights.indices), ("weights", cold.weights.data)):
            columns[name] = pa.ListArray.from_arrays(offsets, pa.array(values))
    return columns


def items_of(table: pa.Table) -> Items:
    """Return the items in items.parquet."""
    names = [name for name in table.column_names if name.startswith(_ATTRIBUTE)]
    attributes = pa.table({name.removeprefix(_ATTRIBUTE): _attribute(table, name) for name in names})
    return Items(IdMap(table["id"].combine_chunks()), attributes, _titles_of(table))


def _titles_of(items: pa.Table) -> pa.Array | None:
    if "title" not in items.column_names:
        return None
    titles = items["title"].combine_chunks()
    if not (pa.types.is_string(titles.type) or pa.types.is_large_string(titles.type)):
        raise DataError(f"titles must be strings; found {titles.type}")
    return titles


def _attribute(table: pa.Table, name: str) -> pa.ChunkedArray:
    """Return a column of attributes, of a type that `Items` has, times within the calendar."""
    column, types = table[name], pa.types
    kind = column.type
    if types.is_date(kind) or types.is_timestamp(kind):
        times = column.cast(pa.timestamp("us", kind.tz), safe=False) if getattr(kind, "unit", "") == "ns" else column
        pc.min_max(times).as_py()
        return column
    single = kind.value_type if types.is_list(kind) else kind
    known = (types.is_boolean, types.is_integer, types.is_floating, types.is_string, types.is_large_string)
    if not any(is_of(single) for is_of in known):
        raise DataError(f"{name[:80]} has type {str(kind)[:80]}; attributes are booleans, numbers, strings or dates")
    return column


def flags_of(table: pa.Table, name: str) -> NDArray[np.bool_]:
    """Return a column of booleans without gaps; one that is missing is all false."""
    if name not in table.column_names:
        return np.zeros(len(table), dtype=np.bool_)
    if not pa.types.is_boolean(table[name].type) or table[name].null_count:
        raise DataError(f"{name} must be true or false for every item; found {table[name].type}")
    flags: NDArray[np.bool_] = table[name].to_numpy()
    return flags


def cold_items_of(table: pa.Table, known: int) -> ColdItems | None:
    """Return how cold items are scored, every index checked."""
    if "cold" not in table.column_names:
        return None
    items = np.flatnonzero(flags_of(table, "cold"))
    lists = [table[name].combine_chunks() for name in ("neighbours", "weights")]
    for column, holds in zip(lists, (pa.types.is_integer, pa.types.is_floating), strict=True):
        if not (pa.types.is_list(column.type) and holds(column.type.value_type)) or column.flatten().null_count:
            raise DataError(f"neighbours and weights of cold items must be lists of numbers; found {column.type}")
    counts = [pc.list_value_length(each).to_numpy(zero_copy_only=False) for each in lists]
    neighbours, weights = (pc.list_flatten(each).to_numpy(zero_copy_only=False) for each in lists)
    if not np.array_equal(*counts) or counts[0].sum() != counts[0][items].sum():
        raise DataError("neighbours and weights of cold items do not match")
    if len(neighbours) and not (neighbours.min() >= 0 and neighbours.max() < known):
        raise DataError(f"neighbours of cold items must lie in 0..{known - 1}")
    if not (np.abs(weights) <= MOST).all():
        raise DataError(f"weights of cold items must be numbers of at most {MOST:g}")
    offsets = np.concatenate([[0], np.cumsum(counts[0][items])])
    return ColdItems(items, csr_array((weights.astype(np.float32), neighbours, offsets), shape=(len(items), known)))
