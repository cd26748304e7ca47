"""`rankformer serve`: a run behind HTTP."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from rankformer.cli.model_options import use_threads
from rankformer.cli.output import option, with_flags
from rankformer.errors import ConfigError
from rankformer.serving.logs import LogFormat

ENVIRONMENT = "RANKFORMER_SERVE"  # what the variables that hold options begin with


# Settings of the service that an option of the same name sets, and their defaults.
_SETTINGS: dict[str, tuple[Any, Any]] = {
    "workers": (Annotated[int, option("N", "Run this many computations at the same time.", min=1)], 2),
    "batching": (
        Annotated[bool, option("", "Answer users who wait at the same time together.", "--batching/--no-batching")],
        True,
    ),
    "batch_size": (Annotated[int, option("N", "Answer at most this many users together.", min=1)], 64),
    "queue_size": (Annotated[int, option("N", "Let at most this many users wait; the next get a 429.", min=1)], 256),
    "max_k": (Annotated[int, option("K", "Refuse longer lists.", "--max-k", min=1)], 1000),
    "max_body_bytes": (Annotated[int, option("N", "Refuse larger request bodies.", min=1)], 2**20),
    "body_timeout": (Annotated[float, option("SECONDS", "Wait this long for a body.", min=0.001)], 10.0),
    "request_timeout": (Annotated[float, option("SECONDS", "Wait this long for an answer.", min=0.001)], 30.0),
    "compare": (
        Annotated[
            Path | None,
            option("RUN", "Show the lists of another run beside those of RUN on the page, and at /v1/compare."),
        ],
        None,
    ),
    "items": (
        Annotated[Path | None, option("FILE", "Take titles and attributes of items from this file, not RUN.")],
        None,
    ),
    "where": (
        Annotated[str | None, option("EXPR", "List only items that meet this, whatever a request asks for.")],
        None,
    ),
    "journal": (
        Annotated[Path | None, option("FOLDER", "Take events (POST /v1/events) and keep them in this folder.")],
        None,
    ),
    "access_log": (Annotated[bool, option("", "Log each request to stderr.", "--access-log/--no-access-log")], True),
}


def _takes_settings(command: Callable[..., None]) -> Callable[..., None]:
    annotations = {name: annotation for name, (annotation, _) in _SETTINGS.items()}
    return with_flags(command, "settings", annotations, {name: default for name, (_, default) in _SETTINGS.items()})


@_takes_settings
def serve(
    run: Annotated[
        Path,
        typer.Argument(metavar="RUN", help="Folder that `rankformer train --out` made.", envvar=f"{ENVIRONMENT}_RUN"),
    ],
    host: Annotated[str, option("ADDRESS", "Listen on this address.")] = "127.0.0.1",
    port: Annotated[int, option("PORT", "Listen on this port; 0 takes any free one.", min=0, max=65535)] = 8000,
    threads: Annotated[
        int | None,
        option("N", "Set the threads of one computation; half the cores by default.", min=1, callback=use_threads),
    ] = None,
    processes: Annotated[
        int, option("N", "Answer in this many processes, which share one model in memory.", min=1, max=64)
    ] = 1,
    graceful: Annotated[int, option("SECONDS", "Wait this long for open requests after a stop.", min=0)] = 10,
    allow_host: Annotated[list[str] | None, option("NAME", "Accept another host name; may be repeated.")] = None,
    item_set: Annotated[
        list[str] | None, option("NAME=FILE", "Let filters name the items in a file; may be repeated.")
    ] = None,
    log_format: Annotated[LogFormat, option("text|json", "Log lines for people, or JSON.")] = LogFormat.TEXT,
    pid_file: Annotated[Path | None, option("FILE", "Keep the process id in this file while the service runs.")] = None,
    *,
    settings: dict[str, Any],
) -> None:
    """Serve RUN over HTTP, with a page for people at /.

    RUN may be a symbolic link: point it to another run, then send SIGHUP (or POST /v1/admin/reload with the token in
    RANKFORMER_ADMIN_TOKEN), and the new model replaces the old one without a failed request. An address that other
    machines can reach needs a token in RANKFORMER_TOKEN. The files of --items and --item-set are read again
    whenever the model is: what is sold out tonight leaves the lists with the next reload.

    Every option may come from an environment variable instead: --max-k from RANKFORMER_SERVE_MAX_K, RUN from
    RANKFORMER_SERVE_RUN. The command line has precedence.

    Examples:
    rankformer serve runs/demo
    rankformer serve runs/shop --journal runs/events
    rankformer serve runs/shop --item-set available=stock.txt --where available
    rankformer serve runs/new --compare runs/old
    RANKFORMER_TOKEN=$(openssl rand -hex 24) rankformer serve runs/current --host 0.0.0.0 --port 80
    """
    from rankformer.runs.manifest import read_manifest

    try:
        from rankformer.serving.server import serve as run_service
    except ModuleNotFoundError as error:
        raise ConfigError(f"serving needs {error.name}; install it with: pip install 'rankformer[serve]'") from error
    from rankformer.serving.settings import ServiceSettings, Tokens, check_address

    files = dict(map(_named_file, item_set or ()))
    limits = ServiceSettings(allowed_hosts=tuple(allow_host or ()), item_sets=files, **settings)
    tokens = Tokens.from_environment()
    check_address(host, tokens)
    for path in filter(None, (run, limits.compare)):
        read_manifest(path)  # a wrong path is reported before anything starts
    how: dict[str, Any] = {"threads": threads, "processes": processes, "graceful_seconds": graceful}
    how |= {"log_format": log_format, "pid_path": pid_file}
    run_service(run, host=host, port=port, settings=limits, tokens=tokens, **how)


def _named_file(text: str) -> tuple[str, Path]:
    name, sign, file = text.partition("=")
    if not (sign and name.strip() and file):
        raise ConfigError(f"--item-set {text!r}: expected a name and a file, such as available=stock.txt")
    if not Path(file).is_file():
        raise ConfigError(f"--item-set {text!r}: {file} is not a file; give one with an item id per line")
    return name.strip(), Path(file)
