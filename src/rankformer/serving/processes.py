"""`serve --processes N`: the main process loads the model and forks those that answer, which share its memory.

The main process answers nothing. It loads with one thread and in its main thread, so that no pool of threads exists
when it forks; the others make their own. A reload loads in the main process and forks a new generation; once that
accepts connections, the previous one stops accepting them, says `Connection: close` in its next answers and ends with
its last connection. A process that dies is replaced, at most once a second.
"""

import ctypes
import gc
import logging
import mmap
import os
import re
import signal
import sys
import time
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from struct import Struct
from types import FrameType
from typing import Any

from fastapi import FastAPI
from prometheus_client import generate_latest

from rankformer.errors import RunFolderError
from rankformer.serving.service import Metrics, Service

logger = logging.getLogger("rankformer.serving")

MOST_PROCESSES = 64
_MAIN = "main"  # how metrics name the process that loads; the others are numbered from 1
_TICK = 0.05  # seconds
_METRICS_BYTES = 2**20  # per process
_HEADER = Struct("<II")
_SAMPLE = re.compile(rb"(?m)^(\w+)(?:\{(.*)\})?(?= )")
_PATIENCE = 30.0  # seconds for a new process to accept connections, and for an old one to stop
_EXTRA_SECONDS = 5.0  # beyond the graceful ones, after which a process is killed


class Board(ctypes.Structure):
    """What the processes of a service tell each other, in memory that they share; each field has one writer."""

    _fields_ = [
        ("started", ctypes.c_int64),  # loads
        ("finished", ctypes.c_int64),
        ("failed", ctypes.c_bool),  # whether the last load did
        ("version", ctypes.c_char * 16),  # of the model that it found
        ("accepting", ctypes.c_int64 * MOST_PROCESSES),  # by number of the process: its last generation that began to
        ("retired", ctypes.c_int64 * MOST_PROCESSES),  # and that stopped to
    ]


class SharedMetrics:
    """The metrics of every process as text, in memory that they share: each writes its own part, all are read."""

    def __init__(self, names: list[str]) -> None:
        self._memory = mmap.mmap(-1, _METRICS_BYTES * len(names))
        self._starts = {name: _METRICS_BYTES * number for number, name in enumerate(names)}

    def write(self, name: str, text: bytes) -> None:
        """Publish the metrics of one process; far more than there are label values for is left out."""
        packed = _HEADER.pack(len(text), zlib.crc32(text)) + text
        if len(packed) <= _METRICS_BYTES:
            self._memory[self._starts[name] : self._starts[name] + len(packed)] = packed

    def read(self) -> bytes:
        """Return the metrics of all processes in Prometheus' text format, each with the label `process`."""
        families: dict[bytes, list[bytes]] = {}
        for name, start in self._starts.items():
            for family, lines in _families(self._text(start)):
                kept = families.setdefault(family, [])
                kept += [_labelled(line, name) for line in lines if not (kept and line.startswith(b"#"))]
        return b"\n".join(line for lines in families.values() for line in lines) + b"\n"

    def _text(self, start: int) -> bytes:
        for _ in range(100):  # it may just be written
            size, checksum = _HEADER.unpack_from(self._memory, start)
            text = self._memory[start + _HEADER.size : start + _HEADER.size + min(size, _METRICS_BYTES)]
            if zlib.crc32(text) == checksum:
                return text
            time.sleep(0.001)  # its writer may wait for a core
        return b""


def _families(text: bytes) -> Iterator[tuple[bytes, list[bytes]]]:
    """Yield the name and lines of each metric of a text."""
    for block in text.split(b"# HELP ")[1:]:
        lines = (b"# HELP " + block).splitlines()
        yield block.split(b" ", 1)[0], lines


def _labelled(line: bytes, process: str) -> bytes:
    if line.startswith(b"#"):
        return line
    label = b'process="%s"' % process.encode()
    return _SAMPLE.sub(lambda found: b"%s{%s}" % (found[1], b",".join(filter(None, (label, found[2])))), line, count=1)


