"""Callers who connect and say nothing, callers who do not read, and addresses that cannot be listened on."""

import signal
import socket
import threading
import time
from contextlib import ExitStack, contextmanager

import httpx
import pytest

from rankformer.errors import ConfigError
from rankformer.serving.connections import listening
from rankformer.serving.server import bounded_server, create_app
from rankformer.serving.settings import ServiceSettings

from .clients import PATIENCE
from .clients import serving as serving_process

BATCH = b'{"users": [%s], "k": 80, "include_seen": true}' % b",".join(b'"u%d"' % number for number in range(1000))
HEAD = (
    b"POST /v1/recommend:batch HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    b"Content-Length: %d\r\n\r\n"
)


def wait_for(condition):
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@contextmanager
def serving(run, **settings):
    """The port and the service of a real server within its limits."""
    app = create_app(run, ServiceSettings(**settings))
    server, [bound] = bounded_server(app), listening("127.0.0.1", 0)
    port = bound.getsockname()[1]
    thread = threading.Thread(target=server.run, args=([bound],))
    thread.start()
    try:
        wait_for(lambda: server.started and app.state.service.current is not None)
        yield port, server
    finally:
        server.should_exit = server.force_exit = True
        thread.join()


def connect(port, receive_bytes=None):
    connection = socket.socket()
    if receive_bytes:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
    connection.settimeout(PATIENCE)
    connection.connect(("127.0.0.1", port))
    return connection


def is_closed(connection):
    try:
        return connection.recv(1) == b""
    except ConnectionResetError:
        return True


def test_more_connections_than_allowed_take_the_place_of_those_that_wait(run_folder):
    with serving(run_folder, max_connections=10) as (port, server), ExitStack() as stack:
        idle = [stack.enter_context(connect(port)) for _ in range(40)]
        assert httpx.get(f"http://127.0.0.1:{port}/v1/recommend/u1").status_code == 200
        assert len(server.server_state.connections) <= 10
        assert is_closed(idle[0])
        assert b"connections" in httpx.get(f"http://127.0.0.1:{port}/metrics").content


def test_a_burst_of_connections_stays_within_the_descriptors(run_folder, tmp_path):
    few = "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (320, 320)); "
    with serving_process(run_folder, log=tmp_path / "log", before=few) as service, ExitStack() as stack:
        service.process.send_signal(signal.SIGSTOP)  # so that all of them wait when it looks again
        for _ in range(600):
            stack.enter_context(connect(service.port))
        service.process.send_signal(signal.SIGCONT)
        assert httpx.get(f"{service.url}/v1/recommend/u1", timeout=PATIENCE).status_code == 200
        assert "out of system resource" not in service.log


def test_a_connection_that_is_being_answered_is_not_closed_for_others(run_folder):
    with serving(run_folder, max_connections=3) as (port, _), ExitStack() as stack:
        busy = stack.enter_context(connect(port))
        busy.sendall(HEAD % 20 + b'{"users": ')
        time.sleep(0.05)
        for _ in range(10):
            stack.enter_context(connect(port))
        assert httpx.get(f"http://127.0.0.1:{port}/livez").status_code == 200
        busy.sendall(b'["u1"]}  \n')
        assert busy.recv(100).startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize(
    "sent", [b"", b"GET /livez HTTP/1.1\r\nHost: loc", b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n\r"]
)
def test_a_head_that_never_ends_is_not_waited_for(run_folder, sent):
    with serving(run_folder, header_timeout=0.2, keep_alive=0.2) as (port, server), connect(port) as connection:
        connection.sendall(sent)
        while connection.recv(1000):
            pass
        wait_for(lambda: not server.server_state.connections)


def test_a_caller_who_does_not_read_is_not_waited_for(run_folder):
    with serving(run_folder, write_timeout=0.3, max_batch_items=10**6) as (port, server):
        with ExitStack() as stack:
            for _ in range(3):
                connection = stack.enter_context(connect(port, receive_bytes=4096))
                connection.sendall(HEAD % len(BATCH) + BATCH)
            wait_for(lambda: len(server.server_state.connections) == 3)
            wait_for(lambda: not server.server_state.connections)
        assert b"requests_in_flight 1.0" in httpx.get(f"http://127.0.0.1:{port}/metrics").content


def test_a_caller_who_reads_slowly_gets_it_all(run_folder):
    with serving(run_folder, max_batch_items=10**6, request_timeout=1.0) as (port, _):
        with connect(port, receive_bytes=4096) as connection:
            connection.sendall(HEAD % len(BATCH) + BATCH)
            received = connection.recv(2**16)
            time.sleep(1.2)  # longer than an answer may take to be found
            length = int(received.partition(b"content-length: ")[2].split(b"\r\n")[0])
            size = len(received.partition(b"\r\n\r\n")[2])
            while size < length and (part := connection.recv(2**20)):
                size += len(part)
        assert size == length > 2**20


def test_large_answers_that_wait_to_be_read_are_limited_and_small_ones_are_not(run_folder):
    settings = {"max_batch_items": 10**6, "max_answer_bytes": 2**20, "body_timeout": 30.0}
    with serving(run_folder, **settings) as (port, _), connect(port, receive_bytes=4096) as connection:
        connection.sendall(HEAD % len(BATCH) + BATCH)
        connection.recv(100)
        url = f"http://127.0.0.1:{port}/v1"
        refused = httpx.post(f"{url}/recommend:batch", content=BATCH, headers={"Content-Type": "application/json"})
        assert (refused.status_code, refused.json()["error"]["code"]) == (503, "overloaded")
        assert httpx.get(f"{url}/recommend/u1").status_code == 200


@pytest.mark.parametrize("method", [b"POST", b"GET"])
def test_two_lengths_of_one_body_are_refused(run_folder, method):
    with serving(run_folder) as (port, _), connect(port) as connection:
        head = HEAD[:-4] % 5 + b"\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
        connection.sendall(head.replace(b"POST", method))
        assert connection.recv(1000).startswith(b"HTTP/1.1 400 ")


def test_a_port_in_use_is_said_in_one_line():
    [bound] = listening("127.0.0.1", 0)
    with bound:
        bound.listen()
        with pytest.raises(ConfigError, match=r"cannot listen on 127\.0\.0\.1 port \d+: .*use; choose another --port"):
            listening("127.0.0.1", bound.getsockname()[1])
    with pytest.raises(ConfigError, match=r"cannot listen on nowhere\.invalid"):
        listening("nowhere.invalid", 8000)


def test_the_same_fault_of_the_loop_is_logged_now_and_then(run_folder, caplog):
    with serving(run_folder) as (_, server):
        for _ in range(1000):
            server._report(_Clock(), {"message": "socket.accept() out of system resource", "exception": OSError(24)})
    assert sum("out of system resource" in record.message for record in caplog.records) == 1


class _Clock:
    def time(self):
        return 100.0
