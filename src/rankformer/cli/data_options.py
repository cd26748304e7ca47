"""The flags that say how to read DATA, defined once for every command that reads data."""

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


def _flag(name: str, metavar: str, help: str) -> Any:
    return typer.Option(name, metavar=metavar, help=help, rich_help_panel=PANEL, show_default=False)


def _column(role: str, help: str) -> Any:
    return _flag(f"--{role}-column", "NAME", f"Column with the {help}.")


def data_options(
    format: Annotated[
        str | None, _flag("--format", "NAME", "Format of the files when their extension does not say.")
    ] = None,
    user: Annotated[str | None, _column("user", "user ids")] = None,
    item: Annotated[str | None, _column("item", "item ids")] = None,
    time: Annotated[str | None, _column("time", "times; an empty name reads none")] = None,
    weight: Annotated[str | None, _column("weight", "weights; an empty name reads none")] = None,
    title: Annotated[str | None, _column("title", "item titles; an empty name reads none")] = None,
    header: Annotated[
        bool | None, _flag("--header/--no-header", "", "Whether csv and tsv files have a header (default: detected).")
    ] = None,
    duplicates: Annotated[
        str | None, _flag("--duplicates", "keep|merge", "Keep duplicate interactions or merge them into one.")
    ] = None,
    min_weight: Annotated[
        float | None, _flag("--min-weight", "W", "Smallest weight that counts as an interaction.")
    ] = None,
    k_core: Annotated[
        int | None, _flag("--k-core", "K", "Distinct items that each user must have, and distinct users each item.")
    ] = None,
    split: Annotated[
        str | None, _flag("--split", "KIND", "How to split one log: random, random-per-user, last or time.")
    ] = None,
    parts: Annotated[
        str | None, _flag("--parts", "A,B,C", "Shares of train, valid and test, such as 0.7,0.1,0.2.")
    ] = None,
    split_seed: Annotated[int | None, _flag("--split-seed", "N", "Seed of the random splits.")] = None,
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
