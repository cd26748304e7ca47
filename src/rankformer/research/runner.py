"""Computes what is missing, one result after another or in worker processes; each result is stored at once."""

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, NamedTuple

import torch

from rankformer.errors import DataError, RankformerError, TrainingError, UserError
from rankformer.evaluation.protocol import installed_versions
from rankformer.models.registry import model_class
from rankformer.research.lemma import check_lemma
from rankformer.research.results import Computation, Result, Results, ResultStore, load_parts, pack
from rankformer.research.untrained import untrained_quality
from rankformer.runs.sequence import fit_and_evaluate

OnEvent = Callable[[dict[str, Any]], None]


@dataclass(frozen=True)
class Conditions:
    """Threads of each process, processes at a time, and device; seconds depend on them, metrics hardly."""

    threads: int = 1
    workers: int = 1
    device: str = "cpu"


class Step(NamedTuple):
    """Something to report while results are computed: `text` names the computation, or is the note.

    `done` of `total` results are there; `seconds` and `result` are given where one is done.
    """

    what: Literal["begun", "epoch", "done", "note"]
    text: str
    done: int = 0
    total: int = 0
    seconds: float = 0.0
    result: Result | None = None


Tell = Callable[[Step], None]


class StaleError(UserError):
    """Files of the data changed after the command started: nothing more can be trusted."""


def stored_results(computations: Sequence[Computation], store: ResultStore, tell: Tell) -> Results:
    """Return the results that are stored, by key; files that do not count are reported."""
    results: Results = {}
    for key, computation in {each.key: each for each in computations}.items():
        found = store.load(computation)
        if found.problem is not None:
            tell(Step("note", found.problem))
        if found.result is not None:
            results[key] = found.result
    return results


def run_computations(
    computations: Sequence[Computation], store: ResultStore, conditions: Conditions, tell: Tell, fresh: bool = False
) -> Results:
    """Return the results by key, computing those that are not stored (`fresh`: all); failures are reported.

    Raises:
        TrainingError: a worker process died; what was done until then is stored.
    """
    wanted = {each.key: each for each in computations}
    if fresh:
        for computation in wanted.values():
            store.remove(computation)
    results = stored_results(computations, store, tell)
    missing = [computation for key, computation in wanted.items() if key not in results]
    conditions = replace(conditions, workers=max(1, min(conditions.workers, len(missing))))
    compute_all = _in_workers if conditions.workers > 1 else _in_this_process
    for computation, outcome, seconds in compute_all(missing, store, conditions, tell):
        if isinstance(outcome, str):
            tell(Step("note", f"{computation.label} could not be computed: {outcome}"))
            continue
        results[computation.key] = outcome
        tell(Step("done", computation.label, len(results), len(wanted), seconds, outcome))
    return results


def compute(
    computation: Computation, store: ResultStore, conditions: Conditions, on_event: OnEvent | None = None
) -> Result:
    """Return the result and store it, or take over what another process has stored meanwhile."""
    with store.locked(computation):
        known = store.load(computation).result
        if known is not None:
            return known
        if computation.kind == "lemma":
            result = check_lemma(computation.settings, computation.seed)
        else:
            result = _on_data(computation, store, conditions, on_event)
        # Other load on the machine is not a condition of ours, yet a reader of the seconds should know.
        result["conditions"] = {**asdict(conditions), "load": round(os.getloadavg()[0], 2)}
        result["versions"] = installed_versions()
        return store.save(computation, result)


def _on_data(computation: Computation, store: ResultStore, conditions: Conditions, on_event: OnEvent | None) -> Result:
    """Return metrics, values of single users and history of a training; "failed" says why it stopped early."""
    data, settings = computation.data, computation.settings
    if data is None:
        raise DataError(f"{computation.label}: no data was given")
    parts = load_parts(data.source)
    if parts.fingerprint != data.fingerprint:
        raise StaleError(f"the files of {data.name} changed since the command started; run it again")
    if computation.kind == "untrained":
        return untrained_quality(parts, settings, computation.seed)
    outcome = fit_and_evaluate(
        model_class(str(computation.model))(seed=computation.seed, device=conditions.device, **settings),
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


def _attempt(
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


Done = tuple[Computation, Result | str, float]


def _in_this_process(
    computations: Sequence[Computation], store: ResultStore, conditions: Conditions, tell: Tell
) -> Iterator[Done]:
    torch.set_num_threads(conditions.threads)
    for computation in computations:
        if computation.kind == "training":  # the others are short
            tell(Step("begun", computation.label))

        def on_event(event: dict[str, Any], label: str = computation.label) -> None:
            tell(Step("epoch", f"{label}, epoch {event.get('epoch', 0)}"))

        yield computation, *_attempt(computation, store, conditions, on_event)


def _in_workers(
    computations: Sequence[Computation], store: ResultStore, conditions: Conditions, tell: Tell
) -> Iterator[Done]:
    # Spawned, not forked: a fork would inherit torch's threads in an unknown state.
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(conditions.workers, context, initializer=_start_worker, initargs=(conditions.threads,))
    finished = False
    try:
        futures: dict[Future[tuple[Result | str, float]], Computation] = {}
        for computation in computations:
            futures[pool.submit(_attempt, computation, store, conditions)] = computation
        for future in as_completed(futures):
            yield futures[future], *future.result()
        finished = True
    except BrokenProcessPool as error:
        raise TrainingError(
            "a worker process died, perhaps for lack of memory; "
            "run the same command again to continue, with fewer --workers if it happens again"
        ) from error
    finally:
        if not finished:
            for process in multiprocessing.active_children():
                process.terminate()
        pool.shutdown(wait=finished, cancel_futures=True)


def _start_worker(threads: int) -> None:
    torch.set_num_threads(threads)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the parent ends its workers itself
    threading.Thread(target=_exit_with_parent, daemon=True).start()


def _exit_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
