"""The flags that say how to read DATA, defined once for every command that reads data."""

import inspect
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

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
    "split": (str, "--split", "KIND", "How to split one log: random, random-per-user, last or time."),
    "parts": (str, "--parts", "A,B,C", "Fractions of train, valid and test, such as 0.7,0.1,0.2."),
    "split_seed": (int, "--split-seed", "N", "Seed of the random splits."),
}


def takes_data_options(command: Callable[..., None]) -> Callable[..., None]:
    """Return the command with the flags above; those that were given reach it as settings in its argument `options`."""
    parameters = [each for name, each in inspect.signature(command).parameters.items() if name != "options"]
    for name, (kind, flag, metavar, help) in DATA_FLAGS.items():
        option = typer.Option(flag, metavar=metavar, help=help, rich_help_panel="How to read DATA", show_default=False)
        annotation: Any = Annotated[Optional[kind], option]  # noqa: UP045
        parameters.append(inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation))
    parameters = [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in parameters]

    def with_options(**arguments: Any) -> None:
        options = {name: arguments.pop(name) for name in DATA_FLAGS}
        if options["parts"] is not None:
            options["parts"] = _fractions(options["parts"])
        command(**arguments, options={name: value for name, value in options.items() if value is not None})

    with_options.__name__, with_options.__doc__ = command.__name__, command.__doc__
    with_options.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    with_options.__annotations__ = {each.name: each.annotation for each in parameters}
    return with_options


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
