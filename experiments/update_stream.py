"""What an update is worth: five days of new interactions, each learned by an update and by a training from scratch.

    python experiments/update_stream.py --stream drift --model rankformer --seed 0 --threads 1

A stream is a past and six days. The first model is trained on the past as `rankformer train` does it: settings, epochs
and blend weights are chosen on a random split of 70, 10 and 20 percent, then everything is refitted. Day by day the
day's interactions join in two ways: `update`, a chain of five updates that keep what was chosen, and `scratch`, such a
training on everything so far (after every day, or after those of `--compare`). Both are measured on the interactions of
the next day with every known one left out of the lists (mask=known), users without any known interaction among them,
and both are timed; measuring is not.

Streams: `drift` is drawn by the seed (`drifting_days`); any registered dataset in a random order, cut into a past of
nine tenths and six equal days, for the public sets here have no times. What was followed is written after every day.
"""

import argparse
import json
import time
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch

from rankformer.data.interactions import Interactions
from rankformer.data.source import DataSource
from rankformer.evaluation.evaluator import evaluate
from rankformer.files import write_bytes_atomic
from rankformer.models.base import Model
from rankformer.models.registry import model_class

DAYS = 5
METRICS = ("ndcg@20", "recall@20")


def drifting_days(seed: int, users: int, items: int, past: int = 30) -> list[Interactions]:
    """Return a past and six days of a shop whose tastes and fashions move, with new users and items every day.

    User u takes, on about every fourth day, one to six items it does not have, by 2 x_u . y_i + p_i(day) and Gumbel
    noise. Tastes x_u (8 numbers) turn a little every day; an item appears on a day, is popular at first and fades to
    its own level within weeks. A third of the users and items are there from the start, the others come one by one.
    """
    random, days = np.random.default_rng(seed), past + DAYS + 1
    tastes, traits = random.normal(size=(users, 8)) / 8**0.5, random.normal(size=(items, 8))
    level = random.gumbel(size=items)
    born = {size: np.maximum(0, random.uniform(-days / 2, days, size)).astype(int) for size in (users, items)}
    owned = np.zeros((users, items), dtype=np.bool_)
    drawn: list[tuple[int, int, int]] = []
    for day in range(days):
        tastes = 0.995 * tastes + (1 - 0.995**2) ** 0.5 * random.normal(size=tastes.shape) / 8**0.5
        popularity = level + 2.0 * np.exp(-(day - born[items]) / 7)
        active = np.flatnonzero((born[users] <= day) & (random.random(users) < 0.25))
        scores = 2 * tastes[active] @ traits.T + popularity + random.gumbel(size=(len(active), items))
        scores[owned[active] | (born[items] > day)] = -np.inf
        for user, order in zip(active, np.argsort(-scores, axis=1), strict=True):
            for item in order[: random.integers(1, 7)]:
                owned[user, item] = True
                drawn.append((day, int(user), int(item)))
    when, who, what = np.array(drawn).T
    log = Interactions.from_indices(who, what, users, items, times=when, name="drift")
    return [log.keep(when < past), *(log.keep(when == past + day) for day in range(DAYS + 1))]


def shuffled_days(dataset: str, seed: int) -> list[Interactions]:
    """Return a dataset in a random order as a past of nine tenths and six equal days."""
    log = replace(DataSource(source=dataset).load().whole, labels=None)
    order = np.random.default_rng(seed).permutation(len(log))
    cuts = np.linspace(0.9, 1.0, DAYS + 2) * len(log)
    chosen = np.digitize(np.arange(len(log)), cuts[:-1].astype(int))
    return [log.keep(np.isin(np.arange(len(log)), order[chosen == day])) for day in range(DAYS + 2)]


def timed(work: Any) -> tuple[Any, float]:
    """Return what a function returns, and its seconds."""
    started = time.perf_counter()
    result = work()
    return result, time.perf_counter() - started


