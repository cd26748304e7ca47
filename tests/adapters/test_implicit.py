"""implicit: the calls of its models, answered in their shapes; beside one of them."""

import numpy as np
import pytest
from implicit.evaluation import ranking_metrics_at_k
from implicit.nearest_neighbours import CosineRecommender
from implicit.recommender_base import RecommenderBase
from scipy.sparse import csr_matrix

from rankformer.adapters.implicit import RankformerRecommender
from rankformer.errors import NotSupportedError

TESTED = {"implicit": ("adapter", "implicit")}


def matrix_of(log):
    return csr_matrix((np.ones(len(log), np.float32), (log.users, log.items)), shape=(log.num_users, log.num_items))


@pytest.fixture(scope="module")
def train(parts):
    return matrix_of(parts.train)


@pytest.fixture(scope="module")
def model(train):
    found = RankformerRecommender("item-knn", neighbours=400, shrinkage=0)
    found.fit(train, show_progress=False)
    return found


@pytest.fixture(scope="module")
def theirs(train):
    found = CosineRecommender(K=400, num_threads=1)
    found.fit(train, show_progress=False)
    return found


def test_one_method_in_both_libraries_gives_one_answer(train, model, theirs):
    assert isinstance(model, RecommenderBase)
    users = np.arange(40)
    for options in ({}, {"N": 3}, {"items": np.arange(100)}):
        ours, reference = (each.recommend(users, train[users], **options) for each in (model, theirs))
        assert ours[0].shape == reference[0].shape
        assert ours[1] == pytest.approx(reference[1], rel=1e-4)
        assert (ours[0] == reference[0]).mean() > 0.99  # but for ties
    ours, reference = (each.recommend(5, train[5]) for each in (model, theirs))
    assert ours[0].shape == reference[0].shape == (10,)
    assert ours[0].dtype == reference[0].dtype == np.int32
    assert ours[1].dtype == np.float32


def test_similar_items_start_with_the_item_itself(model, theirs):
    for asked in (3, np.array([3, 8])):
        ours, reference = (each.similar_items(asked, N=5) for each in (model, theirs))
        assert ours[0].tolist() == reference[0].tolist()
        assert ours[1] == pytest.approx(reference[1], rel=1e-4)
    assert 3 not in model.similar_items(3, filter_items=[3])[0]
    assert set(model.similar_items(3, N=2, items=[3, 4, 5])[0]) <= {3, 4, 5}


def test_short_lists_end_with_minus_one(train, model):
    ids, scores = model.recommend([0, 1], train[[0, 1]], N=420)
    assert (ids >= 0).sum(axis=1).tolist() == (400 - np.diff(train[[0, 1]].indptr)).tolist()
    assert (scores[ids < 0] == np.finfo(np.float32).min).all()
    everything = model.recommend(0, train[0], N=400, filter_already_liked_items=False)[0]
    assert sorted(everything.tolist()) == list(range(400))


def test_their_evaluation_takes_it(parts, train, model, theirs):
    test = matrix_of(parts.test)
    ours, reference = (ranking_metrics_at_k(each, train, test, K=10, show_progress=False) for each in (model, theirs))
    assert ours["ndcg"] == pytest.approx(reference["ndcg"], abs=1e-3)


def test_filters(train, model):
    first = model.recommend(2, train[2])[0]
    assert model.recommend(2, train[2], filter_items=first[:2].tolist())[0][:3].tolist() == first[2:5].tolist()
    liked = csr_matrix(([1.0], ([0], [first[0]])), shape=(1, train.shape[1]), dtype=np.float32)
    assert first[0] not in model.recommend(2, liked)[0]  # what counts as liked is what is given


def test_a_user_is_recalculated_from_a_history(train, model):
    history = csr_matrix(([1.0, 1.0], ([0, 0], [4, 9])), shape=(1, train.shape[1]), dtype=np.float32)
    found, _ = model.recommend(10**6, history, N=5, recalculate_user=True)
    assert found.tolist() == model.model.recommend(histories={0: [4, 9]}, k=5).table["item_id"].to_pylist()


def test_similar_users_of_a_model_with_embeddings(train, model):
    factors = RankformerRecommender("ials", embedding_dim=8, iterations=3)
    factors.fit(train, show_progress=False)
    ids, scores = factors.similar_users([7, 3], N=4)
    assert ids[:, 0].tolist() == [7, 3]
    assert scores[:, 0] == pytest.approx(1.0)
    assert factors.similar_users(7, N=2, users=[1, 2])[0].tolist() in ([1, 2], [2, 1])
    assert 7 not in factors.similar_users(7, filter_users=[7])[0]
    with pytest.raises(NotSupportedError):
        model.similar_users(7)


def test_values_of_the_matrix_are_weights(train):
    heavy = train.copy()
    heavy.data[heavy.indices == 11] = 60
    popular = RankformerRecommender("popularity")
    popular.fit(heavy, show_progress=False)
    assert popular.recommend(0, train[0], N=1, filter_already_liked_items=False)[0].tolist() == [11]


def test_it_is_saved_without_pickle(tmp_path, train, model):
    model.save(tmp_path / "run")
    loaded = RankformerRecommender.load(tmp_path / "run")
    assert (loaded.recommend(5, train[5])[0] == model.recommend(5, train[5])[0]).all()


def test_the_callback_gets_the_events(train):
    events = []
    RankformerRecommender("mf", epochs=2, embedding_dim=4).fit(train, show_progress=False, callback=events.append)
    assert {event["event"] for event in events} >= {"epoch"}


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"user_items": None}, ValueError),
        ({"user_items": csr_matrix((2, 400))}, ValueError),
        ({"userid": 10**6}, IndexError),
        ({"items": [10**6]}, IndexError),
        ({"items": [1], "filter_items": [2]}, ValueError),
    ],
)
def test_mistakes_raise_what_theirs_raise(train, model, change, error):
    with pytest.raises(error):
        model.recommend(**{"userid": 0, "user_items": train[0], **change})
