"""`rankformer serve` as a process: signals, swaps under load, slow callers, a graceful stop."""

import resource
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest

from rankformer.serving.settings import ServiceSettings

from .clients import ADMIN, RUN_COMMAND, serving, serving_in_thread
from .runs import point, write_two_runs


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    return write_two_runs(tmp_path_factory.mktemp("served"))


@pytest.fixture(scope="module")
def service(runs):
    point(runs / "current", runs / "one")
    environment = {"RANKFORMER_ADMIN_TOKEN": ADMIN, "OMP_NUM_THREADS": "1"}
    with serving(runs / "current", "--max-body-bytes", "1000", log=runs / "log", **environment) as started:
        yield started


def test_fifty_swaps_under_load_fail_nobody(runs, service):
    _, found = service.swap_under_load(runs, 50)
    assert found["answered"] > 50


def test_a_hangup_signal_swaps_and_a_broken_run_changes_nothing(runs, service):
    point(runs / "current", runs / "one")
    assert service.reload().status_code == 200
    before = service.version()
    point(runs / "current", runs / "two")
    service.process.send_signal(signal.SIGHUP)
    service.wait_for(lambda: service.version() != before)
    after = service.version()
    failures = service.log.count("loading failed")
    point(runs / "current", runs / "nowhere")
    service.process.send_signal(signal.SIGHUP)
    service.wait_for(lambda: service.log.count("loading failed") > failures)
    assert service.version() == after
    point(runs / "current", runs / "one")
    service.process.send_signal(signal.SIGHUP)
    service.wait_for(lambda: service.version() == before)
    assert ADMIN not in service.log


def talk(port, *parts, pause=0.0):
    """What a server says to raw bytes, sent in parts."""
    with socket.create_connection(("127.0.0.1", port), timeout=30) as connection:
        try:
            for part in parts:
                connection.sendall(part)
                time.sleep(pause)
        except (BrokenPipeError, ConnectionResetError):
            pass  # the answer was there before the end of the request
        received = b""
        try:
            while chunk := connection.recv(65536):
                received += chunk
        except ConnectionResetError:
            pass
        return received


HEAD = b"POST /v1/recommend:batch HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"


def test_a_body_without_a_length_that_goes_on_and_on(service):
    chunk = b"100\r\n" + b" " * 256 + b"\r\n"
    answer = talk(service.port, HEAD + b"Transfer-Encoding: chunked\r\n\r\n", *[chunk] * 10)
    assert answer.startswith(b"HTTP/1.1 413 ")
    assert b'"body_too_large"' in answer


def test_a_body_that_comes_by_drops(runs):
    with serving_in_thread(runs / "one", ServiceSettings(body_timeout=0.2)) as url:
        head = HEAD + b"Content-Length: 100\r\n\r\n"
        answer = talk(int(url.rpartition(":")[2]), head, *[b" "] * 20, pause=0.05)
        assert answer.startswith(b"HTTP/1.1 408 ")
        assert b'"body_timeout"' in answer


def test_a_body_that_announces_too_much(service):
    answer = talk(service.port, HEAD + b"Content-Length: 1000000000\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 413 ")
    assert b"connection: close" in answer.lower()


@pytest.mark.parametrize(
    "request_line",
    [
        b"GET /v1/model\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01",
        b"GET /\xff\xfe HTTP/1.1\r\n\r\n",
        b"\0" * 100 + b"\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n",
        b"GET /" + b"x" * 100_000 + b" HTTP/1.1\r\n\r\n",
    ],
)
def test_what_is_no_http_is_refused_and_the_service_lives(service, request_line):
    assert talk(service.port, request_line, b"\r\n\r\n").startswith(b"HTTP/1.1 4")
    assert httpx.get(f"{service.url}/livez").status_code == 200


def test_a_caller_who_leaves_in_the_middle_harms_nobody(service):
    for _ in range(5):
        with socket.create_connection(("127.0.0.1", service.port)) as connection:
            connection.sendall(HEAD + b'Content-Length: 100\r\n\r\n{"users"')
    assert httpx.get(f"{service.url}/v1/recommend/u1").status_code == 200
    assert "Traceback" not in service.log


def test_an_answer_under_way_is_finished_before_the_end(runs, tmp_path):
    with serving(runs / "one", log=tmp_path / "log") as service:
        body = b'{"users": ["u1"], "k": 3}'
        with socket.create_connection(("127.0.0.1", service.port), timeout=30) as connection:
            connection.sendall(HEAD + f"Content-Length: {len(body)}\r\n\r\n".encode() + body[:10])
            service.wait_for(lambda: b"in_flight 2" in httpx.get(f"{service.url}/metrics").content)
            service.process.terminate()
            service.wait_for(lambda: "Waiting for connections to close" in service.log)
            connection.sendall(body[10:])
            assert connection.recv(65536).startswith(b"HTTP/1.1 200 ")
        assert service.process.wait(30) == 0


def test_the_end_does_not_wait_for_ever(runs, tmp_path):
    with (
        serving(runs / "one", "--graceful", "0", log=tmp_path / "log") as service,
        socket.create_connection(("127.0.0.1", service.port), timeout=30) as connection,
    ):
        connection.sendall(HEAD + b"Content-Length: 100\r\n\r\n")
        service.wait_for(lambda: b"in_flight 2" in httpx.get(f"{service.url}/metrics").content)
        service.process.send_signal(signal.SIGINT)
        assert service.process.wait(30) == 0


def test_a_run_that_cannot_be_loaded_ends_the_start_with_one_line(runs, tmp_path):
    broken = shutil.copytree(runs / "one", tmp_path / "broken")
    (broken / "users.parquet").unlink()
    command = [sys.executable, "-c", RUN_COMMAND, "serve", str(broken), "--port", "0"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].startswith("error: ")
    assert "users.parquet is missing" in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr


def test_no_collection_passes_over_all_that_is_imported_while_others_wait(run_folder, tmp_path):
    counting = (
        "import gc; real = gc.collect;"
        "gc.collect = lambda: print('collected', len(gc.get_objects()), flush=True) or real();"
    )
    with serving(run_folder, log=tmp_path / "log", before=counting) as service:
        service.wait_for(lambda: service.log.count("collected") >= 2)
        started, serving_it = (int(line.split()[1]) for line in service.log.splitlines() if "collected" in line)
    assert started > 100_000
    assert serving_it < started / 10


@pytest.mark.skipif(not hasattr(resource, "prlimit"), reason="needs a limit on another process")
def test_threads_that_answer_are_there_before_memory_is_short(runs, tmp_path):
    with serving(runs / "one", log=tmp_path / "log", OMP_NUM_THREADS="1") as service:
        pid = service.process.pid
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[0])
        most = pages * resource.getpagesize() + 2**22  # less than the stack of another thread
        resource.prlimit(pid, resource.RLIMIT_AS, (most, resource.RLIM_INFINITY))
        assert httpx.get(f"{service.url}/v1/recommend/u1", timeout=60).status_code == 200
        body = {"users": ["u1", "u2"]}
        assert httpx.post(f"{service.url}/v1/recommend:batch", json=body, timeout=60).status_code == 200
