"""`IdIndex`: raw ids of any type as values that JSON and URLs can carry, the way back, and a search.

Integers, floats, strings and booleans are carried as themselves. Everything else (dates, bytes, decimals, ...) becomes
a string: bytes as UTF-8, or in hexadecimal when some id of the column is not UTF-8; the rest as Arrow writes it.
"""

import math
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

# The Python types that carry ids as themselves, each with the tests for Arrow's; bytes are here to be recognised.
_KINDS: dict[type, tuple[Callable[[pa.DataType], bool], ...]] = {
    bool: (pa.types.is_boolean,),
    int: (pa.types.is_integer,),
    float: (pa.types.is_floating,),
    str: (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view),
    bytes: (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_binary_view, pa.types.is_fixed_size_binary),
}
MAX_ID_LENGTH = 1000  # characters of a new id
_INTEGER = re.compile(r"[+-]?[0-9]{1,20}", re.ASCII)


class IdIndex:
    """All users or all items of a model, position = index, with fast look-ups in both directions and a search.

    Attributes:
        values: the JSON value of each index.
        counts: how many interactions each has.
        titles: the title of each, or None for those without.
    """

    def __init__(
        self, ids: pa.Array, counts: NDArray[Any], titles: pa.Array | None = None, *, popular_first: bool = False
    ) -> None:
        """Build the look-ups; a search shows the order of the index, or the most frequent first."""
        self._type = ids.type.value_type if pa.types.is_dictionary(ids.type) else ids.type
        kinds = (kind for kind, tests in _KINDS.items() if any(test(self._type) for test in tests))
        kind = next(kinds, None)
        self.values = _encoded(ids.cast(self._type), kind)
        self._kind, self._is_bytes = str if kind is bytes else kind, kind is bytes
        self._index = {value: index for index, value in enumerate(self.values)}
        self.counts = counts
        self.titles: list[str | None] = [None] * len(ids) if titles is None else titles.to_pylist()
        searched = [pa.array(map(str, self.values), pa.large_string()), *([] if titles is None else [titles])]
        self._texts = [pc.fill_null(pc.utf8_lower(column.cast(pa.large_string())), "") for column in searched]
        self._order = np.argsort(-counts, kind="stable") if popular_first else np.arange(len(counts))

    @property
    def type(self) -> str:
        """The Arrow type of the ids."""
        return str(self._type)

    def __len__(self) -> int:
        return len(self.values)

    def find(self, value: Any) -> int | None:
        """Return the index of an id as it stands in JSON, None when there is no such id.

        A number never means a string nor a boolean a number: 1, "1", 1.0 and true are four different ids.
        """
        value = self._typed(value)
        if value is None:
            return None
        found = self._index.get(value)
        return self._find_other_spelling(str(value)) if found is None and self._kind is None else found

    def _typed(self, value: Any) -> Any:
        """Return a value of the Python type that carries these ids, None for one of another type."""
        if self._kind is float and type(value) is int and abs(value) <= 2**53:
            value = float(value)
        return value if type(value) is (self._kind or str) else None

    def find_text(self, text: str) -> int | None:
        """Return the index of an id as it stands in a URL, None when there is no such id."""
        return self.find(self.parse(text))

    def parse(self, text: str) -> Any:
        """Return an id as it stands in a URL as the value that JSON has for it; None where it cannot be one."""
        if self._kind is int:
            return int(text) if _INTEGER.fullmatch(text) else None
        if self._kind is float:
            try:
                return float(text)
            except ValueError:
                return None
        return {"true": True, "false": False}.get(text.lower()) if self._kind is bool else text

    def accepted(self, value: Any) -> Any:
        """Return a JSON value that is an id, or could be one of a new user or item; None for any other.

        Bytes are not accepted: their text is not always the id. Nor is an empty string, which no log can hold.
        """
        value = None if self._is_bytes or value == "" else self._typed(value)
        if value is None or value in self._index:
            return value
        try:
            pa.array([value], self._type) if self._kind is not None else pa.array([value]).cast(self._type)
        except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, OverflowError):
            return None
        return value

    @property
    def json_schema(self) -> dict[str, Any]:
        """Which JSON values are `accepted`, as JSON Schema."""
        if self._is_bytes:
            return {"not": {}}
        if self._kind is int:
            low = -(2 ** (self._type.bit_width - 1)) if pa.types.is_signed_integer(self._type) else 0
            return {"type": "integer", "minimum": low, "maximum": low + 2**self._type.bit_width - 1}
        if self._kind is float:
            return {"type": "number", "minimum": -(2**53), "maximum": 2**53}
        if self._kind is bool:
            return {"type": "boolean"}
        text = {"type": "string", "minLength": 1, "maxLength": MAX_ID_LENGTH}
        return text if self._kind is str else {**text, "format": self.type}

    def search(self, query: str, limit: int) -> list[int]:
        """Return up to `limit` indices whose strings contain the query, those that begin with it first."""
        if not query:
            return [int(index) for index in self._order[:limit]]
        wanted = pc.utf8_lower(pa.scalar(query, pa.large_string())).as_py()
        begins = self._where(pc.starts_with, wanted)
        contains = self._where(pc.match_substring, wanted) & ~begins
        found = np.concatenate([self._order[begins[self._order]], self._order[contains[self._order]]])
        return [int(index) for index in found[:limit]]

    def _where(self, matches: Any, wanted: str) -> NDArray[np.bool_]:
        mask = np.zeros(len(self.counts), dtype=np.bool_)
        for column in self._texts:
            mask |= matches(column, wanted).to_numpy(zero_copy_only=False)
        return mask

    def _find_other_spelling(self, text: str) -> int | None:
        """Return the index of an id written in another way than ours, such as T between date and time."""
        try:
            usual = pa.array([text]).cast(self._type).cast(pa.string())[0].as_py()
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, UnicodeError):
            return None
        return self._index.get(usual)


def _encoded(ids: pa.Array, kind: type | None) -> list[Any]:
    raw: list[Any] = ids.to_pylist()
    try:
        if kind is float:
            return [value if math.isfinite(value) else str(value) for value in raw]
        if kind is bytes:
            return [value.decode() for value in raw]
        return raw if kind is not None else list(pc.cast(ids, pa.string()).to_pylist())
    except (UnicodeDecodeError, pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return [value.hex() if kind is bytes else str(value) for value in raw]
