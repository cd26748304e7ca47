"""Computes what is missing, one result after another or in worker processes; what is done stays done."""

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch

from rankformer.errors import TrainingError
from rankformer.research.compute import Conditions, attempt
from rankformer.research.results import Computation, Result, Results, ResultStore


@dataclass(frozen=True)
class Step:
    """Something to tell while results are computed: `text` names the computation, or is the note.

    `done` of `total` results are there; `seconds` and `result` are given where one is done.
    """

    what: Literal["begun", "epoch", "done", "note"]
    text: str
    done: int = 0
    total: int = 0
    seconds: float = 0.0
    result: Result | None = None


Tell = Callable[[Step], None]


def stored_results(computations: Sequence[Computation], store: ResultStore, tell: Tell) -> Results:
    """Return the results that are stored, by key; files that do not count are told of."""
    results: Results = {}
    for computation in {each.key: each for each in computations}.values():
        found = store.load(computation)
        if found.problem is not None:
            tell(Step("note", found.problem))
        if found.result is not None:
            results[computation.key] = found.result
    return results


def run_computations(
    computations: Sequence[Computation], store: ResultStore, conditions: Conditions, tell: Tell, fresh: bool = False
) -> Results:
    """Return the results by key, computing those that are not stored (`fresh`: all); failures are told of.

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


Done = tuple[Computation, Result | str, float]


def _in_this_process(
    computations: Sequence[Computation], store: ResultStore, conditions: Conditions, tell: Tell
) -> Iterator[Done]:
    with _threads(conditions.threads):
        for computation in computations:
            if computation.kind == "training":  # the others are short
                tell(Step("begun", computation.label))

            def on_event(event: dict[str, Any], label: str = computation.label) -> None:
                tell(Step("epoch", f"{label}, epoch {event.get('epoch', 0)}"))

            yield computation, *attempt(computation, store, conditions, on_event)


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
            futures[pool.submit(attempt, computation, store, conditions)] = computation
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


@contextmanager
def _threads(count: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
