"""The paper's numbers, and the public ones of LightGCN's Yelp2018, as data to stand beside ours.

Chen et al., "Rankformer: A Graph Transformer for Recommendation based on Ranking Objective", WWW 2025: its tables
"Performance comparison", "ablation study" and "Runtime comparison". Its figures are drawn without numbers.
"""

from typing import NamedTuple

PAPER_DATASETS = ("ali-display", "epinions", "amazon-cds", "yelp2018")
NDCG = "ndcg@20"


class Score(NamedTuple):
    """A published pair of numbers."""

    ndcg: float
    recall: float


# Two numbers, NDCG@20 and Recall@20, for each of the datasets above in their order; "Nodeformer" did not run on two.
# The order of the rows is the table's, whose second part are the methods with a contrastive loss.
_COMPARISON: dict[str, tuple[float, ...]] = {
    "mf": (0.0586, 0.1094, 0.0512, 0.0847, 0.0717, 0.1255, 0.0402, 0.0766),
    "lightgcn": (0.0643, 0.1174, 0.0523, 0.0850, 0.0764, 0.1317, 0.0456, 0.0842),
    "dualvae": (0.0603, 0.1119, 0.0501, 0.0822, 0.0733, 0.1276, 0.0402, 0.0768),
    "mgformer": (0.0649, 0.1083, 0.0542, 0.0854, 0.0763, 0.1324, 0.0468, 0.0869),
    "nodeformer": (0.0205, 0.0358, 0.0241, 0.0446),
    "difformer": (0.0370, 0.0715, 0.0269, 0.0476, 0.0369, 0.0681, 0.0282, 0.0539),
    "sgformer": (0.0411, 0.0769, 0.0333, 0.0571, 0.0284, 0.0524, 0.0218, 0.0427),
    "rankformer": (0.0652, 0.1208, 0.0554, 0.0895, 0.0831, 0.1412, 0.0482, 0.0890),
    "xsimgcl": (0.0650, 0.1194, 0.0558, 0.0887, 0.0796, 0.1346, 0.0500, 0.0907),
    "gformer": (0.0644, 0.1176, 0.0602, 0.0978, 0.0812, 0.1366, 0.0502, 0.0897),
    "rankformer-cl": (0.0680, 0.1246, 0.0633, 0.1008, 0.0877, 0.1467, 0.0523, 0.0941),
}
CONTRASTIVE = ("xsimgcl", "gformer", "rankformer-cl")
METHODS = tuple(_COMPARISON)
_ABLATION: dict[str, tuple[float, ...]] = {
    "w/o negative pairs": (0.0535, 0.1026, 0.0409, 0.0696, 0.0744, 0.1295, 0.0429, 0.0800),
    "w/o benchmark": (0.0641, 0.1189, 0.0535, 0.0875, 0.0827, 0.1406, 0.0475, 0.0884),
    "w/o offset": (0.0539, 0.1034, 0.0544, 0.0887, 0.0732, 0.1268, 0.0349, 0.0665),
    "w/o normalization": (0.0291, 0.0527, 0.0351, 0.0617, 0.0357, 0.0596, 0.0166, 0.0321),
    "full": (0.0652, 0.1208, 0.0554, 0.0895, 0.0831, 0.1412, 0.0482, 0.0890),
}
# Seconds of whole runs on one GPU, for each dataset.
_RUNTIME: dict[str, tuple[int, int, int, int]] = {
    "LightGCN (source code)": (1687, 2773, 11694, 21651),
    "LightGCN (rewrite)": (99, 62, 91, 1132),
    "MGFormer": (1192, 1580, 3090, 2435),
    "GFormer": (2250, 3523, 6779, 36587),
    "Rankformer": (109, 149, 282, 2212),
}
# Improvement of Rankformer and Rankformer-CL over the best baseline, in per cent, NDCG@20 and Recall@20, as printed.
_IMPROVEMENT: dict[str, tuple[float, ...]] = {
    "rankformer": (0.42, 2.91, 2.17, 4.77, 8.73, 6.64, 2.90, 2.46),
    "rankformer-cl": (4.57, 4.32, 5.22, 3.11, 8.00, 7.41, 4.29, 3.71),
}


def _by_dataset(rows: dict[str, tuple[float, ...]]) -> dict[str, dict[str, Score]]:
    pairs = {name: [Score(*row[at : at + 2]) for at in range(0, len(row), 2)] for name, row in rows.items()}
    return {
        dataset: {name: scores[column] for name, scores in pairs.items() if column < len(scores)}
        for column, dataset in enumerate(PAPER_DATASETS)
    }


COMPARISON: dict[str, dict[str, Score]] = _by_dataset(_COMPARISON) | {
    "yelp2018-lightgcn": {
        "lightgcn": Score(0.0532, 0.0653),
        "xsimgcl": Score(0.0604, 0.0723),
        "ease": Score(0.0552, 0.0657),
        "gf-cf": Score(0.0571, 0.0697),
    }
}
ABLATION: dict[str, dict[str, Score]] = _by_dataset(_ABLATION)
IMPROVEMENT: dict[str, dict[str, Score]] = _by_dataset(_IMPROVEMENT)
RUNTIME: dict[str, dict[str, int]] = {
    dataset: {name: row[column] for name, row in _RUNTIME.items()} for column, dataset in enumerate(PAPER_DATASETS)
}
# Rows of the runtime table by the method here that they belong to.
RUNTIME_ROWS: dict[str, tuple[str, ...]] = {
    "lightgcn": ("LightGCN (source code)", "LightGCN (rewrite)"),
    "mgformer": ("MGFormer",),
    "gformer": ("GFormer",),
    "rankformer": ("Rankformer",),
}


class Untrained(NamedTuple):
    """What the authors' program gives for random embeddings ten layers deep."""

    tau: float
    warm_up: bool
    ndcg: float


# The paper prints no numbers for its figure. These are of its program, run without training from its own seed.
UNTRAINED: dict[str, tuple[Untrained, ...]] = {
    "ali-display": (Untrained(0.5, True, 0.0155), Untrained(0.9, True, 0.0180), Untrained(0.9, False, 0.0199)),
    "epinions": (Untrained(0.4, True, 0.0006), Untrained(0.9, True, 0.0083), Untrained(0.9, False, 0.0037)),
}
AUTHORS_SEED = 12345

NOTES = {
    "yelp2018-lightgcn": "The published numbers of yelp2018-lightgcn are not the paper's: they are public results on "
    "LightGCN's split, recall@20 divided by all test items, trained on train and valid together. Ours are trained "
    "on train alone, which costs; in that setting the LightGCN++ paper has NDCG@20 .0449 for LightGCN.",
}


def recall_metric(dataset: str) -> str:
    """Return the metric here that a dataset's published recall is: the paper divides by min(20, test interactions)."""
    return "recall@20" if dataset == "yelp2018-lightgcn" else "recall_capped@20"
