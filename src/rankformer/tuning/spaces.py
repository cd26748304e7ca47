"""What is searched for each method, as data; written as in a file for `--space`.

    setting = {low = 0.01, high = 1.0, log = true}      # a range; log where factors matter more than differences
    setting = ["normal", "spectral"]                    # one of these

`learning_rate` and `l2` are searched for every method that has them, around its own defaults; they are not repeated.
What decides the cost of a trial (epochs, widths, batches) or the protocol (metric, patience) is never searched unless
a file asks for it: a longer or wider training would win without being a better setting.
"""

from typing import Any

_CONTRAST: dict[str, Any] = {
    "cl_weight": {"low": 0.01, "high": 1.0, "log": True},
    "cl_noise": {"low": 0.02, "high": 0.5, "log": True},
    "cl_temperature": {"low": 0.05, "high": 0.5, "log": True},
}
# Without layers that normalise, good rates lie anywhere between those for mini-batches and the paper's full-batch rate.
_WIDE_RATE: dict[str, Any] = {"low": 1e-3, "high": 1.0, "log": True}
# Without layers, or with few, the penalty is all that holds a table of a row per node; it may weigh a lot.
_WIDE_PENALTY: dict[str, Any] = {"low": 1e-5, "high": 0.1, "log": True}
_ENCODER: dict[str, Any] = {
    "dropout": {"low": 0.0, "high": 0.5},
    "weight_decay": {"low": 1e-6, "high": 1e-2, "log": True},
}

SPACES: dict[str, dict[str, Any]] = {
    "rankformer": {
        "num_layers": {"low": 1, "high": 5},
        "tau": {"low": 0.1, "high": 0.9},
        "alpha": {"low": 2.0, "high": 8.0, "log": True},
    },
    "rankformer-cl": {
        "num_layers": {"low": 1, "high": 5},
        "tau": {"low": 0.05, "high": 0.9},
        "start": ["normal", "xavier", "spectral", "least-squares"],
        **_CONTRAST,
    },
    "lightgcn": {"learning_rate": _WIDE_RATE, "l2": _WIDE_PENALTY, "num_layers": {"low": 1, "high": 4}},
    "xsimgcl": {
        "num_layers": {"low": 1, "high": 3},
        "start": ["normal", "xavier", "spectral"],
        **_CONTRAST,
    },
    "mf": {"learning_rate": _WIDE_RATE, "l2": _WIDE_PENALTY},
    "dualvae": {
        "likelihood": ["poisson", "multinomial"],
        "kl_weight": {"low": 0.03, "high": 10.0, "log": True},
        "cl_weight": {"low": 1e-3, "high": 0.1, "log": True},
        "row_scale": ["sum", "root"],
        "dropout": {"low": 0.0, "high": 0.8},
        "start": ["normal", "least-squares"],
    },
    "difformer": {
        "num_layers": {"low": 1, "high": 4},
        "alpha": {"low": 0.1, "high": 0.9},
        "start": ["normal", "spectral"],
        "use_source": [False, True],
        "use_weight": [False, True],
        **_ENCODER,
    },
    "sgformer": {
        "graph_layers": {"low": 1, "high": 4},
        "graph_weight": {"low": 0.1, "high": 0.9},
        "alpha": {"low": 0.1, "high": 0.9},
        "start": ["normal", "spectral"],
        **_ENCODER,
    },
    "gformer": {
        "num_layers": {"low": 1, "high": 6},
        "uniformity": {"low": 0.01, "high": 1.0, "log": True},
        "rationale": {"low": 0.1, "high": 10.0, "log": True},
        "independence": {"low": 1e-4, "high": 0.1, "log": True},
        "view_weight": {"low": 0.01, "high": 1.0, "log": True},
    },
    "mgformer": {
        "gamma": {"low": 0.1, "high": 10.0, "log": True},
        "mask": ["buckets", "logarithm", "none"],
        "residual": ["token", "table", "none"],
        "start": ["normal", "xavier"],
    },
    "nodeformer": {
        "num_layers": {"low": 1, "high": 3},
        "tau": {"low": 0.1, "high": 1.0, "log": True},
        "edge_weight": {"low": 0.01, "high": 1.0, "log": True},
        "layer_norm": [True, False],
        **_ENCODER,
    },
    "item-knn": {
        "neighbours": {"low": 10, "high": 500, "log": True},
        "shrinkage": {"low": 1.0, "high": 500.0, "log": True},
        "asymmetry": {"low": 0.0, "high": 1.0},
        "user_power": {"low": 0.0, "high": 1.0},
    },
    "ease": {"regularization": {"low": 5.0, "high": 5000.0, "log": True}},
    "ials": {
        "weight": {"low": 2.0, "high": 500.0, "log": True},
        "regularization": {"low": 1.0, "high": 1000.0, "log": True},
    },
    "gf-cf": {
        "factors": {"low": 16, "high": 512, "log": True},
        "low_pass_weight": {"low": 0.0, "high": 1.0},
    },
}

# Cost and protocol: left at what the user or the method says.
NOT_SEARCHED = frozenset(
    {
        "epochs",
        "schedule",
        "batch_size",
        "clip_norm",
        "validate_every",
        "patience",
        "metric",
        "embedding_dim",
        "hidden_dim",
        "decoder_dim",
        "output_dim",
        "activations",
    }
)
