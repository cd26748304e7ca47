"""`rankformer serve --processes N`: one model in memory, several processes that answer."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import httpx
import pytest
from benchmarks.http_load import closed_loop, get
from benchmarks.sections.processes import memory_of
from benchmarks.serving_load import SIZES, make_run, requests_of
from benchmarks.serving_load import service as started
from prometheus_client.parser import text_string_to_metric_families

from rankformer.serving.processes import SharedMetrics

from .clients import ADMIN, RUN_COMMAND, serving
from .runs import point, write_two_runs

PROCESSES = 2


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = write_two_runs(tmp_path_factory.mktemp("shared"))
    point(folder / "current", folder / "one")
    return folder


FLAGS = ("--processes", str(PROCESSES), "--threads", "2", "--log-format", "json")


@pytest.fixture(scope="module")
def service(runs):
    with serving(runs / "current", *FLAGS, log=runs / "log", RANKFORMER_ADMIN_TOKEN=ADMIN) as started:
        yield started


@pytest.fixture
def passing(runs, tmp_path):
    """A service that the test may end."""
    with serving(runs / "one", *FLAGS, "--pid-file", str(tmp_path / "pid"), log=tmp_path / "log") as started:
        yield started


def children_of(process):
    return {int(child) for child in Path(f"/proc/{process}/task/{process}/children").read_text().split()}


def samples(service):
    families = text_string_to_metric_families(httpx.get(f"{service.url}/metrics").text)
    return [sample for family in families for sample in family.samples]


def total(service, name, **labels):
    found = [sample for sample in samples(service) if sample.name == name and labels.items() <= sample.labels.items()]
    return sum(sample.value for sample in found)


def test_a_load_is_counted_before_a_process_answers_with_it(runs, tmp_path):
    slowly = "import os, time; fork = os.fork; os.fork = lambda: (time.sleep(1), fork())[1];"
    with serving(runs / "one", *FLAGS, log=tmp_path / "log", before=slowly) as started:
        assert total(started, "rankformer_reloads_total", outcome="ok") == 1


def test_reloads_under_load_fail_nobody_and_every_process_has_the_new_model(runs, service):
    before = total(service, "rankformer_reloads_total", outcome="ok")

    def check(version):
        assert {service.version() for _ in range(4)} == {version}  # each by a connection of its own

    versions, _ = service.swap_under_load(runs, 4, check)
    service.wait_for(lambda: len(children_of(service.process.pid)) == PROCESSES)  # those before have ended
    service.wait_for(lambda: total(service, "rankformer_reloads_total", outcome="ok") == before + 4)

    def models():
        return [sample.labels["version"] for sample in samples(service) if sample.name == "rankformer_model_info"]

    service.wait_for(lambda: models() == [versions[-1]] * PROCESSES)


def test_metrics_are_those_of_all_processes(service):
    counter, name, route = iter(range(10**6)), "rankformer_requests_total", "/v1/items/{item}/similar"
    asked = [get(f"/v1/items/i{number}/similar?k=5") for number in range(5)]  # which no other test here asks for
    found = asyncio.run(closed_loop(service.port, asked, 16, lambda: next(counter) >= 500))
    assert found["answered"] == 500
    service.wait_for(lambda: total(service, name, route=route) == 500)
    assert {sample.labels["process"] for sample in samples(service)} == {"main", "1", "2"}
    lines = httpx.get(f"{service.url}/metrics").text.splitlines()
    headings = [line for line in lines if line.startswith("# TYPE")]
    assert len(headings) == len(set(headings))


def test_a_broken_run_changes_nothing_and_a_hangup_signal_reloads(runs, service):
    point(runs / "current", runs / "one")
    before = service.reload().json()["model_version"]
    point(runs / "current", runs / "nowhere")
    answer = service.reload()
    assert (answer.status_code, answer.json()["error"]["code"]) == (409, "reload_failed")
    assert str(runs) not in answer.text
    assert f"model {before} continues" in service.log
    assert service.version() == before
    point(runs / "current", runs / "two")
    service.process.send_signal(signal.SIGHUP)
    service.wait_for(lambda: service.version() != before)
    service.wait_for(lambda: total(service, "rankformer_reloads_total", outcome="failed") == 1)


def test_a_process_that_dies_is_replaced(service):
    victim = max(children_of(service.process.pid))
    os.kill(victim, signal.SIGKILL)
    service.wait_for(lambda: len(children_of(service.process.pid) - {victim}) == PROCESSES)
    service.wait_for(lambda: total(service, "rankformer_process_restarts_total") == 1)
    assert {httpx.get(f"{service.url}/v1/recommend/u1").status_code for _ in range(8)} == {200}


def test_a_stop_ends_all_processes_and_removes_the_pid_file(passing, tmp_path):
    children = children_of(passing.process.pid)
    assert len(children) == PROCESSES
    assert int((tmp_path / "pid").read_text()) == passing.process.pid
    passing.process.terminate()
    assert passing.process.wait(30) == 0
    assert not any(map(_runs, children))
    assert not (tmp_path / "pid").exists()
    lines = [json.loads(line) for line in passing.log.splitlines()]  # whatever is logged is JSON
    assert all(line.keys() >= {"level", "message", "process", "time"} for line in lines)


def test_nobody_stays_when_the_main_process_is_killed(passing):
    children = children_of(passing.process.pid)
    passing.process.kill()
    passing.process.wait(30)
    passing.wait_for(lambda: not any(_runs(child) for child in children))


def _runs(process):
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_a_first_model_that_cannot_be_loaded_ends_the_start_with_one_line(runs, tmp_path):
    broken = tmp_path / "broken"
    broken.mkdir()
    for file in (runs / "one").iterdir():
        (broken / file.name).write_bytes(file.read_bytes()[:-1] if file.name == "users.parquet" else file.read_bytes())
    command = [sys.executable, "-c", RUN_COMMAND, "serve", str(broken), "--port", "0", "--processes", "2"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 2
    assert "users.parquet is damaged" in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr


def test_metrics_of_processes_are_joined_by_name():
    shared = SharedMetrics(["main", "1"])
    shared.write(
        "main", b'# HELP a Of a.\n# TYPE a counter\na_total{kind="x y"} 1.0\n# HELP b B.\n# TYPE b gauge\nb 2.0\n'
    )
    shared.write("1", b"# HELP b B.\n# TYPE b gauge\nb 3.0\n")
    assert shared.read().decode().splitlines() == [
        *("# HELP a Of a.", "# TYPE a counter", 'a_total{process="main",kind="x y"} 1.0'),
        *("# HELP b B.", "# TYPE b gauge", 'b{process="main"} 2.0', 'b{process="1"} 3.0'),
    ]
    shared.write("1", b"")
    assert b'process="1"' not in shared.read()


def test_a_process_that_cannot_be_started_is_tried_again(runs, tmp_path):
    """As where the most processes of a container are running: the others continue."""
    failing = (
        "import errno, os; real, left = os.fork, [3];"
        "os.fork = lambda: left.append(left.pop() - 1) or (real() if left[0] < 0 else os.open('/no/such/file', 0));"
    )
    with serving(runs / "one", *FLAGS, log=tmp_path / "log", before=failing) as started:
        assert "could not be started and is tried again" in started.log
        assert httpx.get(f"{started.url}/v1/recommend/u1").status_code == 200


@pytest.mark.skipif(sys.platform != "linux", reason="memory is read from /proc")
def test_a_further_process_adds_less_than_60_mb_to_a_large_model(tmp_path):
    run, found = tmp_path / "run", {}
    make_run(run, SIZES["large"], 0)
    for count in (2, 3):
        with started(run, "--processes", str(count)) as (port, process):
            counter = iter(range(10**6))
            asyncio.run(closed_loop(port, requests_of(SIZES["large"]), 16, lambda c=counter: next(c) >= 500))
            found[count] = sum(memory_of(each)["pss"] for each in (process, *children_of(process)))
    assert found[3] - found[2] < 60, found
