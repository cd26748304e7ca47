"""How good fold-in is: users kept out of training entirely, beside the same users trained in.

    python experiments/held_out_users.py --dataset epinions --model rankformer --seed 0 --out experiments/results

A tenth of the users (drawn by the seed, among those with at least five interactions in all parts together) is taken out
of every part. The rest is trained as usual, the validation part of the rest choosing when to stop. Each held-out user's
interactions, in the order of the files, are cut at 80 %: the first are the history that is handed in, the last are to
be found (mask: the history). Compared are

    fold-in      recommend(histories=...) of the model that never saw them
    trained in   the same settings trained once more with their histories among the training interactions
    popularity   the most frequent items of the training interactions
    item mean    the mean of their items' final vectors as the user's vector
"""

import argparse
import json
from pathlib import Path

import numpy as np
import torch

from rankformer.data.id_map import IdMap
from rankformer.data.interactions import Interactions
from rankformer.data.source import DataSource
from rankformer.evaluation.evaluator import evaluate
from rankformer.files import write_bytes_atomic
from rankformer.models.registry import model_class
from rankformer.scoring.base import Scorer
from rankformer.scoring.embeddings import Embeddings
from rankformer.scoring.histories import Histories
from rankformer.scoring.recommender import Recommender

METRICS = ("ndcg@20", "recall_capped@20")
SHARE_OF_USERS, SHARE_IN_HISTORY, FEWEST_INTERACTIONS = 0.1, 0.8, 5


def choose(counts: np.ndarray, seed: int) -> np.ndarray:
    """Return the held-out users, ascending: a tenth of all, drawn among those with enough interactions."""
    enough = np.flatnonzero(counts >= FEWEST_INTERACTIONS)
    return np.sort(np.random.default_rng(seed).choice(enough, round(SHARE_OF_USERS * len(counts)), replace=False))


def without(part: Interactions, users: np.ndarray) -> Interactions:
    """Return the interactions of all other users."""
    return part.rows(np.flatnonzero(~np.isin(part.users, users)))


def cut(users: np.ndarray) -> np.ndarray:
    """Return which interactions, sorted by user, are among the first 80 % of their user's; both sides keep one."""
    size = np.bincount(users)[users]
    first = np.flatnonzero(np.diff(users, prepend=-1))
    place = np.arange(len(users)) - np.repeat(first, np.diff(np.append(first, len(users))))
    return place < np.clip(np.floor(SHARE_IN_HISTORY * size), 1, size - 1)


def score(scorer: Scorer, history: Interactions, test: Interactions) -> dict[str, float]:
    """Return the metrics of a scorer of the held-out users on the interactions to be found."""
    return evaluate(Recommender(scorer, history.user_ids, history.item_ids, history), test, metrics=METRICS).metrics


def compare(dataset: str, model: str, seed: int, settings: dict[str, object]) -> dict[str, object]:
    """Return the four ways beside each other."""
    parts = DataSource(source=dataset).load()
    all_users = np.concatenate([part.users for part in (parts.train, parts.valid, parts.test)])
    all_items = np.concatenate([part.items for part in (parts.train, parts.valid, parts.test)])
    held_out = choose(np.bincount(all_users, minlength=parts.train.num_users), seed)

    rows = np.flatnonzero(np.isin(all_users, held_out))
    rows = rows[np.argsort(all_users[rows], kind="stable")]
    place = np.searchsorted(held_out, all_users[rows]).astype(np.int32)  # 0, 1, ... in the order of `held_out`
    known = cut(place)
    ids = IdMap(parts.train.user_ids.take(held_out)), parts.train.item_ids
    history, test = (Interactions(place[side], all_items[rows][side], *ids) for side in (known, ~known))

    train, valid = without(parts.train, held_out), without(parts.valid, held_out)
    fitted = model_class(model)(seed=seed, **settings).fit(train, valid)
    items = fitted.embeddings.items
    histories = Histories.of(history.users, history.items, len(held_out))
    results = {"fold-in": score(fitted.recommender.scorer.for_histories(histories), history, test)}

    both = Interactions(
        np.concatenate([train.users, held_out[history.users].astype(np.int32)]),
        np.concatenate([train.items, history.items]),
        train.user_ids,
        train.item_ids,
        name="with held-out histories",
    )
    inside = model_class(model)(seed=seed, **settings).fit(both, valid).embeddings
    results["trained in"] = score(Embeddings(inside.users[torch.from_numpy(held_out)], inside.items), history, test)
    counts = torch.from_numpy(np.bincount(train.items, minlength=train.num_items).astype(np.float32))[:, None]
    results["popularity"] = score(Embeddings(torch.ones(len(held_out), 1), counts), history, test)
    sums = torch.zeros(len(held_out), items.shape[1]).index_add_(0, histories.users, items[histories.items])
    results["item mean"] = score(Embeddings(sums / histories.sizes.to(sums)[:, None], items), history, test)
    return {
        "dataset": dataset,
        "model": model,
        "seed": seed,
        "settings": settings,
        "held_out_users": len(held_out),
        "history_pairs": len(history),
        "test_pairs": len(test),
        "results": results,
    }


def main() -> None:
    """Run one comparison and write its JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dataset", default="epinions")
    parser.add_argument("--model", default="rankformer")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, help="threads of torch")
    parser.add_argument("--out", type=Path, default=Path("experiments/results"))
    options = parser.parse_args()
    if options.threads:
        torch.set_num_threads(options.threads)
    found = compare(options.dataset, options.model, options.seed, {})
    options.out.mkdir(parents=True, exist_ok=True)
    target = options.out / f"held-out-users-{options.dataset}-{options.model}-{options.seed}.json"
    write_bytes_atomic(target, (json.dumps(found, indent=2) + "\n").encode())
    for name, metrics in found["results"].items():
        print(f"{name:12}", "  ".join(f"{metric} {value:.4f}" for metric, value in metrics.items()))


if __name__ == "__main__":
    main()
