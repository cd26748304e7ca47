"""The flags that say how to read DATA, defined once and worn by every command that reads data."""

import inspect
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rankformer.errors import ConfigError

if TYPE_CHECKING:
    from rankformer.data.source import DataSource

PANEL = "How to read DATA"

DataArgument = Annotated[
    str, typer.Argument(metavar="DATA", help="A registered name, a folder with train/valid/test files, or one file.")
]


def _flag(*names: str, help: str, metavar: str | None = None) -> Any:
    return typer.Option(*names, help=help, metavar=metavar, rich_help_panel=PANEL, show_default=False)


def data_options(
    format: Annotated[
        str | None, _flag("--format", metavar="NAME", help="Format of the files when their extension does not say.")
    ] = None,
    user: Annotated[str | None, _flag("--user-column", metavar="NAME", help="Column with the user ids.")] = None,
    item: Annotated[str | None, _flag("--item-column", metavar="NAME", help="Column with the item ids.")] = None,
    time: Annotated[
        str | None, _flag("--time-column", metavar="NAME", help="Column with the times; an empty name reads none.")
    ] = None,
    weight: Annotated[
        str | None, _flag("--weight-column", metavar="NAME", help="Column with the weights; an empty name reads none.")
    ] = None,
    title: Annotated[
        str | None,
        _flag("--title-column", metavar="NAME", help="Column with readable item titles; an empty name reads none."),
    ] = None,
    header: Annotated[
        bool | None,
        _flag(
            "--header/--no-header",
            metavar="",
            help="Whether csv and tsv files start with column names (looked for if unsaid).",
        ),
    ] = None,
    duplicates: Annotated[
        str | None, _flag("--duplicates", metavar="keep|merge", help="Whether repeated pairs stay or become one.")
    ] = None,
    min_weight: Annotated[
        float | None, _flag("--min-weight", metavar="W", help="Smallest weight that counts as an interaction.")
    ] = None,
    k_core: Annotated[
        int | None, _flag("--k-core", metavar="K", help="Distinct partners that each user and item must have.")
    ] = None,
    split: Annotated[
        str | None,
        _flag(
            "--split", metavar="KIND", help="How one log becomes three parts: random, random-per-user, last or time."
        ),
    ] = None,
    parts: Annotated[
        str | None, _flag("--parts", metavar="A,B,C", help="Shares of train, valid and test, such as 0.7,0.1,0.2.")
    ] = None,
    split_seed: Annotated[int | None, _flag("--split-seed", metavar="N", help="Chooses the random splits.")] = None,
) -> dict[str, Any]:
    """Return the given options as settings of `DataSource`; those not given are left out."""
    given = {name: value for name, value in locals().items() if value is not None}
    if parts is not None:
        given["parts"] = _shares(parts)
    return given


def takes_data_options(command: Callable[..., None]) -> Callable[..., None]:
    """Return the command with the flags of `data_options`; it receives them as its argument `options`."""
    flags = inspect.signature(data_options).parameters
    own = {name: each for name, each in inspect.signature(command).parameters.items() if name != "options"}

    def with_options(**arguments: Any) -> None:
        options = data_options(**{name: arguments.pop(name) for name in flags})
        command(**arguments, options=options)

    parameters = [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in (*own.values(), *flags.values())]
    with_options.__name__, with_options.__doc__ = command.__name__, command.__doc__
    with_options.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    with_options.__annotations__ = {each.name: each.annotation for each in parameters}
    return with_options


def data_source(data: str, options: Mapping[str, Any]) -> "DataSource":
    """Return the source that DATA and the flags describe."""
    from rankformer.data.source import DataSource

    return DataSource(source=data, **options)


def _shares(text: str) -> tuple[float, ...]:
    try:
        shares = tuple(float(share) for share in text.split(","))
    except ValueError:
        shares = ()
    if len(shares) != 3:
        raise ConfigError(f"--parts {text}: expected three shares with commas, such as 0.7,0.1,0.2")
    return shares
