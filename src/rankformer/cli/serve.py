"""`rankformer serve`: a run behind HTTP."""

from pathlib import Path
from typing import Annotated

import typer

from rankformer.cli.evaluate import RunArgument
from rankformer.cli.model_options import use_threads
from rankformer.cli.output import show
from rankformer.errors import ConfigError


def serve(
    run: RunArgument,
    host: Annotated[str, typer.Option(metavar="ADDRESS", help="Listen on this address.")] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(metavar="PORT", min=0, max=65535, help="Listen on this port; 0 takes any free one.")
    ] = 8000,
    threads: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=1,
            callback=use_threads,
            help="Set the threads of one computation; half the cores by default.",
        ),
    ] = None,
    workers: Annotated[int, typer.Option(metavar="N", min=1, help="Run this many computations at the same time.")] = 2,
    batching: Annotated[
        bool,
        typer.Option("--batching/--no-batching", metavar="", help="Answer users who wait at the same time together."),
    ] = True,
    batch_size: Annotated[int, typer.Option(metavar="N", min=1, help="Answer at most this many users together.")] = 64,
    queue_size: Annotated[
        int, typer.Option(metavar="N", min=1, help="Let at most this many users wait; the next get a 429.")
    ] = 256,
    max_k: Annotated[int, typer.Option("--max-k", metavar="K", min=1, help="Refuse longer lists.")] = 1000,
    max_body_bytes: Annotated[int, typer.Option(metavar="N", min=1, help="Refuse larger request bodies.")] = 2**20,
    body_timeout: Annotated[
        float, typer.Option(metavar="SECONDS", min=0.001, help="Wait this long for a body.")
    ] = 10.0,
    request_timeout: Annotated[
        float, typer.Option(metavar="SECONDS", min=0.001, help="Wait this long for an answer.")
    ] = 30.0,
    graceful: Annotated[
        int, typer.Option(metavar="SECONDS", min=0, help="Wait this long for open requests after a stop.")
    ] = 10,
    allow_host: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Accept another host name; may be repeated.")
    ] = None,
    items: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Take titles and attributes of items from this file, not RUN.")
    ] = None,
    item_set: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=FILE", help="Let filters name the items in a file; may be repeated."),
    ] = None,
    where: Annotated[
        str | None, typer.Option(metavar="EXPR", help="List only items that meet this, whatever a request asks for.")
    ] = None,
    journal: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Take events (POST /v1/events) and keep them in this folder.")
    ] = None,
    access_log: Annotated[
        bool, typer.Option("--access-log/--no-access-log", metavar="", help="Log each request to stderr.")
    ] = True,
) -> None:
    """Serve RUN over HTTP, with a page for people at /.

    RUN may be a symbolic link: point it to another run, then send SIGHUP (or POST /v1/admin/reload with the token in
    RANKFORMER_ADMIN_TOKEN), and the new model replaces the old one without a failed request. An address that other
    machines can reach needs a token in RANKFORMER_TOKEN. The files of --items and --item-set are read again
    whenever the model is: what is sold out tonight leaves the lists with the next reload.

    Examples:
    rankformer serve runs/demo
    rankformer serve runs/shop --journal runs/events
    rankformer serve runs/shop --item-set available=stock.txt --where available
    RANKFORMER_TOKEN=$(openssl rand -hex 24) rankformer serve runs/current --host 0.0.0.0 --port 80
    """
    from rankformer.runs.manifest import read_manifest

    try:
        from rankformer.serving.server import serve as run_service
    except ModuleNotFoundError as error:
        raise ConfigError(f"serving needs {error.name}; install it with: pip install 'rankformer[serve]'") from error
    from rankformer.serving.settings import ServiceSettings, Tokens, check_address

    settings = ServiceSettings(
        max_k=max_k,
        max_body_bytes=max_body_bytes,
        body_timeout=body_timeout,
        request_timeout=request_timeout,
        batching=batching,
        batch_size=batch_size,
        queue_size=queue_size,
        workers=workers,
        access_log=access_log,
        allowed_hosts=tuple(allow_host or ()),
        items=items,
        item_sets=dict(map(_named_file, item_set or ())),
        where=where,
        journal=journal,
    )
    tokens = Tokens.from_environment()
    check_address(host, tokens)
    read_manifest(run)  # a wrong path is reported before anything starts
    if port:
        show(f"serving {run} on http://{host}:{port}/ (Ctrl-C stops)")
    run_service(run, host=host, port=port, settings=settings, tokens=tokens, threads=threads, graceful_seconds=graceful)


def _named_file(text: str) -> tuple[str, Path]:
    name, sign, file = text.partition("=")
    if not (sign and name.strip() and file):
        raise ConfigError(f"--item-set {text!r}: expected a name and a file, such as available=stock.txt")
    if not Path(file).is_file():
        raise ConfigError(f"--item-set {text!r}: {file} is not a file; give one with an item id per line")
    return name.strip(), Path(file)
