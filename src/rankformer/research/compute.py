"""One computation carried out and its result stored: what the runner does in its own process or in a worker."""

import os
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from rankformer.data.interactions import Parts
from rankformer.errors import DataError, RankformerError, UserError
from rankformer.evaluation.protocol import installed_versions
from rankformer.models.registry import model_class
from rankformer.research.lemma import check_lemma
from rankformer.research.results import Computation, Result, ResultStore, load_parts
from rankformer.research.statistics import pack
from rankformer.research.untrained import untrained_quality
from rankformer.runs.sequence import fit_and_evaluate

OnEvent = Callable[[dict[str, Any]], None]


@dataclass(frozen=True)
class Conditions:
    """Threads of each process, processes at a time, and device; seconds depend on them, metrics hardly."""

    threads: int = 1
    workers: int = 1
    device: str = "cpu"


class StaleError(UserError):
    """Files of the data changed after the command started: nothing more can be trusted."""


def attempt(
    computation: Computation, store: ResultStore, conditions: Conditions, on_event: OnEvent | None = None
) -> tuple[Result | str, float]:
    """Return the result, or why this computation alone cannot have one, and the seconds it took."""
    started = time.perf_counter()
    try:
        outcome: Result | str = compute(computation, store, conditions, on_event)
    except StaleError:
        raise
    except (RankformerError, MemoryError) as error:
        outcome = str(error) or type(error).__name__
    return outcome, time.perf_counter() - started


def compute(
    computation: Computation, store: ResultStore, conditions: Conditions, on_event: OnEvent | None = None
) -> Result:
    """Return the result and store it, or take over what another process has stored meanwhile."""
    with store.locked(computation):
        known = store.load(computation).result
        if known is not None:
            return known
        result = _result_of(computation, store, conditions, on_event)
        # Other load on the machine is not a condition of ours, yet a reader of the seconds should know.
        result["conditions"] = {**asdict(conditions), "load": round(os.getloadavg()[0], 2)}
        result["versions"] = installed_versions()
        return store.save(computation, result)


def _result_of(
    computation: Computation, store: ResultStore, conditions: Conditions, on_event: OnEvent | None
) -> Result:
    if computation.kind == "lemma":
        return check_lemma(computation.settings, computation.seed)
    parts = _parts_of(computation)
    if computation.kind == "untrained":
        return untrained_quality(parts, computation.settings, computation.seed)
    return _trained(computation, parts, store, conditions, on_event)


def _trained(
    computation: Computation, parts: Parts, store: ResultStore, conditions: Conditions, on_event: OnEvent | None
) -> Result:
    """Return metrics, values of single users and history of a training; "failed" says why it stopped early."""
    method = model_class(str(computation.model))
    outcome = fit_and_evaluate(
        method(seed=computation.seed, device=conditions.device, **computation.settings),
        parts,
        folder=store.work_folder(computation),
        resume=True,
        on_event=on_event,
        keep_best_on_failure=True,
        restart_if_damaged=True,
    )
    result = {"failed": outcome.failure, "history": asdict(outcome.history)}
    if outcome.evaluation is None:
        return {**result, "metrics": None, "per_user": {}, "protocol": None}
    per_user = {name: pack(values) for name, values in outcome.evaluation.per_user.items()}
    return {**result, **outcome.evaluation.to_dict(), "per_user": per_user}


def _parts_of(computation: Computation) -> Parts:
    data = computation.data
    if data is None:
        raise DataError(f"{computation.label}: no data was given")
    parts = load_parts(data.source)
    if parts.fingerprint != data.fingerprint:
        raise StaleError(f"the files of {data.name} changed since the command started; run it again")
    return parts