def trained(model: Model, log: Interactions) -> Model:
    """Return what `rankformer train` saves: chosen on a part of the log, refitted on all of it."""
    parts = log.split(seed=model.seed)
    return model.fit(parts.train, parts.valid, verbose=False).refitted(log, verbose=False)


def follow(
    stream: str, model: str, seed: int, settings: dict[str, Any], users: int, compared: tuple[int, ...], target: Path
) -> dict[str, Any]:
    """Return metrics and seconds of both ways after some of the days."""
    drifts = stream == "drift"
    past, *days = drifting_days(seed, users, users * 5 // 8) if drifts else shuffled_days(stream, seed)

    def fresh() -> Model:
        return model_class(model)(seed=seed, **settings)

    updated, first_seconds = timed(lambda: trained(fresh(), past))
    rows: list[dict[str, Any]] = []
    for number, (day, later) in enumerate(pairwise(days), 1):
        before = updated.recommender
        updated, update_seconds = timed(lambda model=updated, day=day: model.updated(day, verbose=False))
        if number not in compared:
            continue
        log = updated.recommender.history
        scratch, scratch_seconds = timed(lambda log=log: trained(fresh(), log))
        models = {"update": updated.recommender, "scratch": scratch.recommender, "yesterday": before}
        found = {name: evaluate(each, later, metrics=METRICS, mask="known") for name, each in models.items()}
        rows.append(
            {
                "day": number,
                "interactions": len(day),
                "new_users": updated.recommender.scorer.num_users - before.scorer.num_users,
                "new_items": updated.recommender.scorer.num_items - before.scorer.num_items,
                **{name: each.metrics for name, each in found.items()},
                "update_seconds": round(update_seconds, 3),
                "scratch_seconds": round(scratch_seconds, 3),
            }
        )
        print(rows[-1], flush=True)
        mean = {way: {name: float(np.mean([row[way][name] for row in rows])) for name in METRICS} for way in models}
        seconds = {way: sum(row[f"{way}_seconds"] for row in rows) for way in ("update", "scratch")}
        result = {
            "stream": stream,
            "model": model,
            "seed": seed,
            "settings": settings,
            "choices": updated.choices(),
            "past": {"users": past.num_users, "items": past.num_items, "interactions": len(past)},
            "first_seconds": round(first_seconds, 3),
            "days": rows,
            "mean": mean,
            "seconds": seconds,
            "quality": mean["update"]["ndcg@20"] / mean["scratch"]["ndcg@20"],
            "time": seconds["update"] / seconds["scratch"],
        }
        write_bytes_atomic(target, (json.dumps(result, indent=2) + "\n").encode())
    return result


def main() -> None:
    """Follow one stream with one model and write its JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--stream", default="drift")
    parser.add_argument("--model", default="rankformer")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--set", action="append", default=[], metavar="KEY=JSON", help="a hyperparameter")
    parser.add_argument("--users", type=int, default=4000, help="of the stream drift; it has 5/8 as many items")
    every = tuple(range(1, DAYS + 1))
    parser.add_argument("--compare", type=json.loads, default=every, help="days to train from scratch after: [1, 5]")
    parser.add_argument("--threads", type=int, help="threads of torch")
    parser.add_argument("--out", type=Path, default=Path("experiments/results"))
    options = parser.parse_args()
    if options.threads:
        torch.set_num_threads(options.threads)
    settings = {key: json.loads(value) for key, value in (each.split("=", 1) for each in options.set)}
    options.out.mkdir(parents=True, exist_ok=True)
    target = options.out / f"update-{options.stream}-{options.model}-{options.seed}.json"
    found = follow(options.stream, options.model, options.seed, settings, options.users, tuple(options.compare), target)
    mean = "  ".join(f"{way} {each['ndcg@20']:.4f}" for way, each in found["mean"].items())
    print(f"{options.stream} {options.model}: NDCG@20 {mean}; quality {found['quality']:.4f}, time {found['time']:.3f}")


if __name__ == "__main__":
    main()
