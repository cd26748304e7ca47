"""scikit-learn: `RankformerEstimator`, for its cross-validation and grid search.

A sample is an interaction: X has two columns, user and item, of ids of any type; y, if given, has the weights. So
`ShuffleSplit` and `KFold` hold out interactions, and `score` measures how well the held-out ones are found.
"""

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted

from rankformer.adapters.common import new_model, scores_of
from rankformer.data.interactions import Interactions
from rankformer.errors import ConfigError, DataError
from rankformer.evaluation.evaluator import evaluate
from rankformer.models.base import Model
from rankformer.models.registry import MODELS
from rankformer.scoring.recommendations import Recommendations

_OWN = ("model", "score_metric")  # arguments that are not settings of the model


class RankformerEstimator(BaseEstimator):
    """A model of this package as a scikit-learn estimator.

    Args:
        model: name of a model, or an instance whose class and settings are used.
        score_metric: what `score` returns, such as ndcg@20.
        **settings: of the model, each a parameter of the estimator.
    """

    def __init__(self, model: str | Model = "blend", score_metric: str = "ndcg@20", **settings: Any) -> None:
        self.model = model
        self.score_metric = score_metric
        self._settings = settings

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the arguments the estimator was made with."""
        del deep
        return {**{name: getattr(self, name) for name in _OWN}, **self._settings}

    def set_params(self, **params: Any) -> "RankformerEstimator":
        """Change some arguments; an unknown one raises a ValueError of one line, a wrong value does so in `fit`."""
        own = {name: params.pop(name) for name in _OWN if name in params}
        model = own.get("model", self.model)
        kind = type(model) if isinstance(model, Model) else MODELS.get(model) if isinstance(model, str) else None
        known = list(params) if kind is None else list(kind.settings_class.model_fields)
        for name in params.keys() - set(known):
            raise ConfigError(f"unknown setting {name!r}; the model has {', '.join(known)}")
        for name, value in own.items():
            setattr(self, name, value)
        self._settings = {**self._settings, **params}
        return self

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.no_validation = True  # any two columns of ids
        tags.non_deterministic = False
        return tags

    def fit(self, X: Any, y: Any = None) -> "RankformerEstimator":
        """Fit the model to interactions, weighted by y if given."""
        self.n_features_in_ = 2
        self.model_ = new_model(self.model, self._settings).fit(_log(X, y), verbose=False)
        return self

    def predict(self, X: Any) -> NDArray[np.float32]:
        """Return the score of each pair of user and item; nan for an item that was not in the training data."""
        check_is_fitted(self)
        recommender = self.model_.recommender
        users, items = (column.to_pylist() for column in _columns(X))
        index, row = np.unique(recommender.user_ids.index_of(users), return_inverse=True)
        found, item = np.full(len(users), np.nan, dtype=np.float32), recommender.item_ids.index_of(items)
        for start in range(0, len(index), 256):
            inside = np.flatnonzero((row >= start) & (row < start + 256) & (item >= 0))
            found[inside] = scores_of(recommender, index[start : start + 256])[row[inside] - start, item[inside]]
        return found

    def recommend(self, users: Any = None, k: int = 10, **options: Any) -> Recommendations:
        """Return top-k lists: see `rankformer.models.base.Model.recommend`."""
        check_is_fitted(self)
        return self.model_.recommend(users, k, **options)

    def score(self, X: Any, y: Any = None) -> float:
        """Return `score_metric` of the lists for the users of X, without their training items; y is not used."""
        check_is_fitted(self)
        return evaluate(self.model_, _log(X, None), metrics=[self.score_metric]).metrics[self.score_metric]


def _columns(X: Any) -> tuple[pa.Array, pa.Array]:
    shape = np.shape(X)
    if len(shape) != 2 or shape[1] != 2:
        raise DataError(f"X has shape {shape}; expected two columns, the user and the item of each interaction")
    user, item = (X.iloc[:, 0], X.iloc[:, 1]) if hasattr(X, "iloc") else np.asarray(X).T
    return pa.array(user), pa.array(item)


def _log(X: Any, y: Any) -> Interactions:
    user, item = _columns(X)
    weights = {} if y is None else {"weight": pa.array(np.asarray(y, dtype=np.float64))}
    return Interactions.from_arrow(pa.table({"user": user, "item": item, **weights}))
