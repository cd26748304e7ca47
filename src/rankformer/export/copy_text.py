"""PostgreSQL's text form of COPY: a line per row, a tab between columns, `\\N` for no value, backslash escapes."""

import re
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from rankformer.errors import DataError
from rankformer.export.contents import VectorTable
from rankformer.export.sql_ids import spell

END = "\\.\n"
_ESCAPES = {"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r"}  # the backslash first: the others bring new ones
_MEANINGS = {"t": "\t", "n": "\n", "r": "\r"}
_NUMBERS_AT_ONCE = 2**20


def copy_lines(table: VectorTable) -> Iterator[str]:
    """Yield the rows of a table as lines of COPY's text form, many lines in one text.

    Raises:
        DataError: an id or title holds a NUL character, or an id cannot be kept.
    """
    rows = max(1, _NUMBERS_AT_ONCE // table.vectors.shape[1])
    for start in range(0, len(table.ids), rows):
        columns = [escape(spell(table.ids.slice(start, rows)), "id")]
        if table.titles is not None:
            columns.append(escape(table.titles.slice(start, rows).cast(pa.string()), "title"))
        columns.append(spell_vectors(table.vectors[start : start + rows]))
        yield "\n".join(pc.binary_join_element_wise(*columns, "\t").to_pylist()) + "\n"


def escape(texts: pa.Array, what: str) -> pa.Array:
    """Return texts as COPY wants them, nulls spelt out; a NUL character, which PostgreSQL cannot hold, is refused."""
    forbidden = pc.index(pc.match_substring(texts, "\0"), True).as_py()
    if forbidden >= 0:
        raise DataError(
            f"the {what} {texts[forbidden].as_py()!r} holds a NUL character, which PostgreSQL texts cannot; "
            "take it out of the data, or export to parquet"
        )
    for letter, escaped in _ESCAPES.items():
        texts = pc.replace_substring(texts, letter, escaped)
    return texts.fill_null("\\N")


def unescape(field: str) -> str | None:
    """Return the text that a field stands for, None for no value."""
    if field == "\\N":
        return None
    return re.sub(r"\\(.)", lambda found: _MEANINGS.get(found[1], found[1]), field)


def spell_vectors(vectors: NDArray[np.float32]) -> pa.Array:
    """Return each row as `[0.5,-1,...]`, every number with the fewest digits that give it back exactly."""
    rows, width = vectors.shape
    numbers = pa.array(vectors.reshape(-1)).cast(pa.string())
    offsets = pa.array(np.arange(rows + 1, dtype=np.int32) * width)
    joined = pc.binary_join(pa.ListArray.from_arrays(offsets, numbers), ",")
    return pc.binary_join_element_wise("[", joined, "]", "")


def parse_vectors(fields: list[str], width: int) -> NDArray[np.float32]:
    """Return the numbers of fields that `spell_vectors` wrote, (rows, width)."""
    numbers = pc.split_pattern(pc.utf8_slice_codeunits(pa.array(fields, pa.string()), 1, -1), ",").flatten()
    parsed: NDArray[np.float32] = numbers.cast(pa.float32()).to_numpy(zero_copy_only=False)
    return parsed.reshape(-1, width)
