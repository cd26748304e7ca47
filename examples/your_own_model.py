"""A model of your own as a plug-in: PureSVD, outside the package, with everything that the built-in models have.

Cremonesi, Koren and Turrin, "Performance of Recommender Algorithms on Top-N Recommendation Tasks", RecSys 2010.

    X ~ U S V^T, the `rank` largest singular values        X: (n, m), 1 where user u has item j
    score      y_ui = sum_j x_uj W_ji,   W = V V^T

A model needs a class with its facts, its settings, and one method that learns. Then it works by the name
`module:Class` wherever the module can be imported:

    export PYTHONPATH=examples
    rankformer models your_own_model:PureSVD
    rankformer train demo --model your_own_model:PureSVD --set rank=16 --out runs/pure-svd
    rankformer tune demo --model your_own_model:PureSVD --trials 10
    rankformer recommend runs/pure-svd --user mira-001
    rankformer serve runs/pure-svd

`recommend`, `explain`, `similar`, `evaluate` and `serve` need only the run folder, not this file. A package that is
installed can give its models short names, which then appear in `rankformer models`; in its pyproject.toml:

    [project.entry-points."rankformer.models"]
    pure-svd = "your_own_model:PureSVD"
"""

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import ClassVar

import numpy as np
import torch
from pydantic import Field
from scipy.sparse.linalg import svds

from rankformer import BipartiteGraph, Popularity, evaluate
from rankformer.data.demo import demo_parts
from rankformer.models.closed_form import ClosedFormModel, ItemWeightSettings
from rankformer.scoring.item_matrix import DenseWeights
from rankformer.scoring.item_scorer import ItemScorer


class PureSVDSettings(ItemWeightSettings):
    """Hyperparameters of PureSVD: what `--set` changes; the string below each is its line in `rankformer models`."""

    rank: int = Field(default=12, ge=1)
    """Singular values that are kept, fewer than there are users or items."""


# `ClosedFormModel` is for what is solved; for what is trained by gradient there is `rankformer.models.trained`, where
# a network with a loss takes the place of `solve`, and the training loop, checkpoints and early stopping are given.
class PureSVD(ClosedFormModel):
    """Item weights from the largest singular values of the interaction matrix."""

    name = "pure-svd"
    title = "PureSVD"
    paper = "Cremonesi et al., Performance of Recommender Algorithms on Top-N Recommendation Tasks, RecSys 2010"
    settings_class = PureSVDSettings
    settings: PureSVDSettings
    deterministic = True  # the seed changes nothing
    has_vectors = False  # it scores by histories, not by an embedding for each user
    search_space: ClassVar = {"rank": {"low": 4, "high": 64, "log": True}}  # for `tune`

    def solve(self, graph: BipartiteGraph) -> ItemScorer:
        """Return histories and item weights; `ItemScorer` can recommend to new users, explain and compare items."""
        x = graph.interaction_matrix(self.settings.count_duplicates)  # (n, m) scipy sparse
        most = min(x.shape) - 1
        _, _, right = svds(x.astype(np.float64), k=min(self.settings.rank, most), v0=np.ones(most + 1))  # (rank, m)
        weights = (right.T @ right).astype(np.float32)  # (m, m)
        return ItemScorer(DenseWeights(torch.from_numpy(weights)), x, self.settings.count_duplicates)


def main() -> dict[str, float]:
    """Fit it from Python on the demo data, save and load it; print and return its test metrics."""
    parts = demo_parts()
    model = PureSVD(rank=16).fit(parts.train)
    result = evaluate(model, parts.test)
    print("PureSVD    ", result)
    print("popularity ", evaluate(Popularity().fit(parts.train), parts.test))
    with TemporaryDirectory() as folder:
        model.save(Path(folder) / "pure-svd", evaluation=result)
        loaded = PureSVD.load(Path(folder) / "pure-svd")
    print(loaded.recommend(["mira-001"], k=5))
    print(loaded.explain("mira-001", "book-128"))
    return result.metrics


if __name__ == "__main__":
    main()
