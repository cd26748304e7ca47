"""What somebody types first: a frame goes in, lists come out, and a mistake is answered in one line."""

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import scipy.sparse as sp

from rankformer import Blend, Interactions, MatrixFactorization, Popularity, evaluate
from rankformer.errors import RankformerError

FRAME = pd.DataFrame({"user_id": ["a", "b", "a", "c", "b"], "item_id": [1, 2, 3, 1, 1]})
LATER = pd.DataFrame({"user_id": ["c", "d"], "item_id": [3, 9]})


@pytest.mark.parametrize(
    "made", [lambda frame: frame, pl.from_pandas, pa.Table.from_pandas], ids=["pandas", "polars", "arrow"]
)
def test_any_frame_is_fitted(made):
    model = Popularity().fit(made(FRAME))
    assert model.recommend(["c"], 2).to_pandas()["item_id"].tolist() == [2, 3]
    assert model.recommender.user_ids.ids.to_pylist() == ["a", "b", "c"]


def test_columns_can_be_named():
    frame = FRAME.rename(columns={"user_id": "who", "item_id": "what"}).assign(stars=[1.0, 2.0, 3.0, 4.0, 5.0])
    model = Popularity().fit(frame, user="who", item="what", weight="stars")
    assert model.recommender.history.weights.tolist() == [1, 2, 3, 4, 5]


def test_two_frames_share_their_ids():
    model = MatrixFactorization(epochs=2, embedding_dim=4).fit(FRAME, LATER)
    assert model.recommender.user_ids.ids.to_pylist() == ["a", "b", "c", "d"]
    assert model.recommender.item_ids.ids.to_pylist() == [1, 2, 3, 9]
    assert len(model.recommender.history) == 5
    assert [event["event"] for event in model.log].count("validation") >= 1


def test_a_blend_holds_out_some_of_a_frame_to_choose_on():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"who": rng.integers(0, 30, 400), "what": rng.integers(0, 20, 400)}).assign(kind="view")
    options = {"user": "who", "item": "what", "event": "kind", "event_weights": {"view": 2}}
    model = Blend(members=["popularity", "item-knn"], tune=False).fit(frame, **options)
    assert len(model.recommender.history) == 400
    assert set(model.recommender.history.weights.tolist()) == {2}
    weights = [member["weight"] for member in model.choices()["members"]]
    assert weights != [0.5, 0.5], "as without anything to choose on"


def test_a_matrix_and_a_path_are_fitted(tmp_path):
    matrix = sp.csr_matrix((np.ones(3), ([0, 1, 1], [0, 0, 2])), shape=(2, 3))
    assert len(Popularity().fit(matrix).recommender.history) == 3
    path = tmp_path / "log.csv"
    FRAME.to_csv(path, index=False)
    assert len(Popularity().fit(path).recommender.history) == 5


def test_a_frame_is_evaluated_as_its_interactions_are():
    model = Popularity().fit(FRAME)
    assert evaluate(model, LATER).metrics == evaluate(model, Interactions.from_pandas(LATER)).metrics


@pytest.mark.parametrize(
    ("mistake", "words"),
    [
        (lambda model: model.recommend(1), r"users=1: a list of ids is needed; write \[1\]"),
        (lambda model: model.recommend(np.int64(1)), "users=1: a list of ids is needed"),
        (lambda model: model.recommend("a"), r"users='a': a list of ids is needed; write \['a'\]"),
        (lambda model: model.recommend(FRAME), "users is a table with several columns"),
        (lambda model: model.recommend(["a"], k="ten"), r"k='ten': .*use an integer k >= 1"),
        (lambda model: model.recommend(["a"], k=2.5), r"k=2\.5: .*use an integer k >= 1"),
        (lambda model: model.recommend(["a"], allow=1), "allow=1: a list of ids is needed"),
        (lambda model: model.recommend(histories=[1, 2]), r"histories=\[1, 2\]: expected a dictionary"),
        (lambda model: model.recommend(histories={"x": 1}), "history=1: a list of ids is needed"),
        (lambda model: model.similar_items([1, 2]), r"unknown item: \[1, 2\]"),
        (lambda _: Popularity().recommend(["a"]), r"Popularity is not fitted; call fit\(train\) or load\(folder\)"),
        (lambda _: Popularity().fit([1, 2]), "list is not a log; expected Interactions, a pandas or polars frame"),
        (lambda _: Popularity().fit(None), "NoneType is not a log"),
        (lambda _: Popularity().fit(np.eye(3)), r"numpy\.ndarray is not a log"),
        (lambda _: Popularity().fit(FRAME["user_id"]), r"pandas\.Series is not a log"),
        (lambda _: Popularity().fit(FRAME, usr="x"), r"usr=\.\.\. is unknown; expected user, item"),
        (lambda _: Popularity().fit(FRAME, user="x"), "no column 'x': found columns 'user_id', 'item_id'"),
        (lambda _: Popularity().fit(FRAME[["item_id"]]), "no user column: found columns 'item_id'"),
        (lambda _: Popularity().fit(FRAME, [1]), "train and valid are of different kinds"),
        (lambda _: Popularity().fit(Interactions.of(FRAME), user="x"), "user=... names a column of a table or file"),
        (lambda _: Popularity().fit(FRAME.head(0)), "no interaction"),
        (lambda _: Popularity().fit("none.csv"), r"none\.csv does not exist"),
        (lambda model: evaluate(model, [("a", 1)]), "list is not a log"),
    ],
)
def test_mistakes_are_one_line(mistake, words):
    with pytest.raises(RankformerError, match=words) as caught:
        mistake(Popularity().fit(FRAME))
    assert "\n" not in str(caught.value)
