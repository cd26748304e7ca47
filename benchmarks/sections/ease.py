"""EASE with fewer users than items: the dual form beside the primal one, on one log."""

import time

import numpy as np

from benchmarks.measure import Result, in_fresh_process, note, paragraph, show, spread, table
from benchmarks.options import Options

TITLE = "EASE with fewer users than items"
USERS, ITEMS, INTERACTIONS = 2_000, 20_000, 120_000


def fit_ease(users: int, keep: int) -> Result:
    """Return the seconds of a whole fit, and then of the scores of the 2,000 users, in a process of its own."""
    import torch

    from rankformer.data.interactions import Interactions
    from rankformer.models.ease import EASE

    rng = np.random.default_rng(0)
    items = (ITEMS * rng.random(INTERACTIONS) ** 2).astype(np.int64)  # some are far more popular than others
    log = Interactions.from_indices(rng.integers(0, USERS, INTERACTIONS), items, users, ITEMS)
    EASE().fit(Interactions.from_indices([0, 1, 1], [0, 1, 2], 2, 3))  # warm-up
    started = time.perf_counter()
    scorer = EASE(keep=keep).fit(log).recommender.scorer
    fitted = time.perf_counter()
    for batch in torch.arange(USERS).split(200):
        scorer.scores(batch)
    return {"seconds": fitted - started, "scoring": time.perf_counter() - fitted}


def run(options: Options) -> Result:
    cases = {  # users without interactions change no weight, but the primal form is the smaller one then
        "dual, K stored": (USERS, 200, min(options.rounds, 5)),
        "dual, 199 weights per item": (USERS, 199, min(options.rounds, 3)),
        "primal, 200 weights per item": (ITEMS, 200, 1),
    }
    rows = []
    for name, (users, keep, rounds) in cases.items():
        note(f"  {name}")
        found = [in_fresh_process(fit_ease, users=users, keep=keep) for _ in range(rounds)]
        rows.append({"form": name, **{part: spread([each[part] for each in found]) for part in ("seconds", "scoring")}})
    return {"rows": rows}


def report(results: Result) -> list[str]:
    rows = [[row["form"], show(row["seconds"]), show(row["scoring"])] for row in results["rows"]]
    return [
        *paragraph(
            f"A synthetic log of {USERS:,} users, {ITEMS:,} items and {INTERACTIONS:,} interactions, each fit in a",
            "fresh process. The matrix of users K is stored where it has at most `keep` numbers per item, here from",
            f"keep={USERS**2 // ITEMS} on. The primal form is what {ITEMS:,} users get, {ITEMS - USERS:,} of them",
            "without interactions: the same weights.",
        ),
        "",
        *table(["form", "fit", f"scores of {USERS:,} users"], rows),
    ]
