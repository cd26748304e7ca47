"""`rankformer`: the application, and how it reports errors.

    exit 0    done
    exit 1    training could not continue, or something went wrong that should not have
    exit 2    the command or its input has to be fixed
    exit 130  interrupted

An error is one line on stderr; `--debug`, anywhere on the command line, adds the traceback.
"""

import errno
import io
import logging
import os
import signal
import sys
import threading
import time
import traceback
import warnings
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from importlib import import_module
from typing import Annotated, Any

# Before torch starts its threads: two pools that spin on busy cores cost a scheduler tick per parallel region,
# measured at 8 ms where 0.3 ms are needed.
os.environ.setdefault("GOMP_SPINCOUNT", "20000")

import typer

from rankformer.cli import ranks
from rankformer.cli.interrupted import Interrupted
from rankformer.cli.output import add_command, option, show_note, show_warning
from rankformer.cli.progress import Heartbeat, on_terminal
from rankformer.errors import IgnoredWeightsWarning, RankformerError, UserError, is_out_of_memory

# The parser's own error, wherever this version of typer keeps it.
UsageError: type[Exception] = typer.BadParameter.__mro__[1]

MISSING_OR_IN_THE_WAY = (FileExistsError, FileNotFoundError, IsADirectoryError, NotADirectoryError, PermissionError)
# A name too long, links in a circle, a file system that is read-only: for the user to put right as well.
FOR_THE_USER = (errno.ENAMETOOLONG, errno.ELOOP, errno.EROFS)
NO_MEMORY = "not enough memory; use a smaller dimension, batch_size or log (rankformer plan shows what is needed)"

# The modules of this package that hold a command of their name, by task and in the order of the help; `data` is a group
# and registers its own.
MODULES = {
    "Start": ("demo", "data", "models"),
    "Train": ("plan", "train", "update", "tune", "evaluate", "compare"),
    "Use a trained model": ("recommend", "similar", "explain", "serve", "export"),
    "Research": ("reproduce",),
}

app = typer.Typer(
    help="From an interaction log to ranked lists: Rankformer (WWW 2025) and what it is compared with.",
    epilog="Start with:  rankformer demo",
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)
for task, modules in MODULES.items():
    for name in modules:
        module = import_module(f"rankformer.cli.{name}")
        if hasattr(module, "register"):
            module.register(app, task)
        else:
            add_command(app, getattr(module, name), task, getattr(module, "ENVIRONMENT", None))


class _Warnings(logging.Handler):
    """Shows what reading the data and tracking warn of, as every other warning."""

    def emit(self, record: logging.LogRecord) -> None:
        show_warning(record.getMessage())


def _listen() -> None:
    """Show the warnings of these parts; a library that sets up logging anew may have silenced them."""
    for part in ("data", "tracking"):
        logger = logging.getLogger(f"rankformer.{part}")
        logger.handlers, logger.disabled = [_Warnings()], False


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"rankformer {version('rankformer')}")
        raise typer.Exit()


@app.callback()
def _options(
    version: Annotated[bool, option("", "Show the version.", "--version", callback=_version, is_eager=True)] = False,
) -> None:
    del version


def run(argv: Sequence[str] | None = None) -> int:
    """Return the exit code of one command line, by default that of the process."""
    words = list(sys.argv[1:] if argv is None else argv)
    end = words.index("--") if "--" in words else len(words)  # after which --debug is a plain word
    debug = "--debug" in words[:end]
    arguments = [word for word in words[:end] if word != "--debug"] + words[end:]
    ranks.command_line[:] = arguments
    _listen()
    ended = ranks.ended_before()
    if ended is not None:
        return ended
    for stream in (sys.stdout, sys.stderr):
        # A title that the terminal's encoding lacks is shown as \u1234 rather than stopping the command.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    if argv is None and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _Interrupt.handle)
        sys.unraisablehook = _Interrupt.unraisable
    Heartbeat.last_line = time.monotonic()
    # The log of a service may be JSON; of several ranks the first tells.
    silent = on_terminal() or arguments[:1] == ["serve"] or ranks.is_later_rank()
    try:
        for word in arguments:
            if not word.isprintable() and any("\udc80" <= letter <= "\udcff" for letter in word):
                raise UserError(f"{word[:80]!r} is not text in UTF-8, which ids and names of files must be")
        with _own_warnings(), nullcontext() if silent else Heartbeat(lambda: _command_path(arguments)):
            command = typer.main.get_command(app)
            outcome = command.main(args=arguments or ["--help"], prog_name="rankformer", standalone_mode=False)
        sys.stdout.flush()
    except BaseException as problem:
        _Interrupt.ignore()
        return _report(problem, arguments, debug)
    finally:
        _Interrupt.ignore()
    return outcome if isinstance(outcome, int) else 0


