"""One cell, computed and kept: what the runner does in its own process or in a worker."""

import os
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from rankformer.data.interactions import Parts
from rankformer.errors import DataError, RankformerError, UserError
from rankformer.evaluation.protocol import installed_versions
from rankformer.research.cache import ResultCache
from rankformer.research.cells import Cell, Result, load_parts
from rankformer.research.lemma import check_lemma
from rankformer.research.trained import build_model, train_and_evaluate
from rankformer.research.untrained import untrained_quality

OnEvent = Callable[[dict[str, Any]], None]


@dataclass(frozen=True)
class Conditions:
    """Under which results are computed; seconds depend on them, other numbers only in their last digits.

    Attributes:
        threads: of each process.
        workers: processes that compute at the same time.
        device: where trainings compute.
    """

    threads: int = 1
    workers: int = 1
    device: str = "cpu"


class StaleError(UserError):
    """Files of the data or of the package changed after the reproduction began: nothing more can be trusted."""


def attempt(
    cell: Cell, cache: ResultCache, conditions: Conditions, on_event: OnEvent | None = None
) -> tuple[Result | str, float]:
    """Return the cell's result, or why this cell alone cannot have one, and the seconds it took."""
    started = time.perf_counter()
    try:
        outcome: Result | str = compute(cell, cache, conditions, on_event)
    except StaleError:
        raise
    except (RankformerError, MemoryError) as error:
        outcome = str(error) or type(error).__name__
    return outcome, time.perf_counter() - started


def compute(cell: Cell, cache: ResultCache, conditions: Conditions, on_event: OnEvent | None = None) -> Result:
    """Return the cell's result and keep it, or take it over from a process that computed it meanwhile."""
    with cache.locked(cell):
        known = cache.load(cell).result
        if known is not None:
            return known
        if cell.current_code != cell.code:
            raise StaleError("the package's files changed while the reproduction started; run the command again")
        result = _result_of(cell, cache, conditions, on_event)
        # What else kept the machine busy is no condition of ours, yet a reader of the seconds should know.
        result["conditions"] = {**asdict(conditions), "load": round(os.getloadavg()[0], 2)}
        result["versions"] = installed_versions()
        cache.store(cell, result)
    return result


def _result_of(cell: Cell, cache: ResultCache, conditions: Conditions, on_event: OnEvent | None) -> Result:
    if cell.kind == "lemma":
        return check_lemma(cell.settings, cell.seed)
    parts = _parts_of(cell)
    if cell.kind == "untrained":
        return untrained_quality(parts, cell.settings, cell.seed)
    model = build_model(str(cell.model), cell.settings, cell.seed, conditions.device)
    return train_and_evaluate(parts, model, cache.work_folder(cell), on_event)


def _parts_of(cell: Cell) -> Parts:
    if cell.data is None:
        raise DataError(f"{cell.label}: a {cell.kind} needs data")
    parts = load_parts(cell.data.source)
    if parts.fingerprint != cell.data.fingerprint:
        raise StaleError(f"the files of {cell.data.name} changed since the reproduction started; run the command again")
    return parts
