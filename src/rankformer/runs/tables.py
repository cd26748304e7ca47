"""The tables and tensors of a run as files: written by one rank or by several, read within bounds."""

import base64
import json
import os
from collections.abc import Sequence
from contextlib import ExitStack, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from safetensors.torch import load as load_tensors
from safetensors.torch import load_file
from safetensors.torch import save as tensors_to_bytes
from torch import Tensor

from rankformer.data.parts import Block
from rankformer.errors import DataError
from rankformer.files import atomic_path, write_bytes_atomic
from rankformer.graph.collectives import ALONE, Ranks

_ALWAYS_READ = 2**28  # bytes that a table may have, however small its file is
_MAPPED_BYTES = 2**31  # larger files of tensors are mapped into memory, not read
_EXPANSION = 1000  # times that a larger one may be larger than its file


def read_table(path: Path) -> pa.Table:
    """Return a table with the column types it was written with; Parquet alone turns seconds into milliseconds."""
    with pq.ParquetFile(path) as stored:  # pq.read_table waits for ever where no thread can be started
        found = stored.metadata
        groups = [found.row_group(number) for number in range(found.num_row_groups)]
        chunks = [group.column(number) for group in groups for number in range(found.num_columns)]
        lengths = [_list_length(field) for field in stored.schema_arrow]
        values = max(sum(chunk.num_values for chunk in chunks), found.num_rows * sum(lengths))
        size = max(sum(group.total_byte_size for group in groups), 8 * values)
        if size > max(_ALWAYS_READ, _EXPANSION * path.stat().st_size):
            raise DataError(f"{found.num_rows:,} rows ({size:,} bytes) in a file of {path.stat().st_size:,} bytes")
        table, metadata = stored.read(), found.metadata or {}
    if b"ARROW:schema" in metadata:
        table = table.cast(pa.ipc.read_schema(pa.py_buffer(base64.b64decode(metadata[b"ARROW:schema"]))))
    table.validate(full=True)  # strings are UTF-8, offsets inside their buffers
    return table


def _list_length(field: pa.Field) -> int:
    """Return how many values each row of a column has, null or not; 1 where lists differ in length."""
    kind, is_fixed = field.type, pa.types.is_fixed_size_list(field.type)
    is_list = is_fixed or pa.types.is_list(kind) or pa.types.is_large_list(kind)
    if pa.types.is_nested(kind) and not (is_list and not pa.types.is_nested(kind.value_type)):
        raise DataError(f"the column {field.name[:80]!r} has type {str(kind)[:80]}")
    return kind.list_size if is_fixed else 1


def write_table(
    target: Path, columns: dict[str, pa.Array], ranks: Ranks = ALONE, groups: Sequence[slice] = (slice(None),)
) -> None:
    """Write a table; of several ranks the first writes the rows of all, one after another in each group of rows."""
    table = pa.table(columns)
    if ranks.alone:
        with atomic_path(target) as path:
            pq.write_table(table, path)
        return
    with nullcontext() if ranks.rank else atomic_path(target) as path, ExitStack() as stack:
        writer = None if path is None else stack.enter_context(pq.ParquetWriter(path, table.schema))
        for group in groups:
            sink = pa.BufferOutputStream()
            with pa.ipc.new_stream(sink, table.schema) as stream:
                stream.write_table(table[group])
            for part in ranks.in_turn(np.frombuffer(sink.getvalue(), np.uint8)):
                if writer is not None:
                    writer.write_table(pa.ipc.open_stream(pa.py_buffer(part)).read_all())


def write_tensors(target: Path, tensors: dict[str, Tensor], block: Block | None, ranks: Ranks) -> None:
    """Write tensors to one safetensors file; of several ranks each writes its users' rows, the first all other rows.

    The tensors `users` and `table` have a row for every user, and `table` then one for every item.
    """
    stored = {name: value.detach().cpu().contiguous().clone() for name, value in tensors.items()}
    if block is None:
        write_bytes_atomic(target, tensors_to_bytes(stored))
        return
    types = {torch.float32: "F32", torch.float64: "F64", torch.int64: "I64", torch.int32: "I32", torch.bool: "BOOL"}
    header, places, end = dict[str, Any](), dict[str, int](), 0
    for name in sorted(stored, key=lambda name: (-stored[name].element_size(), name)):
        value, others = stored[name], block.num_users - block.own_users if _by_user(name) else 0
        size = value.nbytes + others * value[:1].nbytes
        header[name] = {"dtype": types[value.dtype], "shape": [len(value) + others, *value.shape[1:]]}
        header[name]["data_offsets"] = [end, end + size]
        places[name], end = end, end + size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with ranks.together():
        if ranks.rank == 0:
            with open(target, "wb") as file:
                file.write(len(text).to_bytes(8, "little") + text)
                file.truncate(8 + len(text) + end)
    with ranks.together(), open(target, "r+b") as file:
        for name, value in stored.items():
            start, row = 8 + len(text) + places[name], value[:1].nbytes
            if _by_user(name):
                file.seek(start + block.first_user * row)
                file.write(value[: block.own_users].numpy().tobytes())
            if ranks.rank == 0:
                file.seek(start + (block.num_users * row if _by_user(name) else 0))
                file.write(value[block.own_users if _by_user(name) else 0 :].numpy().tobytes())
        file.flush()
        os.fsync(file.fileno())


def read_tensors(path: Path) -> dict[str, Tensor]:
    """Return the tensors of a file: in memory, aligned as when they were computed; those of a large file mapped."""
    return load_file(path) if path.stat().st_size > _MAPPED_BYTES else load_tensors(path.read_bytes())


def _by_user(name: str) -> bool:
    return name.rpartition(".")[2] in ("users", "table")
