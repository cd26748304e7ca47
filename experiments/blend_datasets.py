"""The blend beside each of its members on datasets of unlike density, all on the test part.

    python experiments/blend_datasets.py --datasets ali-display,epinions --variants full,half --seed 0

Variants of a dataset: `full` (its own parts), `half` and `quarter` (that fraction of all its interactions, drawn by the
seed) and `core` (users and items with at least ten interactions, or as many as leave any); all but `full` are split
7:1:2. Every member that took part in the choice of weights is measured, also those of weight 0. Lists leave out the
training interactions; `test_beside` is the blend's value where they leave out those of validation, too. Each result is
written as soon as it is there and not computed again.
"""

import argparse
import contextlib
import json
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from rankformer.data.interactions import Interactions
from rankformer.data.parts import Parts
from rankformer.data.source import DataSource
from rankformer.errors import DataError
from rankformer.evaluation.evaluator import evaluate
from rankformer.files import write_bytes_atomic
from rankformer.graph.bipartite import BipartiteGraph
from rankformer.models.blend import Blend
from rankformer.runs.training_log import blend_report
from rankformer.scoring.base import Scorer
from rankformer.scoring.blend import Weighed
from rankformer.training.context import FitContext

THINNED = {"half": 0.5, "quarter": 0.25}


def parts_of(dataset: str, variant: str, seed: int) -> Parts:
    """Return the parts of a variant of a dataset."""
    parts = DataSource(source=dataset).load()
    if variant == "full":
        return parts
    log = parts.whole
    if variant == "core":
        log = densest(replace(log, labels=None))
    else:
        kept = np.random.default_rng(seed).random(len(log)) < THINNED[variant]
        log = replace(log.rows(kept), labels=None)
    return log.split(seed=seed)


def densest(log: Interactions, most: int = 10) -> Interactions:
    """Return the k-core of the largest k up to `most` that has an interaction."""
    for k in range(most, 1, -1):
        with contextlib.suppress(DataError):
            return log.k_core(k)
    return log


class WholeBlend(Blend):
    """A blend that also keeps the members of weight 0, as `candidates`."""

    candidates: Sequence[Scorer] = ()

    def learn(self, graph: BipartiteGraph, context: FitContext) -> Scorer:
        """Learn as a blend does."""
        weigh = context.weigh
        assert weigh is not None

        def noted(scorers: Sequence[Scorer]) -> Weighed:
            self.candidates = [scorer.cpu() for scorer in scorers]
            return weigh(scorers)

        return super().learn(graph, replace(context, weigh=noted))


def measure(dataset: str, variant: str, seed: int, budget: float) -> dict[str, Any]:
    """Return the test NDCG@20 of the blend and of each member alone."""
    parts, started = parts_of(dataset, variant, seed), time.perf_counter()
    blend = WholeBlend(seed=seed, budget=budget).fit(parts.train, parts.valid, verbose=False)
    seconds = time.perf_counter() - started
    report = blend_report(blend.log)
    assert report is not None
    labels = [each["label"] for event in blend.log if event["event"] == "blend" for each in event["members"]]
    scorers = dict(zip(labels, blend.candidates, strict=True))

    def tested(recommender: Any, **options: Any) -> float:
        return evaluate(recommender, parts.test, metrics="ndcg@20", **options).metrics["ndcg@20"]

    members = {
        each["label"]: {**each, "test": tested(replace(blend.recommender, scorer=scorers[each["label"]]))}
        for each in report["members"]
    }
    return {
        "dataset": dataset,
        "variant": variant,
        "seed": seed,
        "interactions": len(parts.train),
        "users": parts.train.num_users,
        "items": parts.train.num_items,
        "seconds": round(seconds, 1),
        "blend": {
            "valid": report["value"],
            "test": tested(blend),
            "test_beside": tested(blend, mask="train+valid", valid=parts.valid),
        },
        "members": members,
        "refused": report["refused"],
    }


def main() -> None:
    """Measure what was asked for and write one JSON file each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--datasets", default="demo,ali-display,epinions,yelp2018-lightgcn")
    parser.add_argument("--variants", default="full,half,quarter,core")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--budget", type=float, default=900.0)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--out", type=Path, default=Path("experiments/results"))
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    for dataset in arguments.datasets.split(","):
        for variant in arguments.variants.split(",") if dataset != "demo" else ["full"]:
            path = arguments.out / f"blend-{dataset}-{variant}-{arguments.seed}.json"
            if not path.exists():
                found = measure(dataset, variant, arguments.seed, arguments.budget)
                write_bytes_atomic(path, (json.dumps(found, indent=1) + "\n").encode())
            found = json.loads(path.read_text(encoding="utf-8"))
            name, best = max(found["members"].items(), key=lambda each: each[1]["test"])
            lead = 100 * (found["blend"]["test"] / best["test"] - 1)
            print(
                f"{dataset} {variant}: blend {found['blend']['test']:.4f}, best member {name} {best['test']:.4f}, "
                f"{lead:+.1f} %, {found['seconds']} s",
                flush=True,
            )


if __name__ == "__main__":
    main()
