"""What a search leaves behind for people: the best settings as a configuration, and the trials as a table."""

import csv
import io
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from rankformer.files import write_bytes_atomic
from rankformer.tuning.study import Study
from rankformer.tuning.trials import Trial

CONFIG, TABLE, PICTURE = "best.toml", "trials.csv", "trials.png"
HEADINGS = ("trial", "state", "value", "epoch", "seconds")


class Commands(NamedTuple):
    """What to type, noted in the configuration.

    Attributes:
        search: does the same search.
        training: trains with the configuration.
    """

    search: str
    training: str


def write_reports(study: Study, commands: Commands, data: Mapping[str, Any]) -> None:
    """Write the table, and the configuration once a trial is complete, each in one step.

    Args:
        study: the search.
        commands: to be noted in the configuration.
        data: how to read DATA, for the configuration.
    """
    folder = study.objective.folder
    write_bytes_atomic(folder / TABLE, table_text(study).encode())
    if study.best is not None:
        write_bytes_atomic(folder / CONFIG, config_text(study, study.best, commands, data).encode())


def table_rows(study: Study) -> list[dict[str, Any]]:
    """Return one dictionary per trial, in order: number, state, value, epoch, seconds, settings and problem."""
    return [
        {
            "trial": trial.number,
            "state": trial.state,
            "value": trial.value,
            "epoch": trial.epoch,
            "seconds": trial.seconds,
            **{name: trial.settings[name] for name in study.space},
            "problem": trial.problem,
        }
        for trial in study.trials
    ]


def table_text(study: Study) -> str:
    """Return the trials as csv."""
    text = io.StringIO()
    writer = csv.DictWriter(text, [*HEADINGS, *study.space, "problem"], lineterminator="\n")
    writer.writeheader()
    writer.writerows(table_rows(study))
    return text.getvalue()


def best_settings(study: Study, best: Trial) -> dict[str, Any]:
    """Return the settings of a trial that are not the method's defaults anyway."""
    kind = study.objective.method.settings_class
    chosen = kind(**{**study.objective.fixed, **best.settings})
    return chosen.model_dump(mode="json", exclude_defaults=True)


def config_text(study: Study, best: Trial, commands: Commands, data: Mapping[str, Any]) -> str:
    """Return a configuration for `rankformer train --config`, with the search that found it noted above."""
    aim = study.objective
    settings = best_settings(study, best)
    # TOML has no word for none; such settings go on the command line.
    unsaid = [f" --set {name}=none" for name, value in settings.items() if value is None]
    lines = [
        f"# {aim.method.name} on {aim.data.name}: {aim.metric} {best.value:.6f} on the validation part, "
        f"{_epoch_words(best)}trial {best.number}.",
        f"# Found by {_count_words(study.trials)}, seed {aim.seed}; the test part was not looked at.",
        f"# Split {aim.data.fingerprint}",
        "#",
        f"#     {commands.search}",
        f"#     {commands.training}{''.join(unsaid)}",
        "",
        f"model = {_toml(aim.method.name)}",
        f"seed = {aim.seed}",
    ]
    for heading, table in (("settings", settings), ("data", data)):
        said = {name: value for name, value in table.items() if value is not None}
        if said or heading == "settings":
            lines += ["", f"[{heading}]", *(f"{name} = {_toml(value)}" for name, value in said.items())]
    return "\n".join(lines) + "\n"


def relative_difference(study: Study) -> float | None:
    """Return by what share the best trial is above the defaults, None where one of them has no value."""
    first = study.trials[0].value if study.trials and study.trials[0].state == "complete" else None
    if study.best is None or not first or study.best.value is None:
        return None
    return study.best.value / first - 1


def _epoch_words(best: Trial) -> str:
    return "" if best.epoch is None else f"epoch {best.epoch}, "


def _count_words(trials: Sequence[Trial]) -> str:
    counts = {state: sum(trial.state == state for trial in trials) for state in ("pruned", "failed")}
    beside = [f"{count} {state}" for state, count in counts.items() if count]
    return f"{len(trials)} trials" + (f" ({', '.join(beside)})" if beside else "")


def _toml(value: Any) -> str:
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_toml, value))}]"
    if isinstance(value, bool | str):
        # JSON's texts and truth values are TOML's, but for one control character that TOML wants escaped.
        return json.dumps(value).replace("\x7f", "\\u007f")
    return repr(value)


def picture_path(study: Study) -> Path:
    """Return where the picture goes."""
    return study.objective.folder / PICTURE
