"""Computes the cells that are missing, one after another or in worker processes; what is done stays done."""

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
from rankformer.research.cache import ResultCache
from rankformer.research.cells import Cell, Result
from rankformer.research.compute import Conditions, attempt

Results = dict[str, Result]


@dataclass(frozen=True)
class Step:
    """Something to tell while cells are computed.

    Attributes:
        what: a cell has begun, is done, or a note about one.
        text: the cell's label, or the note.
        done: cells that are there.
        total: cells in all.
        seconds: that the cell took, where it is done.
        result: of the cell, where it is done.
    """

    what: Literal["begun", "epoch", "done", "note"]
    text: str
    done: int = 0
    total: int = 0
    seconds: float = 0.0
    result: Result | None = None


Tell = Callable[[Step], None]


def known_results(cells: Sequence[Cell], cache: ResultCache, tell: Tell) -> Results:
    """Return the results that the cache has, by the cells' keys; files that do not count are told of."""
    results: Results = {}
    for cell in {cell.key: cell for cell in cells}.values():
        found = cache.load(cell)
        if found.problem is not None:
            tell(Step("note", found.problem))
        if found.result is not None:
            results[cell.key] = found.result
    return results


def run_cells(cells: Sequence[Cell], cache: ResultCache, conditions: Conditions, tell: Tell) -> Results:
    """Return the results by the cells' keys, computing what the cache does not have; what cannot be is told of.

    Raises:
        TrainingError: a worker process ended before its time; what was done until then is kept.
    """
    results = known_results(cells, cache, tell)
    missing = [cell for key, cell in {cell.key: cell for cell in cells}.items() if key not in results]
    total = len(results) + len(missing)
    conditions = replace(conditions, workers=max(1, min(conditions.workers, len(missing))))
    compute_all = _in_workers if conditions.workers > 1 else _in_this_process
    for cell, outcome, seconds in compute_all(missing, cache, conditions, tell):
        if isinstance(outcome, str):
            tell(Step("note", f"{cell.label} could not be computed: {outcome}"))
            continue
        results[cell.key] = outcome
        tell(Step("done", cell.label, len(results), total, seconds, outcome))
    return results


Done = tuple[Cell, Result | str, float]


def _in_this_process(cells: Sequence[Cell], cache: ResultCache, conditions: Conditions, tell: Tell) -> Iterator[Done]:
    with _threads(conditions.threads):
        for cell in cells:
            if cell.kind == "training":  # the others take moments
                tell(Step("begun", cell.label))

            def on_event(event: dict[str, Any], cell: Cell = cell) -> None:
                tell(Step("epoch", f"{cell.label}, epoch {event.get('epoch', 0)}"))

            yield cell, *attempt(cell, cache, conditions, on_event)


def _in_workers(cells: Sequence[Cell], cache: ResultCache, conditions: Conditions, tell: Tell) -> Iterator[Done]:
    # Spawned, not forked: a fork would inherit torch's threads in an unknown state.
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(conditions.workers, context, initializer=_start_worker, initargs=(conditions.threads,))
    finished = False
    try:
        futures: dict[Future[tuple[Result | str, float]], Cell] = {}
        for cell in cells:
            futures[pool.submit(attempt, cell, cache, conditions)] = cell
        for future in as_completed(futures):
            yield futures[future], *future.result()
        finished = True
    except BrokenProcessPool as error:
        raise TrainingError(
            "a worker process ended before its time, perhaps for want of memory; "
            "run the same command again to go on, with fewer --workers if it happens again"
        ) from error
    finally:
        if not finished:
            for process in multiprocessing.active_children():
                process.terminate()
        pool.shutdown(wait=finished, cancel_futures=True)


def _start_worker(threads: int) -> None:
    torch.set_num_threads(threads)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the parent ends its workers itself
    threading.Thread(target=_leave_with_parent, daemon=True).start()


def _leave_with_parent() -> None:
    """End this worker when the process that started it is gone: nobody is left to give it work."""
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
