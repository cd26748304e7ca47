"""The service as an ASGI application, and its run under uvicorn: signals, logs, and a stop that lets answers finish."""

import asyncio
import gc
import logging
import math
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext, suppress
from functools import partial
from importlib.metadata import version
from pathlib import Path
from types import FrameType
from typing import Any

import torch
import uvicorn
from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from rankformer.files import pid_file
from rankformer.serving.connections import ACCEPTED_AT_ONCE, BoundedConnection, Connections, listening
from rankformer.serving.errors import from_exception
from rankformer.serving.logs import LogFormat, log_to_stderr
from rankformer.serving.middleware import ServiceMiddleware
from rankformer.serving.processes import Supervisor, Worker
from rankformer.serving.routes import api_routes
from rankformer.serving.service import Service
from rankformer.serving.settings import ServiceSettings, Tokens, check_address

logger = logging.getLogger("rankformer.serving")

_CONNECTIONS_WAITING = 2048
_SECONDS_BETWEEN_REPORTS = 10.0
_SECONDS_PER_TURN = 0.001
_TICKS_BETWEEN_METRICS = 10  # a second


def create_app(run: Path, settings: ServiceSettings | None = None, tokens: Tokens | None = None) -> FastAPI:
    """Return the application that serves the run at a path; `app.state.service` is its `Service`.

    Args:
        run: a run folder, or a symbolic link to one; it is read when the application starts and at each reload.
            When the first load fails, `service.failure` says why.
        settings: its limits.
        tokens: its secrets; none by default.
    """
    settings, tokens = settings or ServiceSettings(), tokens or Tokens()
    service = Service(run, settings)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        service.start()
        if service.current is None:
            service.load_soon()  # meanwhile requests get 503
        yield
        await service.close()

    app = FastAPI(
        title="rankformer",
        summary="Ranked lists from a trained model",
        version=version("rankformer"),
        docs_url=None,  # both pages would load scripts from elsewhere
        redoc_url=None,
        redirect_slashes=False,
        lifespan=lifespan,
    )
    app.state.service = service
    app.openapi = partial(_description, app)  # type: ignore[method-assign]
    app.router.routes += api_routes(service, needs_token=tokens.access is not None)
    app.add_exception_handler(HTTPException, _route_error)
    app.add_middleware(ServiceMiddleware, service=service, tokens=tokens)
    return app


def _description(app: FastAPI) -> dict[str, Any]:
    """Return the OpenAPI description; of events, what the loaded run takes."""
    found, service = FastAPI.openapi(app), app.state.service
    if service.current is None or service.current.recent is None:
        return found
    known = found["components"]["schemas"]
    entry = {"EventEntry": service.current.recent.described(known["EventEntry"])}
    return {**found, "components": {**found["components"], "schemas": {**known, **entry}}}


async def _route_error(request: Request, error: Exception) -> Response:
    del request
    return from_exception(error).response()


