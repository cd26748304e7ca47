"""Every registered model through every adapter: the lists of the model itself, whichever library asks for them."""

import numpy as np
import pandas as pd
import pytest
from cornac.data import Dataset as CornacDataset
from lenskit.data import ItemList, from_interactions_df
from lenskit.training import TrainingOptions
from rectools.dataset import Dataset as RecToolsDataset
from scipy.sparse import csr_matrix
from tests.adapters.conftest import small_settings

from rankformer.adapters import cornac, implicit, lenskit, rectools, sklearn
from rankformer.models.registry import MODELS

USERS, ITEMS = 20, 15
RNG = np.random.default_rng(3)
ROWS, COLUMNS = np.nonzero(RNG.random((USERS, ITEMS)) < 0.4)
MATRIX = csr_matrix((np.ones(len(ROWS), np.float32), (ROWS, COLUMNS)), shape=(USERS, ITEMS))
PAIRS = pd.DataFrame({"user_id": ROWS, "item_id": COLUMNS})


@pytest.mark.parametrize("name", MODELS)
def test_scores_are_the_same_through_every_library(name):
    settings = small_settings(name)
    assert set(ROWS) == set(range(USERS))
    assert set(COLUMNS) == set(range(ITEMS))
    table = MODELS[name](**settings).fit(PAIRS, verbose=False).recommend([4], ITEMS, include_seen=True).to_pandas()
    expected = table.set_index("item_id")["score"].sort_index().to_numpy()
    found = {}

    adapted = implicit.RankformerRecommender(name, **settings)
    adapted.fit(MATRIX, show_progress=False)
    ids, scores = adapted.recommend(4, MATRIX[4], N=ITEMS, filter_already_liked_items=False)
    found["implicit"] = scores[np.argsort(ids)]

    dataset = RecToolsDataset.construct(PAIRS.assign(weight=1.0, datetime="2026-01-01"))
    lists = rectools.RankformerModel(name, **settings).fit(dataset).recommend([4], dataset, ITEMS, filter_viewed=False)
    found["rectools"] = lists.sort_values("item_id")["score"].to_numpy()

    scorer = lenskit.RankformerScorer(model=name, settings=settings)
    scorer.train(from_interactions_df(PAIRS), TrainingOptions())
    found["lenskit"] = scorer(query=4, items=ItemList(np.arange(ITEMS))).scores()

    data = CornacDataset.build([(user, item, 1.0) for user, item in zip(ROWS.tolist(), COLUMNS.tolist(), strict=True)])
    model = cornac.RankformerRecommender(name, **settings).fit(data)
    found["cornac"] = model.score(model.uid_map[4])[np.argsort(model.item_ids)]

    estimator = sklearn.RankformerEstimator(name, **settings).fit(PAIRS)
    found["sklearn"] = estimator.predict(pd.DataFrame({"user_id": 4, "item_id": np.arange(ITEMS)}))
    for library, scores in found.items():
        if library in ("rectools", "cornac") and not MODELS[name].deterministic:
            assert np.isfinite(scores).all()  # it numbers ids in its own order, so random draws fall otherwise
            assert scores.shape == expected.shape
        else:
            assert scores == pytest.approx(expected, rel=1e-3, abs=1e-5), library
