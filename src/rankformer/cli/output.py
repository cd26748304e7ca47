"""How commands are described, and what they print: tables and lines for people, one JSON document for programs."""

import inspect
import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, get_args

import typer

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text


def option(metavar: str, help: str, *names: str, **limits: Any) -> Any:
    """Return an option for `Annotated`; a flag has no metavar, and a name, or there would be a --no-name too."""
    return typer.Option(*names, metavar=metavar, help=help, show_envvar=False, **limits)


_WIDE = 240  # columns of a table that no terminal cuts

JsonFlag = Annotated[bool, option("", "Print one JSON document on stdout and nothing else.", "--json")]


def add_command(
    app: typer.Typer, command: Callable[..., None], panel: str | None = None, environment: str | None = None
) -> None:
    """Add a command described by its docstring: the help, and below `Examples:` one command line per line.

    The help of the application lists it in the panel of that name. Where `environment` is given, an option may also
    come from the variable that begins with it.
    """
    examples = (inspect.getdoc(command) or "").partition("Examples:\n")[2].splitlines()
    epilog = "\n\n".join(["Examples:", *map(str.strip, examples)])
    settings = {"auto_envvar_prefix": environment} if environment else None
    app.command(help=help_of(command), epilog=epilog, rich_help_panel=panel, context_settings=settings)(command)


def with_flags(
    command: Callable[..., None], argument: str, flags: Mapping[str, Any], defaults: Mapping[str, Any] | None = None
) -> Callable[..., None]:
    """Return a command with more flags, which reach it together as a dictionary.

    Args:
        command: the command; all its arguments may be given by name.
        argument: name of the argument that takes the dictionary.
        flags: annotation of each flag.
        defaults: what a flag is that is not given; None by default, or False.
    """
    parameters = [each for name, each in inspect.signature(command).parameters.items() if name != argument]
    for name, annotation in flags.items():
        default = (defaults or {}).get(name, False if get_args(annotation)[0] is bool else None)
        parameters.append(
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
        )
    parameters = [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in parameters]

    def with_more(**arguments: Any) -> None:
        command(**{argument: {name: arguments.pop(name) for name in flags}}, **arguments)

    with_more.__name__, with_more.__doc__ = command.__name__, command.__doc__
    with_more.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    with_more.__annotations__ = {each.name: each.annotation for each in parameters}
    return with_more


def help_of(command: Callable[..., None]) -> str:
    """Return the docstring of a command, without examples, each paragraph on one line for the terminal to wrap."""
    paragraphs = (inspect.getdoc(command) or "").partition("Examples:\n")[0].strip().split("\n\n")
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)


def console(stderr: bool = False) -> "Console":
    """Return a console on stdout or stderr that prints strings as they are, without guessing at colours in them."""
    from rich.console import Console

    return Console(stderr=stderr, highlight=False, markup=False, emoji=False)


def show(*lines: str) -> None:
    """Print lines on stdout, however long, without wrapping."""
    for line in lines:
        console().print(printable(line), soft_wrap=True)


def show_note(line: str, label: str = "note", style: str = "bold") -> None:
    """Print one labelled line on stderr, where it cannot disturb what a program reads from stdout."""
    from rich.text import Text

    text = Text.assemble((f"{label}: ", style), printable(" ".join(line.split("\n"))))
    console(stderr=True).print(text, soft_wrap=True)


def show_warning(line: str) -> None:
    """Print one line on stderr that the user should know of."""
    show_note(line, "warning", "bold yellow")


def show_json(document: Any) -> None:
    """Print one JSON document on stdout; NaN and infinities, which JSON lacks, become null."""
    finite = json.loads(json.dumps(document, default=str), parse_constant=lambda name: None)
    plain_ascii = (sys.stdout.encoding or "ascii").lower().replace("-", "") != "utf8"
    sys.stdout.write(json.dumps(finite, indent=2, ensure_ascii=plain_ascii) + "\n")


def show_table(
    headings: Sequence[str],
    rows: Iterable[Sequence[Any]],
    *,
    title: str | None = None,
    numbers: Sequence[str] = (),
    one_line: bool = False,
) -> None:
    """Print a table on stdout: strings as they are, floats with four digits; `numbers` are aligned on the right.

    With `one_line` a row never takes more than one: a terminal that is too narrow cuts the last column.
    """
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, title_justify="left", title_style="bold", pad_edge=False)
    table.title = None if title is None else _text(title)
    for heading in headings:
        table.add_column(heading, justify="right" if heading in numbers else "left", overflow="fold")
    out, cells = console(), [[_text(cell) for cell in row] for row in rows]
    if one_line:
        out.width = out.width if out.is_terminal else _WIDE
        taken = sum(max(cell.cell_len for cell in column) + 3 for column in [*zip(*cells, strict=True)][:-1])
        for row in cells:
            row[-1].truncate(max(out.width - taken - 2, 8), overflow="ellipsis")
    for row in cells:
        table.add_row(*row)
    out.print(table)


def show_metrics(heading: str, metrics: Mapping[str, float], warm: Mapping[str, float]) -> None:
    """Print metrics as a table, with those of the warm users beside them where there are cold ones."""
    if warm:
        rows = [(name, value, warm.get(name)) for name, value in metrics.items()]
        show_table(("metric", heading, "warm users"), rows, numbers=(heading, "warm users"))
    else:
        show_table(("metric", heading), metrics.items(), numbers=(heading,))


def printable(text: str) -> str:
    """Return the text with line ends, escape codes and other controls spelt out, safe to show on a terminal."""
    return "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in text)


def _text(value: Any) -> "Text":
    from rich.text import Text

    if isinstance(value, Text):
        return value
    if value is None:
        return Text("")
    return Text(f"{value:.4f}" if isinstance(value, float) else printable(str(value)))
