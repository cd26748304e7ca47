"""The flags that say how to read DATA, defined once for every command that reads data."""

from collections.abc import Callable, Mapping
from functools import wraps
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from rankformer.cli.output import with_flags
from rankformer.errors import ConfigError

if TYPE_CHECKING:
    from rankformer.data.source import DataSource

DataArgument = Annotated[
    str, typer.Argument(metavar="DATA", help="A registered name, file, folder, pattern or database; - reads stdin.")
]

# setting of `DataSource` -> type, flag, placeholder and help
DATA_FLAGS: dict[str, tuple[type, str, str, str]] = {
    "format": (str, "--format", "NAME", "Format of the files, or recbole, movielens, amazon or yelp."),
    "user": (str, "--user-column", "NAME", "Column with the user ids."),
    "item": (str, "--item-column", "NAME", "Column with the item ids."),
    "time": (str, "--time-column", "NAME", "Column with the times; an empty name reads none."),
    "weight": (str, "--weight-column", "NAME", "Column with the weights; an empty name reads none."),
    "title": (str, "--title-column", "NAME", "Column with the item titles; an empty name reads none."),
    "event": (str, "--event-column", "NAME", "Column that says what happened, such as view or purchase."),
    "event_weights": (str, "--event-weights", "E=W,...", "Weight of each event; 0 drops it, other=W is for the rest."),
    "half_life": (str, "--half-life", "AGE", "Age at which an interaction counts half, such as 12h, 30d or 8w."),
    "header": (bool, "--header/--no-header", "", "Whether csv and tsv files have a header (default: detected)."),
    "delimiter": (str, "--delimiter", "TEXT", "What separates columns, such as ';' or tab (default: detected)."),
    "encoding": (str, "--encoding", "NAME", "Encoding of text, such as latin-1 (default: detected)."),
    "time_format": (str, "--time-format", "FORMAT", "How times are written, such as '%d.%m.%Y %H:%M'."),
    "on_bad_row": (str, "--on-bad-row", "stop|skip", "Stop at a row that cannot be used, or leave it out."),
    "bad_rows": (str, "--bad-rows", "FILE", "Write the first rows that were left out to a file."),
    "query": (str, "--query", "SQL", "What to select from a database."),
    "table": (str, "--table", "NAME", "What table of a database to read."),
    "max_rows": (int, "--max-rows", "N", "Most rows to read. Default: 200,000,000."),
    "max_line_bytes": (int, "--max-line-bytes", "N", "Longest line of a text file. Default: 16,777,216."),
    "max_expansion": (float, "--max-expansion", "X", "Times its size that a packed file may have. Default: 200."),
    "duplicates": (str, "--duplicates", "keep|merge", "Keep duplicate interactions or merge them into one."),
    "min_weight": (float, "--min-weight", "W", "Smallest weight that counts as an interaction."),
    "k_core": (int, "--k-core", "K", "Distinct items that each user must have, and distinct users each item."),
    "order": (str, "--order", "given|clusters", "How to number users and items inside; raw ids stay."),
    "split": (str, "--split", "KIND", "How to split one log: random, random-per-user, last or time."),
    "parts": (str, "--parts", "A,B,C", "Fractions of train, valid and test, such as 0.7,0.1,0.2."),
    "split_seed": (int, "--split-seed", "N", "Seed of the random splits."),
    "test_from": (str, "--test-from", "DATE", "With --split time: the test part begins here, such as 2026-05-01."),
    "test_days": (float, "--test-days", "N", "With --split time: the newest N days are the test part."),
}


def takes_data_options(command: Callable[..., None]) -> Callable[..., None]:
    """Return the command with the flags above; those that were given reach it as settings in its argument `options`."""
    flags: dict[str, Any] = {}
    for name, (kind, flag, metavar, help) in DATA_FLAGS.items():
        option = typer.Option(flag, metavar=metavar, help=help, rich_help_panel="How to read DATA", show_default=False)
        flags[name] = Annotated[Optional[kind], option]  # noqa: UP045

    @wraps(command)
    def given(*, options: dict[str, Any], **arguments: Any) -> None:
        chosen = {name: value for name, value in options.items() if value is not None}
        for name in chosen.keys() & _PARSERS.keys():
            chosen[name] = _PARSERS[name](chosen[name])
        command(**arguments, options=chosen)

    return with_flags(given, "options", flags)


def data_source(data: str, options: Mapping[str, Any]) -> "DataSource":
    """Return the source that DATA and the flags describe."""
    from rankformer.data.source import DataSource

    return DataSource(source=data, **options)


def _fractions(text: str) -> tuple[float, ...]:
    try:
        fractions = tuple(float(fraction) for fraction in text.split(","))
    except ValueError:
        fractions = ()
    if len(fractions) != 3:
        raise ConfigError(f"--parts {text}: expected three fractions with commas, such as 0.7,0.1,0.2")
    return fractions


def _event_weights(text: str) -> dict[str, float]:
    """Return the weights in `view=1,cart=3`; an event may hold an equals sign, not a comma."""
    parts = [part.rpartition("=") for part in text.split(",")]
    try:
        pairs = [(event.strip(), float(weight)) for event, _, weight in parts]
    except ValueError:
        pairs = []
    if not pairs or not all(event for event, _ in pairs) or len(dict(pairs)) < len(pairs):
        raise ConfigError(f"--event-weights {text}: expected each event once, such as view=1,cart=3,purchase=10")
    return dict(pairs)


_PARSERS: dict[str, Callable[[str], Any]] = {"parts": _fractions, "event_weights": _event_weights}
