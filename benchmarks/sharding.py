"""Memory and time of `rankformer data shard` on a generated log: `python -m benchmarks.sharding ROWS [LIMIT] [FOLDER]`.

20 interactions per user, users uniform, the item at rank r as often as r^-1/2 among ROWS/200, times; random split, 4
shards. The log is written in pieces, the command runs in a process of its own, and its peak is read from the system.
"""

import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet

PIECE = 1 << 20


def write_log(path: Path, rows: int) -> None:
    draw, schema = (
        np.random.default_rng(0),
        pa.schema([("user", pa.int64()), ("item", pa.int64()), ("time", pa.int64())]),
    )
    with pyarrow.parquet.ParquetWriter(path, schema) as writer:
        for start in range(0, rows, PIECE):
            size = min(PIECE, rows - start)
            items = (rows // 200 * draw.random(size) ** 2).astype(np.int64)
            times = 1_600_000_000 + np.arange(start, start + size)
            writer.write_table(pa.table([draw.integers(0, rows // 20, size), items, times], schema=schema))


def main(rows: str, limit: str = "1GB", folder: str | None = None, *more: str) -> None:
    with tempfile.TemporaryDirectory(dir=folder) as place:
        write_log(Path(place, "log.parquet"), int(rows))
        command = [sys.executable, "-m", "rankformer", "data", "shard", f"{place}/log.parquet", "--json", *more]
        begun = time.perf_counter()
        subprocess.run(
            [*command, "--shards", "4", "--out", f"{place}/out", "--memory-limit", limit],
            check=True,
            stdout=subprocess.DEVNULL,
        )
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        found = {"rows": int(rows), "limit": limit, "peak MB": used.ru_maxrss * 1024 // 10**6}
        found |= {"processor seconds": round(used.ru_utime + used.ru_stime, 1)}
        print(json.dumps({**found, "seconds": round(time.perf_counter() - begun, 1)}))


if __name__ == "__main__":
    main(*sys.argv[1:])
