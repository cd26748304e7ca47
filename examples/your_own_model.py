"""A model of your own as a plug-in: SLIM, outside the package, with everything that the built-in models have.

Ning and Karypis, "SLIM: Sparse Linear Methods for Top-N Recommender Systems", ICDM 2011.

    minimise   1/2 |X - X W|^2 + l2/2 |W|^2 + l1 |W|_1     with W >= 0 and diag(W) = 0
    score      y_ui = sum_j x_uj W_ji                      X: (n, m), 1 where user u has item j

A model needs a class with its facts, its settings, and one method that learns. Then it works by the name
`module:Class` wherever the module can be imported:

    export PYTHONPATH=examples
    rankformer models your_own_model:SLIM
    rankformer train demo --model your_own_model:SLIM --set l1=2 --out runs/slim
    rankformer tune demo --model your_own_model:SLIM --trials 10
    rankformer recommend runs/slim --user mira-001
    rankformer serve runs/slim

`recommend`, `explain`, `similar`, `evaluate` and `serve` need only the run folder, not this file. A package that is
installed can give its models short names, which then appear in `rankformer models`; in its pyproject.toml:

    [project.entry-points."rankformer.models"]
    slim = "your_own_model:SLIM"
"""

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import ClassVar

import numpy as np
import torch
from pydantic import Field

from rankformer import BipartiteGraph, Popularity, evaluate
from rankformer.data.demo import demo_parts
from rankformer.models.closed_form import ClosedFormModel, ItemWeightSettings
from rankformer.scoring.item_matrix import DenseWeights
from rankformer.scoring.item_scorer import ItemScorer


class SLIMSettings(ItemWeightSettings):
    """Hyperparameters of SLIM: what `--set` changes; the string below each is its line in `rankformer models`."""

    l1: float = Field(default=1.0, ge=0)
    """L1 regularization of the weights: the larger, the fewer of them are left."""
    l2: float = Field(default=10.0, gt=0)
    """L2 regularization of the weights."""
    iterations: int = Field(default=10, ge=1)
    """Passes over all items."""


# `ClosedFormModel` is for what is solved; for what is trained by gradient there is `rankformer.models.trained`, where
# a network with a loss takes the place of `solve`, and the training loop, checkpoints and early stopping are given.
class SLIM(ClosedFormModel):
    """Sparse item weights that are not negative, by coordinate descent."""

    name = "slim"
    title = "SLIM"
    paper = "Ning and Karypis, SLIM: Sparse Linear Methods for Top-N Recommender Systems, ICDM 2011"
    settings_class = SLIMSettings
    settings: SLIMSettings
    deterministic = True  # the seed changes nothing
    has_vectors = False  # scores are not inner products of embeddings
    search_space: ClassVar = {"l1": {"low": 0.1, "high": 10.0, "log": True}}  # for `tune`, which adds l2 by itself

    def solve(self, graph: BipartiteGraph) -> ItemScorer:
        """Return histories and item weights; `ItemScorer` can recommend to new users, explain and compare items."""
        x = graph.interaction_matrix(self.settings.count_duplicates)  # (n, m) scipy sparse
        gram = (x.T @ x).toarray()  # (m, m) X^T X, all that the objective needs of the data
        weights = np.zeros_like(gram)
        for _ in range(self.settings.iterations):
            # Row j holds what item j says for every item. With the other rows fixed, the best row is, for each i,
            #   W_ji = max(0, G_ji - sum_{k != j} G_jk W_ki - l1) / (G_jj + l2),   and W_jj = 0.
            for j, row in enumerate(gram):
                others = row @ weights - row[j] * weights[j]  # (m,)
                weights[j] = np.maximum(row - others - self.settings.l1, 0) / (row[j] + self.settings.l2)
                weights[j, j] = 0
        return ItemScorer(DenseWeights(torch.from_numpy(weights)), x, self.settings.count_duplicates)


def main() -> dict[str, float]:
    """Fit it from Python on the demo data, save and load it; print and return its test metrics."""
    parts = demo_parts()
    model = SLIM(l1=2.0).fit(parts.train)
    result = evaluate(model, parts.test)
    print("SLIM       ", result)
    print("popularity ", evaluate(Popularity().fit(parts.train), parts.test))
    with TemporaryDirectory() as folder:
        model.save(Path(folder) / "slim", evaluation=result)
        loaded = SLIM.load(Path(folder) / "slim")
    print(loaded.recommend(["mira-001"], k=5))
    print(loaded.explain("mira-001", "book-128"))
    return result.metrics


if __name__ == "__main__":
    main()
