"""What the adapters share: a model by name or instance, a log from a matrix with the library's own ids, scores.

Models are fitted on the library's ids and asked by them. So a model that was fitted elsewhere answers as well.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from rankformer.data.interactions import Interactions
from rankformer.models.base import Model
from rankformer.models.registry import MODELS, model_class
from rankformer.scoring.base import Scorer
from rankformer.scoring.options import RankingOptions
from rankformer.scoring.recommender import Recommender

NO_SCORE = float(np.finfo(np.float32).min)  # beside a missing item, where a library has no other mark for it

Indices = NDArray[np.int64]
Scores = NDArray[np.float32]


def new_model(source: str | Model, settings: Mapping[str, Any]) -> Model:
    """Return a model that is not fitted: of a name, or like an instance, with the settings given."""
    if isinstance(source, Model):
        return type(source)(**{**source.settings.model_dump(), **settings})
    return model_class(source)(**settings)


def fitted_model(source: str | Model, settings: Mapping[str, Any]) -> Model | None:
    """Return an instance that can answer as it is, None where the adapter has to fit one first."""
    return source if isinstance(source, Model) and source.is_fitted and not settings else None


def described(source: str | Model, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the name of a model and its settings, as JSON can hold them; `new_model` takes them back."""
    if isinstance(source, str):
        return {"model": source, "settings": dict(settings)}
    kind = type(source)
    name = kind.name if MODELS.get(kind.name) is kind else f"{kind.__module__}:{kind.__qualname__}"
    return {"model": name, "settings": {**source.settings.model_dump(mode="json"), **settings}}


def log_of(matrix: Any, user_ids: Iterable[Any], item_ids: Iterable[Any], *, weighted: bool = True) -> Interactions:
    """Return the entries of a sparse matrix of users by items; they are weights unless all are 1, or not `weighted`."""
    log = Interactions.from_csr(matrix, list(user_ids), list(item_ids))
    return log if weighted and log.weights is not None and (log.weights != 1).any() else replace(log, weights=None)


def scores_of(recommender: Recommender, users: Indices) -> Scores:
    """Return the scores (b, m) of user indices; popularity for whoever the model knows nothing about, -1 among them."""
    known = np.maximum(users, 0)
    scores = all_scores(recommender.scorer, known)
    scores[(users < 0) | recommender.cold[known]] = recommender.popularity
    return scores


def all_scores(scorer: Scorer, users: Indices) -> Scores:
    """Return the scores (b, m) of user indices as an array."""
    with torch.no_grad():
        return scorer.scores(torch.from_numpy(users)).float().numpy()


def similar_to(recommender: Recommender, item: int, options: RankingOptions) -> tuple[Indices, Scores]:
    """Return the items most similar to one and how similar they are; itself comes first, as in other libraries."""
    found = recommender.rank_similar(item, options)
    kept = found.items[0] >= 0
    items, scores = found.items[0][kept].numpy(), found.scores[0][kept].float().numpy()
    if (options.allow is None or item in options.allow) and item not in (options.block or ()):
        items, scores = np.append(item, items), np.append(np.maximum(scores.max(initial=1.0), 1.0), scores)
    return items[: options.k], scores[: options.k].astype(np.float32)
