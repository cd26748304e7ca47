"""Clients of an application in this process, and of a real server in another."""

import asyncio
import os
import subprocess
import sys
import threading
import time
from contextlib import asynccontextmanager, contextmanager

import httpx
import pytest
from benchmarks.http_load import closed_loop, get
from tests.ports import free_port

from rankformer.serving.connections import listening
from rankformer.serving.server import bounded_server, create_app

from .runs import USERS, point

ADMIN = "admin-token-0123456789"
REQUESTS = [get(f"/v1/recommend/u{number}?k=5") for number in range(USERS)]
RUN_COMMAND = "import sys; from rankformer.cli.main import run; sys.exit(run(sys.argv[1:]))"
PATIENCE = 60.0


@asynccontextmanager
async def asking_at_once(run, settings=None, tokens=None):
    """An asynchronous client of an application that is ready, and the application."""
    app = create_app(run, settings, tokens)
    async with app.router.lifespan_context(app):
        while app.state.service.current is None:
            assert app.state.service.failure is None
            await asyncio.sleep(0.005)
        transport = httpx.ASGITransport(app=app)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            yield client, app


class Client:
    """The same for those who ask one thing after another."""

    def __init__(self, loop, client, app):
        self._loop = loop
        self._client = client
        self.app = app

    def request(self, method, url, **options):
        return asyncio.run_coroutine_threadsafe(self._client.request(method, url, **options), self._loop).result(30)

    def get(self, url, **options):
        return self.request("GET", url, **options)

    def post(self, url, **options):
        return self.request("POST", url, **options)


@contextmanager
def asking(run, settings=None, tokens=None):
    """A client of an application that is ready."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    context = asking_at_once(run, settings, tokens)
    try:
        client, app = asyncio.run_coroutine_threadsafe(context.__aenter__(), loop).result(PATIENCE)
        yield Client(loop, client, app)
        asyncio.run_coroutine_threadsafe(context.__aexit__(None, None, None), loop).result(PATIENCE)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


@contextmanager
def serving_in_thread(run, settings=None, tokens=None):
    """The address of a real server in this process, ready."""
    app = create_app(run, settings, tokens)
    server, [bound] = bounded_server(app), listening("127.0.0.1", 0)
    url = f"http://127.0.0.1:{bound.getsockname()[1]}"
    thread = threading.Thread(target=server.run, args=([bound],))
    thread.start()
    try:
        deadline = time.monotonic() + PATIENCE
        while not server.started or app.state.service.current is None:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        yield url
    finally:
        server.should_exit = True
        thread.join()


class Process:
    """`rankformer serve` as people start it."""

    def __init__(self, run, *flags, log, before="", **environment):
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        command = [sys.executable, "-c", before + RUN_COMMAND, "serve", str(run), "--port", str(self.port), *flags]
        with open(log, "wb") as stream:
            self.process = subprocess.Popen(command, stdout=stream, stderr=stream, env={**os.environ, **environment})
        self._log = log

    @property
    def log(self):
        return self._log.read_text()

    def wait_until_ready(self):
        deadline = time.monotonic() + PATIENCE
        while True:
            assert self.process.poll() is None, self.log
            assert time.monotonic() < deadline, self.log
            try:
                if httpx.get(f"{self.url}/readyz").status_code == 200:
                    return self
            except httpx.TransportError:
                pass
            time.sleep(0.05)

    def wait_for(self, condition):
        deadline = time.monotonic() + PATIENCE
        while not condition():
            if time.monotonic() > deadline:
                print(self.log)
                pytest.fail(f"it did not become true within {PATIENCE:.0f} s")
            time.sleep(0.02)

    def version(self):
        return httpx.get(f"{self.url}/readyz").json()["model_version"]

    def reload(self):
        return httpx.post(f"{self.url}/v1/admin/reload", headers={"Authorization": f"Bearer {ADMIN}"}, timeout=30)

    def swap_under_load(self, runs, times, check=lambda version: None):
        """The versions after each of some swaps of two runs, and what callers meanwhile saw; nobody may fail."""
        done, versions = threading.Event(), []

        def swap():
            try:
                for number in range(times):
                    point(runs / "current", runs / ("two", "one")[number % 2])
                    answer = self.reload()
                    assert answer.status_code == 200, answer.text
                    versions.append(answer.json()["model_version"])
                    check(versions[-1])
            finally:
                done.set()

        async def both():
            return await asyncio.gather(closed_loop(self.port, REQUESTS, 8, done.is_set), asyncio.to_thread(swap))

        found, _ = asyncio.run(both())
        assert len(versions) == times
        assert len(set(versions)) == 2
        assert found["broken"] == 0
        assert set(found["statuses"]) == {"200"}
        assert found["versions"] == 2  # both models were really in use
        return versions, found


@contextmanager
def serving(run, *flags, log, **options):
    """A service in a process of its own, ready; ended afterwards if it has not ended by itself.

    Options are variables of its environment, and `before`: statements that it runs first, each with its semicolon.
    """
    started = Process(run, *flags, log=log, **options)
    try:
        yield started.wait_until_ready()
    finally:
        started.process.kill()
        started.process.wait(PATIENCE)