class Server(uvicorn.Server):
    """A server that reloads its model on SIGHUP and returns normally on SIGTERM and SIGINT.

    Attributes:
        service: what it serves.
        owns_process: whether nothing else runs in this process, so that its garbage collection may be tuned.
        worker: which of several processes this one is, None where there is one.
    """

    def __init__(self, config: uvicorn.Config, service: Service) -> None:
        super().__init__(config)
        self.service = service
        self.owns_process = False
        self.worker: Worker | None = None
        self._reported: dict[str, float] = {}
        self._frozen = False

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start to listen, to connections and to SIGHUP."""
        asyncio.get_running_loop().set_exception_handler(self._report)
        await super().startup(sockets)
        for listener in sockets or []:
            listener.listen(_CONNECTIONS_WAITING)  # asyncio would also take so many at once, one waking up
        if self.worker is not None:
            self.worker.accepts(self.service.metrics)
        elif hasattr(signal, "SIGHUP"):
            with suppress(ValueError, RuntimeError):  # signals reach only the main thread; we may be in another
                asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, self.service.load_soon)

    def _report(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Log what goes wrong in the loop itself, such as a connection that cannot be taken, at intervals."""
        message, now = str(context.get("message")), loop.time()
        if now - self._reported.get(message, -math.inf) >= _SECONDS_BETWEEN_REPORTS:
            self._reported[message] = now
            logger.error("%s: %r", message, context.get("exception"))

    async def on_tick(self, counter: int) -> bool:
        """Return whether to stop, several times a second: also when the first model cannot be loaded."""
        service = self.service
        if self.owns_process and not self._frozen and service.current is not None:
            # Nor is the first model scanned again, in some request. Once, after a collection: at each reload,
            # garbage that is not collected yet would stay for good.
            gc.collect()
            gc.freeze()
            self._frozen = True
        if self.worker is not None:
            self._keep_up(self.worker, counter)
        return await super().on_tick(counter) or (service.current is None and service.failure is not None)

    def _keep_up(self, worker: Worker, counter: int) -> None:
        """Do what one of several processes has to: show its metrics, retire when told to, and end with the main one."""
        if counter % _TICKS_BETWEEN_METRICS == 0:
            worker.publish(self.service.metrics)
        if self.service.retiring:
            for server in self.servers:
                server.close()  # the sockets stay open in other processes
            worker.retires()
        if worker.is_orphan or (self.service.retiring and not self.server_state.connections):
            self.should_exit = True

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Stop once the requests under way are answered; at the second SIGINT, at once."""
        del frame
        self.service.stopping = True  # /readyz says so from now on
        if self.should_exit and sig == signal.SIGINT:
            self.force_exit = True
        self.should_exit = True


def serve(
    run: Path,
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    settings: ServiceSettings | None = None,
    tokens: Tokens | None = None,
    threads: int | None = None,
    graceful_seconds: int = 10,
    processes: int = 1,
    log_format: LogFormat = LogFormat.TEXT,
    pid_path: Path | None = None,
) -> None:
    """Serve a run until a signal ends it.

    Args:
        run: a run folder, or a symbolic link to one.
        host: address to listen on; one that others can reach needs a token.
        port: port to listen on; 0 takes any that is free.
        settings: limits of the service.
        tokens: its secrets; those of the environment by default.
        threads: threads of one computation; half of the cores by default, since computations run beside each other,
            and of several processes each its share.
        graceful_seconds: how long answers under way may take after the signal to stop.
        processes: processes that answer; with more than one, another loads the model, which they share.
        log_format: how the log on stderr is written.
        pid_path: file that holds the process id meanwhile; signals go there.

    Raises:
        ConfigError: the address needs a token, or cannot be used, or another service has the file of the process id.
        RunFolderError: there is no whole run at the path.
    """
    tokens = Tokens.from_environment() if tokens is None else tokens
    check_address(host, tokens)
    threads = threads or max(1, (os.cpu_count() or 1) // (2 * processes))
    log_to_stderr(log_format)
    sys.setswitchinterval(_SECONDS_PER_TURN)  # the threads that rank and write give way to the event loop sooner
    create = partial(create_app, run, settings, tokens)

    def answer(app: FastAPI, worker: Worker | None = None) -> None:
        torch.set_num_threads(threads)
        server = bounded_server(app, graceful_seconds)
        server.owns_process, server.worker = True, worker
        server.run(sockets)

    with nullcontext() if pid_path is None else pid_file(pid_path):
        sockets = listening(host, port)
        for bound in sockets:
            address, number = bound.getsockname()[:2]
            shown = f"[{address}]" if ":" in address else address
            logger.info("serving %s on http://%s:%d/ (Ctrl-C stops)", run, shown, number)
        if processes > 1:
            torch.set_num_threads(1)  # threads of this process would not exist in those it forks
            Supervisor(create, answer, processes, graceful_seconds).run()
            return
        app = create()
        gc.collect()
        gc.freeze()  # what is imported, while nobody waits: passing over all of torch takes a tenth of a second
        answer(app)
    service: Service = app.state.service
    if service.current is None and service.failure is not None:
        raise service.failure


def bounded_server(app: FastAPI, graceful_seconds: int = 10) -> Server:
    """Return the server of an application, within the limits of its service."""
    service: Service = app.state.service
    config = uvicorn.Config(
        app,
        http=partial(BoundedConnection, Connections(service)),  # type: ignore[arg-type]
        access_log=False,  # ours leaves the query out
        log_config=None,
        server_header=False,
        timeout_graceful_shutdown=graceful_seconds,
        timeout_keep_alive=math.ceil(service.settings.keep_alive),
        backlog=ACCEPTED_AT_ONCE,
        ws="none",
    )
    return Server(config, service)
