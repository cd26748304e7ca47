"""NumPy files as any other program sees them."""

import numpy as np
import pyarrow.parquet as pq

from rankformer.export.exporter import export_run
from rankformer.export.targets import NumpyArrays

from .conftest import make_run

TESTED = {"NumPy": ("target", "numpy")}


def test_plain_arrays_with_their_ids(saved, tmp_path):
    run, out = make_run(), tmp_path / "out"
    export_run(saved(), NumpyArrays(), out)
    for side, ids in (("user", run.recommender.user_ids), ("item", run.recommender.item_ids)):
        array = np.load(out / f"{side}s.npy", allow_pickle=False)
        assert array.dtype == np.float32
        assert array.flags.c_contiguous
        assert np.array_equal(array, getattr(run.recommender.embeddings, f"{side}s").numpy())
        assert pq.read_table(out / f"{side}_ids.parquet")["id"].combine_chunks().equals(ids.ids)
