"""`rankformer`: the application, and what becomes of its errors.

    exit 0    done
    exit 1    training could not go on, or something went wrong that should not have
    exit 2    what was asked or given has to be mended
    exit 130  interrupted

An error is one line on stderr; `--debug`, anywhere on the command line, adds the traceback.
"""

import io
import os
import sys
import traceback
from collections.abc import Sequence
from typing import Annotated

# Before torch starts its threads: two pools that spin on busy cores cost a scheduler tick per parallel region,
# measured at 8 ms where 0.3 ms are needed.
os.environ.setdefault("GOMP_SPINCOUNT", "20000")

import typer

from rankformer.cli import (
    data,
    demo,
    evaluate,
    explain,
    export,
    models,
    plan,
    recommend,
    reproduce,
    serve,
    similar,
    train,
    tune,
)
from rankformer.cli.interrupted import Interrupted
from rankformer.cli.output import show_error
from rankformer.errors import UserError

# The parser's own error, wherever this version of typer keeps it.
UsageError: type[Exception] = typer.BadParameter.__mro__[1]

USER_MISTAKES = (
    UserError,
    FileExistsError,
    FileNotFoundError,
    IsADirectoryError,
    NotADirectoryError,
    PermissionError,
)

app = typer.Typer(
    help="From an interaction log to ranked lists: Rankformer (WWW 2025) and what it is compared with.",
    epilog="Start with:  rankformer demo",
    add_completion=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)
for verb in (demo, plan, train, tune, evaluate, recommend, similar, explain, serve, export, data, models, reproduce):
    verb.register(app)


def _show_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"rankformer {version('rankformer')}")
        raise typer.Exit()


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and leave.")
    ] = False,
) -> None:
    del version


def run(argv: Sequence[str] | None = None) -> int:
    """Return the exit code of one command line, by default that of the process."""
    arguments, debug = _without_debug(list(sys.argv[1:] if argv is None else argv))
    _show_any_character()
    try:
        outcome = typer.main.get_command(app).main(
            args=arguments or ["--help"], prog_name="rankformer", standalone_mode=False
        )
        sys.stdout.flush()
    except BaseException as problem:
        return _report(problem, arguments, debug)
    return outcome if isinstance(outcome, int) else 0


def _without_debug(arguments: list[str]) -> tuple[list[str], bool]:
    """Return the arguments without `--debug`, and whether it was among them; after `--` it is a plain word."""
    end = arguments.index("--") if "--" in arguments else len(arguments)
    kept = [word for word in arguments[:end] if word != "--debug"]
    return kept + arguments[end:], len(kept) < end


def _show_any_character() -> None:
    # A title that the terminal's encoding lacks is shown as \u1234 rather than stopping the command.
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _report(problem: BaseException, arguments: list[str], debug: bool) -> int:
    """Show a problem in one line and return the exit code it stands for."""
    if isinstance(problem, BrokenPipeError | SystemExit):
        return _leave_quietly()
    if debug:
        traceback.print_exception(problem)
    if isinstance(problem, UsageError):
        show_error(_usage_line(problem, arguments))
        return 2
    if isinstance(problem, Interrupted | KeyboardInterrupt | typer.Abort):
        show_error(str(problem) or "interrupted", label="stopped")
        return 130
    show_error(_error_line(problem))
    return 2 if isinstance(problem, USER_MISTAKES) else 1


def _leave_quietly() -> int:
    """Return 1 after the reader of our output has gone (typer turns that into SystemExit)."""
    # What is still buffered must go somewhere, or Python complains about it while it shuts down.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 1


def _usage_line(problem: Exception, arguments: list[str]) -> str:
    message = problem.format_message() if hasattr(problem, "format_message") else str(problem)
    return f"{message[:1].lower()}{message[1:].rstrip('. ')} (see {_command_path(arguments)} --help)"


def _command_path(arguments: list[str]) -> str:
    """Return the words of the command that the arguments begin with, such as `rankformer data info`."""
    command, path = typer.main.get_command(app), ["rankformer"]
    for word in arguments:
        if word not in getattr(command, "commands", {}):
            break
        command = command.commands[word]  # type: ignore[attr-defined]
        path.append(word)
    return " ".join(path)


def _error_line(problem: BaseException) -> str:
    from rankformer.errors import RankformerError

    if isinstance(problem, RankformerError):
        return str(problem)
    if isinstance(problem, OSError) and problem.strerror:
        return f"{problem.filename}: {problem.strerror}" if problem.filename else problem.strerror
    return f"unexpected {type(problem).__name__}: {problem} (--debug shows where)"
