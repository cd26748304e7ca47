"""What a search leaves behind for people: the best settings as a configuration, and the trials as a table."""

import csv
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from rankformer.files import atomic_path
from rankformer.models.registry import MODELS
from rankformer.runs.configuration import toml_value, write_configuration
from rankformer.tuning.objective import Trial
from rankformer.tuning.study import Study

CONFIG, TABLE, PICTURE = "best.toml", "trials.csv", "trials.png"


def write_reports(study: Study, commands: Sequence[str], data: Mapping[str, Any]) -> None:
    """Write the table, and the configuration once a trial is complete, each in one step.

    Args:
        study: the search.
        commands: how to search again and how to train, noted in the configuration.
        data: how to read DATA, for the configuration.
    """
    headings = ["trial", "state", "value", "epoch", "seconds", *study.space, "problem"]
    with atomic_path(study.objective.folder / TABLE) as temporary, open(temporary, "w", encoding="utf-8") as stream:
        writer = csv.DictWriter(stream, headings, extrasaction="ignore", lineterminator="\n")
        writer.writeheader()
        writer.writerows({**asdict(trial), "trial": trial.number, **trial.settings} for trial in study.trials)
    if study.best is not None:
        _write_configuration(study, study.best, commands, data)


def document(study: Study, finished: bool) -> dict[str, Any]:
    """Return the whole search as plain values, for `tune --json`."""
    aim, best = study.objective, study.best
    return {
        "study": str(aim.folder),
        "finished": finished,
        "model": aim.method.name,
        "data": {"name": aim.data.name, "fingerprint": aim.data.fingerprint},
        "seed": aim.seed,
        "metric": aim.metric,
        "fixed": dict(aim.fixed),
        "space": study.identity()["search space"],
        "best": None if best is None else {**best.to_json(), "settings": best_settings(study, best)},
        "config": None if best is None else str(aim.folder / CONFIG),
        "trials": [trial.to_json() for trial in study.trials],
    }


def best_settings(study: Study, best: Trial) -> dict[str, Any]:
    """Return the settings of a trial that are not the model's defaults anyway; a fit with them searches nothing."""
    aim = study.objective
    chosen = aim.method.settings_class(**{**aim.search, **aim.fixed, **best.settings})
    return chosen.model_dump(mode="json", exclude_defaults=True)


def relative_difference(study: Study) -> float | None:
    """Return by what fraction the best trial is above the defaults, None where one of them has no value."""
    first = study.trials[0].value if study.trials and study.trials[0].state == "complete" else None
    if study.best is None or not first or study.best.value is None:
        return None
    return study.best.value / first - 1


def _write_configuration(study: Study, best: Trial, commands: Sequence[str], data: Mapping[str, Any]) -> None:
    """Write a configuration for `rankformer train --config`, with the search that found it noted above."""
    aim = study.objective
    counts = Counter(trial.state for trial in study.trials)
    others = ", ".join(f"{counts[state]} {state}" for state in ("short", "pruned", "failed") if counts[state])
    comment = [
        f"{aim.method.name} on {aim.data.name}: {aim.metric} {best.value:.6f} on the validation part, "
        f"{'' if best.epoch is None else f'epoch {best.epoch}, '}trial {best.number}.",
        f"Found by {len(study.trials)} trials{f' ({others})' if others else ''}, seed {aim.seed}; "
        "the test part was not looked at.",
        f"Split {aim.data.fingerprint}",
        "",
        *(f"    {command}" for command in commands),
    ]
    known = MODELS.get(aim.method.name) is aim.method
    model = aim.method.name if known else f"{aim.method.__module__}:{aim.method.__qualname__}"
    reading = [f"{name} = {toml_value(value)}\n" for name, value in data.items() if value is not None]
    with atomic_path(aim.folder / CONFIG) as temporary:
        write_configuration(temporary, model, best_settings(study, best), seed=aim.seed, comment="\n".join(comment))
        if reading:
            with open(temporary, "a", encoding="utf-8") as stream:
                stream.writelines(["\n[data]\n", *reading])
