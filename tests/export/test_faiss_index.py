"""The index as any program with FAISS sees it."""

import numpy as np
import pytest

from rankformer.export.exporter import export_run
from rankformer.export.targets import FaissIndex

from .conftest import DIMENSION, ITEMS, make_run, needed

TESTED = {"FAISS": ("target", "faiss-cpu", "faiss")}


@pytest.fixture
def faiss():
    needed("faiss")
    import faiss

    return faiss


def test_an_exact_index_of_inner_products(faiss, saved, tmp_path):
    export_run(saved(), FaissIndex(), tmp_path / "out")
    index = faiss.read_index(str(tmp_path / "out" / "items.faiss"))
    assert isinstance(index, faiss.IndexFlatIP)
    assert (index.metric_type, index.d, index.ntotal) == (faiss.METRIC_INNER_PRODUCT, DIMENSION, ITEMS)
    scores, rows = index.search(np.load(tmp_path / "out" / "users.npy")[:5], 6)
    recommender = make_run().recommender
    expected = recommender.recommend(range(5), 6, include_seen=True).table
    assert recommender.item_ids.take(rows.ravel()).equals(expected["item_id"].combine_chunks())
    assert np.allclose(scores.ravel(), expected["score"].to_numpy())


def test_an_index_of_another_metric_fails_the_self_test(faiss, saved, tmp_path):
    class ByDistance(FaissIndex):
        def write(self, contents, folder):
            super().write(contents, folder)
            index = faiss.IndexFlatL2(DIMENSION)
            index.add(contents.tables.items.vectors)
            faiss.write_index(index, str(folder / "items.faiss"))

    with pytest.raises(Exception, match=r"self-test: faiss .* ranks otherwise"):
        export_run(saved(), ByDistance(), tmp_path / "out")
