"""The lists of all users, written by several ranks: a Parquet file each, and a manifest when all are there."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from rankformer.errors import DataError
from rankformer.files import atomic_path, sha256_of, write_bytes_atomic
from rankformer.graph.collectives import Ranks
from rankformer.runs.checksums import checksummed_json
from rankformer.runs.manifest import MANIFEST
from rankformer.scoring.recommender import Recommender


def write_parts(recommender: Recommender, folder: Path, k: int, ranks: Ranks, **options: Any) -> int:
    """Write the lists of every user to part-RANK-of-SIZE.parquet files, and return how many rows there are in all.

    One after another they are what `Recommender.recommend` gives on one rank, bit for bit.

    Args:
        recommender: the same on every rank.
        folder: made if missing; one that holds anything is refused.
        k: length of the lists.
        ranks: who shares the users.
        options: of `Recommender.recommend`.
    """
    with ranks.together():
        if ranks.rank == 0:
            folder.mkdir(parents=True, exist_ok=True)
            if any(folder.iterdir()):
                raise DataError(f"{folder} is not empty; choose a new folder for the lists")
    names = [f"part-{rank:05d}-of-{ranks.size:05d}.parquet" for rank in range(ranks.size)]
    with ranks.together():
        share = recommender.share_of(ranks)
        ids = recommender.user_ids.ids[share].to_pylist()
        table = recommender.recommend(ids, k, **options).to_arrow()
        with atomic_path(folder / names[ranks.rank]) as path:
            pq.write_table(table, path)
    rows = [int(size) for size in ranks.joined(np.array([len(table)], np.int64))]
    if ranks.rank == 0:
        files = {
            name: {"rows": size, "size": (folder / name).stat().st_size, "sha256": sha256_of(folder / name)}
            for name, size in zip(names, rows, strict=True)
        }
        content = {"format": "rankformer-lists", "version": 1, "k": k, "rows": sum(rows), "files": files}
        write_bytes_atomic(folder / MANIFEST, checksummed_json(content))
    ranks.barrier()
    return sum(rows)