@dataclass(frozen=True)
class Worker:
    """One of the processes that answer, as it sees itself."""

    number: int  # from 0
    generation: int  # how many models were loaded when it was forked
    parent: int  # process id
    board: Board
    shared: SharedMetrics

    def join(self, service: Service) -> None:
        """Let reloads and metrics of the service be those of all processes."""
        service.request_load = self._request_load
        service.metrics.text = lambda: self.publish(service.metrics).read()

    def publish(self, metrics: Metrics) -> SharedMetrics:
        """Show the metrics of this process to the others, unless its successor does; returns those of all."""
        if self.board.accepting[self.number] <= self.generation:
            self.shared.write(str(self.number + 1), generate_latest(metrics.registry))
        return self.shared

    @property
    def is_orphan(self) -> bool:
        """Whether the main process has gone."""
        return os.getppid() != self.parent

    def accepts(self, metrics: Metrics) -> None:
        """Say that this process accepts connections, and show its metrics in place of those of the one before."""
        self.board.accepting[self.number] = self.generation
        self.publish(metrics)

    def retires(self) -> None:
        """Say that it no longer does."""
        self.board.retired[self.number] = self.generation

    def _request_load(self) -> str:
        """Let the main process load what the path holds now, and return the version that it found."""
        wanted = self.board.started + 1
        os.kill(self.parent, signal.SIGHUP)
        while self.board.finished < wanted:
            if self.is_orphan:
                raise RunFolderError("the main process of the service has ended")
            time.sleep(_TICK)
        if self.board.failed:
            raise RunFolderError("the run could not be loaded; the log of the main process says why")
        return bytes(self.board.version).decode()


class _Stopped(BaseException):
    """A signal to stop arrived during a load."""


