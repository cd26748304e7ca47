"""What refitting is worth: the refitted model beside the one that was evaluated, on interactions neither has seen.

    python experiments/refit_worth.py --dataset ali-display --model rankformer --seed 0 --threads 1

A fifth of all interactions (drawn by the seed) is held out. The rest goes the way of `rankformer train`: split 7:1:2,
fitted, evaluated, refitted on all three parts. Both models are then measured on the held-out fifth, with every
interaction of the rest left out of the lists (mask=known), and the difference is tested over users.
"""

import argparse
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from rankformer.data.source import DataSource
from rankformer.evaluation.comparison import paired_test
from rankformer.evaluation.evaluator import Evaluation, evaluate
from rankformer.files import write_bytes_atomic
from rankformer.models.registry import model_class
from rankformer.runs.sequence import fit_and_evaluate

METRICS = ("ndcg@20", "recall@20")


def compare(dataset: str, model: str, seed: int) -> dict[str, object]:
    """Return both models' metrics on the held-out interactions, and what the test part said."""
    log = DataSource(source=dataset).load().whole
    held_out = np.random.default_rng(seed).random(len(log)) < 0.2
    later, log = (replace(log.rows(chosen), labels=None) for chosen in (held_out, ~held_out))
    parts = log.split(seed=seed)
    fitted = model_class(model)(seed=seed)
    outcome = fit_and_evaluate(fitted, parts)
    whole = parts.whole
    before = replace(fitted.recommender, known=whole)
    after = fitted.refitted(whole).recommender
    results: dict[str, Evaluation] = {
        name: evaluate(recommender, later, metrics=METRICS, mask="known", seed=seed)
        for name, recommender in (("before", before), ("refitted", after))
    }
    values = [results[name].per_user["ndcg@20"] for name in ("refitted", "before")]
    assert outcome.evaluation is not None
    return {
        "dataset": dataset,
        "model": model,
        "seed": seed,
        "choices": fitted.choices(),
        "interactions": {"train": len(parts.train), "whole": len(whole), "held_out": len(later)},
        "test_part": outcome.evaluation.metrics,
        "results": {name: each.to_dict() for name, each in results.items()},
        "ndcg@20_difference": paired_test(*values)._asdict(),
    }


def main() -> None:
    """Run one comparison and write its JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dataset", default="ali-display")
    parser.add_argument("--model", default="rankformer")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, help="threads of torch")
    parser.add_argument("--out", type=Path, default=Path("experiments/results"))
    options = parser.parse_args()
    if options.threads:
        torch.set_num_threads(options.threads)
    found = compare(options.dataset, options.model, options.seed)
    options.out.mkdir(parents=True, exist_ok=True)
    target = options.out / f"refit-worth-{options.dataset}-{options.model}-{options.seed}.json"
    write_bytes_atomic(target, (json.dumps(found, indent=2) + "\n").encode())
    for name, each in found["results"].items():  # type: ignore[attr-defined]
        print(f"{name:9}", "  ".join(f"{metric} {value:.4f}" for metric, value in each["metrics"].items()))


if __name__ == "__main__":
    main()