class _Interrupt(KeyboardInterrupt):
    """Stops the command at the first Ctrl-C; a second would only interrupt the stopping, with a traceback.

    Python drops an exception that arrives in a finalizer or another callback of its own, and a library may do the same:
    then nothing is being stopped. Where Python says so it is raised again, otherwise the next Ctrl-C is heard.
    """

    raised: "Callable[[], _Interrupt | None]" = lambda: None  # what the last one raised, as long as it is handled

    @staticmethod
    def handle(number: int, frame: object) -> None:
        """Raise one, unless the last is still being handled."""
        del number, frame
        if _Interrupt.raised() is None:
            problem = _Interrupt()
            _Interrupt.raised = weakref.ref(problem)
            try:
                raise problem
            finally:
                del problem  # or the frame in its traceback would keep it

    @staticmethod
    def ignore() -> None:
        """Hear no more of them: the command has ended."""
        if signal.getsignal(signal.SIGINT) is _Interrupt.handle:
            signal.signal(signal.SIGINT, signal.SIG_IGN)

    @staticmethod
    def raise_again() -> None:
        """Send another one when the last is no longer handled: Python is out of the callback by then."""
        while _Interrupt.raised() is not None:
            time.sleep(0.01)
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    @staticmethod
    def unraisable(dropped: "sys.UnraisableHookArgs") -> None:
        """Raise one that Python drops again, a little later; show others as Python does."""
        if issubclass(dropped.exc_type, _Interrupt):
            threading.Thread(target=_Interrupt.raise_again, daemon=True).start()
        else:
            sys.__unraisablehook__(dropped)


@contextmanager
def _own_warnings() -> Iterator[None]:
    """Show each of this package's own warnings once, in one line; others as Python does."""
    shown = set[str]()

    def show(message: Warning | str, category: type[Warning], *place: Any, **more: Any) -> None:
        if not issubclass(category, IgnoredWeightsWarning):
            others(message, category, *place, **more)
        elif str(message) not in shown:
            shown.add(str(message))
            show_warning(str(message))

    with warnings.catch_warnings():
        others = warnings.showwarning
        warnings.simplefilter("always", IgnoredWeightsWarning)
        warnings.showwarning = show
        yield


def _report(problem: BaseException, arguments: list[str], debug: bool) -> int:
    """Show a problem in one line and return the exit code it stands for."""
    if isinstance(problem, BrokenPipeError | SystemExit):
        # The reader of our output has gone (typer turns that into SystemExit). What is still buffered must go
        # somewhere, or Python complains about it while it shuts down.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    if debug:
        traceback.print_exception(problem)
    if isinstance(problem, Interrupted | KeyboardInterrupt | typer.Abort):
        show_note(str(problem) or "interrupted", "stopped", "bold red")
        return 130
    of_the_user = isinstance(problem, OSError) and problem.errno in FOR_THE_USER
    code = 2 if of_the_user or isinstance(problem, (UsageError, UserError, *MISSING_OR_IN_THE_WAY)) else 1
    code, line = (1, NO_MEMORY) if is_out_of_memory(problem) else (code, _error_line(problem, arguments))
    if not ranks.leave_to_parent(problem, line, code):
        show_note(line, "error", "bold red")
    return code


def _error_line(problem: BaseException, arguments: list[str]) -> str:
    if isinstance(problem, UsageError):
        message = problem.format_message().rstrip(". ")  # type: ignore[attr-defined]
        return f"{message[:1].lower()}{message[1:]} (see {_command_path(arguments)} --help)"
    if isinstance(problem, RankformerError):
        return str(problem)
    if isinstance(problem, OSError) and problem.strerror:
        name = str(problem.filename or "")
        return f"{name if len(name) < 300 else name[:300] + '...'}: {problem.strerror}" if name else problem.strerror
    return f"unexpected {type(problem).__name__}: {problem} (--debug shows where)"


def _command_path(arguments: list[str]) -> str:
    """Return the words of the command that the arguments begin with, such as `rankformer data info`."""
    command, path = typer.main.get_command(app), ["rankformer"]
    for word in arguments:
        if word not in getattr(command, "commands", {}):
            break
        command = command.commands[word]  # type: ignore[attr-defined]
        path.append(word)
    return " ".join(path)
