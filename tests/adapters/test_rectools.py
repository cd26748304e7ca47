"""RecTools: the model in its cross-validation, by its configurations and with its rules for users and items."""

import numpy as np
import pandas as pd
import pytest
from rectools import Columns
from rectools.dataset import Dataset
from rectools.exceptions import NotFittedError
from rectools.metrics import NDCG, Recall
from rectools.model_selection import LastNSplitter, cross_validate
from rectools.models import EASEModel, PopularModel, model_from_config, model_from_params

from rankformer.adapters.rectools import RankformerModel
from rankformer.errors import ConfigError

TESTED = {"RecTools": ("adapter", "rectools")}


def frame_of(log):
    table = pd.DataFrame({Columns.User: log.user_ids.take(log.users), Columns.Item: log.item_ids.take(log.items)})
    table[Columns.Weight] = 1.0
    table[Columns.Datetime] = pd.Timestamp("2026-01-01") + pd.to_timedelta(np.arange(len(table)), unit="h")
    return table


@pytest.fixture(scope="module")
def dataset(parts):
    return Dataset.construct(frame_of(parts.train))


@pytest.fixture(scope="module")
def fitted(dataset):
    return RankformerModel("ease", regularization=50).fit(dataset)


def test_cross_validation_measures_it_beside_their_models(dataset):
    models = {
        "ours": RankformerModel("ease", regularization=500, keep=None),
        "theirs": EASEModel(500),
        "popular": PopularModel(),
        "blend": RankformerModel("blend", members="ease,item-knn", tune=False),
    }
    splitter = LastNSplitter(n=2, n_splits=2, filter_cold_users=False, filter_cold_items=False)
    metrics = {"ndcg": NDCG(k=10), "recall": Recall(k=10)}
    results = cross_validate(dataset, splitter, metrics, models, k=10, filter_viewed=True)
    table = pd.DataFrame(results["metrics"]).set_index(["model", "i_split"])
    assert len(table) == 8
    # The same method gives the same lists: EASE differs from theirs by rounding alone.
    assert table.loc["ours"].to_numpy() == pytest.approx(table.loc["theirs"].to_numpy(), abs=2e-3)
    assert (table.loc["ours"]["ndcg"] > 1.5 * table.loc["popular"]["ndcg"]).all()
    assert (table.loc["blend"]["ndcg"] > 1.5 * table.loc["popular"]["ndcg"]).all()


def test_lists_are_those_of_the_model_itself(parts, dataset, fitted):
    users = parts.train.user_ids.ids.to_pylist()[:50]
    theirs = fitted.recommend(users, dataset, k=7, filter_viewed=True)
    assert list(theirs.columns) == [Columns.User, Columns.Item, Columns.Score, Columns.Rank]
    ours = fitted.model.recommend(users, 7).to_pandas()
    pd.testing.assert_frame_equal(
        theirs, ours[["user_id", "item_id", "score", "rank"]], check_dtype=False, check_names=False
    )


def test_a_model_that_was_fitted_elsewhere_recommends_at_once(parts, dataset, ease):
    adapted = RankformerModel(ease)
    lists = adapted.recommend(parts.train.user_ids.ids.to_pylist()[:9], dataset, k=5, filter_viewed=True)
    expected = ease.recommend(parts.train.user_ids.ids.to_pylist()[:9], 5).to_pandas()
    assert lists[Columns.Item].tolist() == expected["item_id"].tolist()


def with_interactions(dataset, *pairs):
    frame = pd.DataFrame(pairs, columns=[Columns.User, Columns.Item])
    frame[Columns.Weight], frame[Columns.Datetime] = 1.0, pd.Timestamp("2027-12-01")
    return Dataset.construct(pd.concat([dataset.get_raw_interactions(), frame]))


def test_viewed_items_are_those_of_the_dataset_given(dataset, fitted):
    first, second = fitted.recommend(["mira-001"], dataset, k=2, filter_viewed=True)[Columns.Item]
    later = with_interactions(dataset, ("mira-001", first))
    assert fitted.recommend(["mira-001"], later, k=1, filter_viewed=True)[Columns.Item].tolist() == [second]
    assert (
        fitted.recommend(["mira-001"], later, k=1000, filter_viewed=False)[Columns.Item].nunique() == later.n_hot_items
    )