class Supervisor:
    """The main process: loads, forks, replaces what dies, and passes signals on."""

    def __init__(
        self, create: Callable[[], FastAPI], answer: Callable[[FastAPI, Worker], None], count: int, graceful: float
    ) -> None:
        """Prepare for `count` processes.

        Args:
            create: returns the application, without a model.
            answer: called in each new process with the application and its place among them; returns when it is done.
            count: processes that answer.
            graceful: seconds that they may take to end.
        """
        self._create, self._answer, self._count, self._graceful = create, answer, count, graceful
        self._board = Board.from_buffer(mmap.mmap(-1, ctypes.sizeof(Board)))
        self._shared = SharedMetrics([_MAIN, *(str(number + 1) for number in range(count))])
        self._metrics = Metrics()
        for other in (self._metrics.model, self._metrics.model_age, self._metrics.model_loaded):
            self._metrics.registry.unregister(other)  # those of the processes that answer
        self._app: FastAPI | None = None
        self._running: dict[int, tuple[int, int, float]] = {}  # by process id: number, generation, when it began
        self._due: dict[int, float] = {}  # when a number that died is started again
        self._generation = 0  # the load that the present model is from
        self._stopping = self._loading = self._reload = False

    def run(self) -> None:
        """Serve until a signal ends it.

        Raises:
            RunFolderError: the first model cannot be loaded.
        """
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._stop)
        signal.signal(signal.SIGHUP, self._ask_to_reload)
        try:
            self._load()
            while not self._stopping:
                self._tend()
                if self._reload:
                    self._reload = False
                    self._load()
                self._publish()
                time.sleep(_TICK)
        except _Stopped:
            pass
        finally:
            self._end()

    def _stop(self, number: int, frame: FrameType | None) -> None:
        del number, frame
        self._stopping = True
        self._send(signal.SIGTERM)
        if self._loading:
            self._loading = False
            raise _Stopped

    def _ask_to_reload(self, number: int, frame: FrameType | None) -> None:
        del number, frame
        self._reload = True

    def _send(self, number: int, before: int = sys.maxsize) -> None:
        """Send a signal to every process of a generation before this."""
        for process, (_, generation, _) in list(self._running.items()):
            if generation < before:
                os.kill(process, number)  # until it has been waited for, its id is not another's

    def _load(self) -> None:
        """Load the model and let a new generation answer; a failure leaves the previous one, if there is one."""
        board, is_first = self._board, self._app is None
        board.started += 1
        gc.unfreeze()
        app = self._create()
        service: Service = app.state.service
        if self._app is not None:
            service.current = self._app.state.service.current
        self._loading = True
        try:
            service.load()
            self._app, self._generation = app, board.started
            self._count_load("ok")  # before a process answers with this model
            self._replace()
            board.failed, board.version = False, service.model.version.encode()
        except Exception:
            board.failed = True
            self._count_load("failed")
            if is_first:
                raise
        finally:
            self._loading = False
            board.finished = board.started

    def _count_load(self, outcome: str) -> None:
        self._metrics.reloads.labels(outcome).inc()
        self._publish()

    def _publish(self) -> None:
        """Show the metrics of the main process to the others."""
        self._shared.write(_MAIN, generate_latest(self._metrics.registry))

    def _replace(self) -> None:
        """Fork a generation, and retire those before it once all of it accepts connections."""
        assert self._app is not None
        self._app.state.service.metrics.reloads.clear()  # counted here
        gc.collect()  # the previous model
        gc.freeze()  # a collection in a child would write to every page of what is shared
        board, numbers = self._board, range(self._count)
        self._due = dict.fromkeys(numbers, 0.0)
        self._wait_until(lambda: all(board.accepting[number] == self._generation for number in numbers))
        self._send(signal.SIGUSR1, before=self._generation)
        self._wait_until(
            lambda: all(
                board.retired[number] >= generation
                for number, generation, _ in self._running.values()
                if generation < self._generation
            )
        )

    def _wait_until(self, is_so: Callable[[], bool]) -> None:
        deadline = time.monotonic() + _PATIENCE
        while not is_so() and time.monotonic() < deadline:
            self._tend()
            time.sleep(_TICK / 5)

    def _tend(self) -> None:
        """Take note of processes that ended, and start those that are due."""
        self._collect()
        for number in [number for number, due in self._due.items() if due <= time.monotonic()]:
            del self._due[number]
            self._start(number)

    def _start(self, number: int) -> None:
        """Fork the process with this number, to answer with the present model."""
        assert self._app is not None
        place = Worker(number, self._generation, os.getpid(), self._board, self._shared)
        signals = {signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1}
        signal.pthread_sigmask(signal.SIG_BLOCK, signals)
        try:
            process = os.fork()
            if process == 0:
                _work(self._app, place, self._answer, signals)
            self._running[process] = (number, place.generation, time.monotonic())
        except OSError as error:  # too many processes, or too little memory
            logger.error("process %d could not be started and is tried again: %s", number + 1, error.strerror)
            self._due[number] = time.monotonic() + 1.0
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, signals)

    def _collect(self) -> None:
        """Take note of processes that ended; those of this generation are due again."""
        for process in list(self._running):
            ended, status = os.waitpid(process, os.WNOHANG)
            if ended:
                number, generation, began = self._running.pop(process)
                if not self._stopping and generation == self._generation:
                    code = os.waitstatus_to_exitcode(status)
                    logger.error("process %d (%s) ended with %d and is started again", number + 1, process, code)
                    self._metrics.restarts.inc()
                    self._due[number] = began + 1.0

    def _end(self) -> None:
        """Wait until every process has ended, and kill those that take too long."""
        self._stopping = True
        self._send(signal.SIGTERM)
        deadline = time.monotonic() + self._graceful + _EXTRA_SECONDS
        while self._running:
            if time.monotonic() > deadline:
                self._send(signal.SIGKILL)
            self._collect()
            time.sleep(_TICK)


def _work(app: FastAPI, place: Worker, answer: Callable[[FastAPI, Worker], None], blocked: set[Any]) -> None:
    """Answer requests in a process that was just forked; never returns."""
    code = 1
    try:
        service: Service = app.state.service
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_DFL)  # until the server has its own
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        signal.signal(signal.SIGUSR1, lambda number, frame: setattr(service, "retiring", True))
        signal.pthread_sigmask(signal.SIG_UNBLOCK, blocked)
        place.join(service)
        answer(app, place)
        code = 0
    except BaseException:
        logger.exception("a process of the service failed")
    finally:
        logging.shutdown()
        os._exit(code)  # what the main process has open is not ours to close
