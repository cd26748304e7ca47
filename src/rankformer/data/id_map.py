"""`IdMap`: raw ids of any type on one side, indices 0..N-1 on the other."""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from rankformer.errors import DataError


@dataclass(frozen=True, eq=False)
class IdMap:
    """The raw ids of all users, or of all items; the position of an id is its index.

    Attributes:
        ids: distinct values without nulls, of any Arrow type that can be hashed.
    """

    ids: pa.Array

    def __post_init__(self) -> None:
        if self.ids.null_count:
            raise DataError(f"ids must not be missing; found {self.ids.null_count} nulls")
        distinct = pc.count_distinct(self.ids).as_py()
        if distinct != len(self.ids):
            raise DataError(f"ids must be distinct; found {len(self.ids):,} ids of which {distinct:,} differ")

    @classmethod
    def encode(cls, values: pa.Array | pa.ChunkedArray) -> "tuple[IdMap, NDArray[np.int32]]":
        """Return the map of the distinct values in ascending order, and the index of each value (int32)."""
        if values.null_count:
            first = pc.index(pc.is_null(values), True).as_py()
            raise DataError(f"row {first + 1} has no id ({values.null_count} such rows); drop or fill them first")
        if pa.types.is_dictionary(values.type):
            return cls._encode_dictionary(pa.chunked_array(values).unify_dictionaries())
        ids = pc.unique(values)
        ids = ids.take(pc.sort_indices(ids))
        return cls(ids), pc.index_in(values, value_set=ids).to_numpy().astype(np.int32, copy=False)

    @classmethod
    def _encode_dictionary(cls, values: pa.ChunkedArray) -> "tuple[IdMap, NDArray[np.int32]]":
        """Return the same as `encode` without ever holding a string per row."""
        codes = np.concatenate([np.zeros(0, np.int32), *(chunk.indices.to_numpy() for chunk in values.chunks)])
        dictionary = values.chunk(0).dictionary if values.num_chunks else pa.array([], values.type.value_type)
        is_used = np.zeros(len(dictionary), dtype=np.bool_)
        is_used[codes] = True
        used = np.flatnonzero(is_used)
        ids = dictionary.take(pa.array(used))
        order = pc.sort_indices(ids)
        rank = np.zeros(len(dictionary), dtype=np.int32)
        rank[used[order.to_numpy()]] = np.arange(len(used), dtype=np.int32)
        return cls(ids.take(order)), rank[codes]

    @classmethod
    def dense(cls, size: int) -> "IdMap":
        """Return the map in which the ids are the integers 0..size-1 themselves."""
        return cls(pa.array(np.arange(size, dtype=np.int64)))

    def __len__(self) -> int:
        return len(self.ids)

    def __repr__(self) -> str:
        first = ", ".join(repr(value) for value in self.ids[:3].to_pylist())
        return f"IdMap({len(self):,} ids of type {self.ids.type}: {first}{', ...' if len(self) > 3 else ''})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, IdMap) and self.ids.equals(other.ids)

    __hash__ = None  # type: ignore[assignment]

    def index_of(self, raw_ids: Iterable[Any]) -> NDArray[np.int64]:
        """Return the index of each raw id, -1 for one that is not in the map or not of its type."""
        wanted = list(raw_ids)
        try:
            values = pa.array(wanted, type=self.ids.type)
        except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
            # At least one value cannot even be of the ids' type: look them up one by one.
            if len(wanted) == 1:
                return np.array([-1], dtype=np.int64)
            return np.concatenate([self.index_of([value]) for value in wanted])
        found = pc.fill_null(pc.index_in(values, value_set=self.ids), -1)
        indices: NDArray[np.int64] = found.to_numpy(zero_copy_only=False).astype(np.int64)
        return indices

    def extended(self, other: "IdMap", kind: str) -> "tuple[IdMap, NDArray[np.int64]]":
        """Return these ids followed by those of another map that are new, and the index of each of the other's.

        Raises:
            DataError: the ids of the other map are of another kind; integers may stand for strings.
        """
        alike = other.typed_like(self)
        if alike is None:
            raise DataError(
                f"{kind} ids are {self.ids.type} in the model and {other.ids.type} in the new log, such as "
                f"{str(other.ids[0])[:60]!r}; write them as in the log of the model"
            )
        new = alike.ids.filter(pc.invert(pc.is_in(alike.ids, value_set=self.ids)))
        whole = IdMap(pa.concat_arrays([self.ids, new])) if len(new) else self
        return whole, whole.index_of(alike.ids)

    def typed_like(self, other: "IdMap") -> "IdMap | None":
        """Return these ids in the type of another map's; None if one is not written exactly as its value there is."""
        if self.ids.type == other.ids.type:
            return self
        try:
            cast = self.ids.cast(other.ids.type)
            return IdMap(cast) if cast.cast(self.ids.type).equals(self.ids) else None
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            return None

    def parse(self, text: str) -> Any:
        """Return the raw id that a string of a command line or URL stands for: `42` is 42 when the ids are integers.

        A string that cannot be read as the ids' type is returned as it is, and will be an unknown id.
        """
        try:
            return pa.array([text]).cast(self.ids.type)[0].as_py()
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            return text

    def take(self, indices: NDArray[Any]) -> pa.Array:
        """Return the raw ids at the given indices."""
        return self.ids.take(pa.array(indices))

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 over the type, the order and the bytes of the ids."""
        digest = hashlib.sha256(str(self.ids.type).encode())
        sink = pa.BufferOutputStream()
        compact = pa.concat_arrays([self.ids])  # offsets start at 0, so equal ids give equal bytes
        with pa.ipc.new_stream(sink, pa.schema([("id", compact.type)])) as writer:
            writer.write_batch(pa.record_batch([compact], names=["id"]))
        digest.update(sink.getvalue())
        return digest.hexdigest()


def read_id_lines(path: Path, kind: str) -> list[str]:
    """Return the lines of a text file that are not empty; `kind` of id is what an error says was expected."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is not UTF-8 text (byte {error.start}); expected one {kind} id per line") from error
    return [line.removesuffix("\r") for line in text.split("\n") if line.strip()]