@pytest.mark.parametrize("name", ["ease", "mf"])
def test_a_user_who_came_after_the_fit_is_answered_by_their_history(dataset, name):
    """Folded in where the model can, else by popularity; what they have is left out in both cases."""
    popular = dataset.get_raw_interactions()[Columns.Item].value_counts().index
    later = with_interactions(dataset, ("new", popular[0]), ("new", popular[2]))
    model = RankformerModel(name, **({"epochs": 2} if name == "mf" else {})).fit(dataset)
    found = model.recommend(["new", "mira-001"], later, k=3, filter_viewed=True)
    lists = found[found[Columns.User] == "new"][Columns.Item].tolist()
    if model.model.recommender.can_fold_in:
        history = {"new": [popular[0], popular[2]]}
        assert lists == model.model.recommend(histories=history, k=3).table["item_id"].to_pylist()
    else:
        assert lists == [popular[1], *popular[3:5]]
    assert (found[Columns.User] == "mira-001").sum() == 3


def test_items_to_recommend_bound_the_lists(dataset, fitted):
    allowed = dataset.item_id_map.external_ids[5:15]
    lists = fitted.recommend(["mira-001"], dataset, k=20, filter_viewed=False, items_to_recommend=allowed)
    assert set(lists[Columns.Item]) == set(allowed)
    similar = fitted.recommend_to_items([allowed[0]], dataset, k=20, items_to_recommend=allowed)
    assert set(similar[Columns.Item]) <= set(allowed) - {allowed[0]}
    assert len(similar) > 3


def test_items_similar_to_items(dataset, fitted):
    first, second = dataset.item_id_map.external_ids[[3, 8]]
    similar = fitted.recommend_to_items([first, second], dataset, k=4)
    expected = fitted.model.similar_items(first, 4).table["similar_item_id"].to_pylist()
    assert similar[similar[Columns.TargetItem] == first][Columns.Item].tolist() == expected
    assert similar.groupby(Columns.TargetItem)[Columns.Rank].max().tolist() == [4, 4]
    with_itself = fitted.recommend_to_items([first], dataset, k=4, filter_itself=False)
    assert with_itself[Columns.Item].tolist() == [first, *expected[:3]]


def test_users_without_interactions_get_the_most_popular_items(dataset, fitted):
    lists = fitted.recommend(["nobody"], dataset, k=3, filter_viewed=True)
    counts = dataset.get_raw_interactions()[Columns.Item].value_counts()
    assert lists[Columns.Score].tolist() == counts.iloc[:3].tolist()


def test_weights_count(dataset):
    frame = dataset.get_raw_interactions()
    frame[Columns.Weight] = np.where(frame[Columns.Item] == "book-003", 50.0, 1.0)
    model = RankformerModel("popularity").fit(Dataset.construct(frame))
    lists = model.recommend(["nobody"], dataset, k=1, filter_viewed=False)
    assert lists[Columns.Item].tolist() == ["book-003"]


def test_a_second_fit_starts_anew(dataset):
    model = RankformerModel("mf", epochs=2, embedding_dim=4)
    first = model.fit(dataset).recommend(["mira-001"], dataset, k=5, filter_viewed=True)
    second = model.fit(dataset).recommend(["mira-001"], dataset, k=5, filter_viewed=True)
    pd.testing.assert_frame_equal(first, second)


def test_configurations_go_out_and_come_back():
    model = RankformerModel("lightgcn", epochs=3, num_layers=1)
    config = model.get_config(simple_types=True)
    assert config == {
        "cls": "rankformer.adapters.rectools.RankformerModel",
        "verbose": 0,
        "model": "lightgcn",
        "settings": {"epochs": 3, "num_layers": 1},
    }
    assert model_from_config(config).get_config(simple_types=True) == config
    assert model.get_params()["settings.epochs"] == 3
    assert model_from_params(model.get_params(simple_types=True)).get_config(simple_types=True) == config


def test_an_instance_gives_its_settings(ease):
    config = RankformerModel(ease).get_config(simple_types=True)
    again = model_from_config(config)
    assert not again.is_fitted
    assert again.model.settings == ease.settings


def test_it_is_saved_and_loaded_their_way(tmp_path, dataset, fitted):
    fitted.save(tmp_path / "model")
    loaded = RankformerModel.load(tmp_path / "model")
    lists = [each.recommend(["mira-001"], dataset, k=5, filter_viewed=True) for each in (fitted, loaded)]
    pd.testing.assert_frame_equal(*lists)


def test_mistakes_are_told_early(dataset):
    with pytest.raises(NotFittedError):
        RankformerModel("ease").recommend(["mira-001"], dataset, k=5, filter_viewed=True)
    with pytest.raises(ConfigError, match="did you mean 'regularization'"):
        RankformerModel("ease", regularisation=3)
