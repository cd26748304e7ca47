"""The files under deploy/: that they name only options, routes, metrics and files that exist."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import httpx
import pytest
import typer
import yaml
from tests import ranks
from tests.serving.clients import serving
from tests.serving.runs import write_run

from rankformer.cli.main import app
from rankformer.data.sharding import LEAST_MEMORY, shard_log
from rankformer.data.source import DataSource

ROOT = Path(__file__).parent.parent
DEPLOY = ROOT / "deploy"
FILES = [path for path in sorted(DEPLOY.rglob("*")) if path.is_file()]
TOKENS = {"RANKFORMER_TOKEN", "RANKFORMER_ADMIN_TOKEN"}
OURS_ELSEWHERE = {"RANKFORMER_RUNS"}  # of the compose file itself


def serve_variables():
    command = typer.main.get_command(app).commands["serve"]
    return {f"RANKFORMER_SERVE_{parameter.name.upper()}" for parameter in command.params}


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    """A service configured by its environment alone."""
    folder = tmp_path_factory.mktemp("deployed")
    run = write_run(folder / "run")
    environment = {
        "RANKFORMER_SERVE_MAX_K": "7",
        "RANKFORMER_SERVE_LOG_FORMAT": "json",
        "RANKFORMER_SERVE_PROCESSES": "2",
    }
    with serving(run, log=folder / "log", **environment) as started:
        for path in ("/v1/recommend/u1", "/v1/recommend/nobody", "/v1/recommend/u1?k=8"):
            httpx.get(f"{started.url}{path}", headers={"X-Request-Id": "of-a-caller"})
        started.wait_for(lambda: "of-a-caller" in started.log)
        yield started


def test_options_come_from_the_environment(service):
    assert httpx.get(f"{service.url}/v1/recommend/u1?k=7").status_code == 200
    assert httpx.get(f"{service.url}/v1/recommend/u1?k=8").status_code == 422
    assert httpx.get(f"{service.url}/metrics").text.count("process_resident_memory_bytes{") == 3


def test_lines_of_the_log_are_json_with_the_id_of_the_request(service):
    lines = [json.loads(line) for line in service.log.splitlines()]
    [refused] = [line for line in lines if line.get("status") == 422 and line["request_id"] == "of-a-caller"]
    assert (refused["method"], refused["path"], refused["route"]) == ("GET", "/v1/recommend/u1", "/v1/recommend/{user}")
    answer = httpx.get(f"{service.url}/v1/model", headers={"X-Request-Id": "no good\u00e9".encode()})
    made = answer.headers["x-request-id"]
    assert re.fullmatch("[0-9a-f]{16}", made)
    service.wait_for(lambda: made in service.log)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_every_variable_is_one_that_is_read(file):
    found = set(re.findall(r"\bRANKFORMER_[A-Z_]*[A-Z]\b", file.read_text()))
    assert found <= serve_variables() | TOKENS | OURS_ELSEWHERE


def expressions():
    dashboard = json.loads((DEPLOY / "grafana/dashboards/rankformer.json").read_text())
    found = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    rules = yaml.safe_load((DEPLOY / "prometheus/rules.yml").read_text())
    return found + [rule["expr"] for group in rules["groups"] for rule in group["rules"]]


def test_every_metric_of_the_dashboard_and_of_the_alerts_exists_with_its_labels(service):
    text = httpx.get(f"{service.url}/metrics").text
    known = set(re.findall(r"^([a-z_]+)[{ ]", text, re.MULTILINE))
    assert len(expressions()) > 20
    for expression in expressions():
        # up comes from Prometheus; a rejection only appears once there is one.
        names = set(re.findall(r"\b(?:rankformer|process)_[a-z_]+\b", expression)) - {"rankformer_rejections_total"}
        assert names <= known, expression
        for label in re.findall(r"by \(([a-z, ]+)\)", expression):
            for name in label.split(", "):
                assert name == "reason" or f'{name}="' in text, expression
    assert "# TYPE rankformer_rejections_total counter" in text


def test_the_dashboard_has_no_two_panels_in_one_place():
    panels = json.loads((DEPLOY / "grafana/dashboards/rankformer.json").read_text())["panels"]
    cells = [
        (x, y)
        for box in (panel["gridPos"] for panel in panels)
        for x in range(box["x"], box["x"] + box["w"])
        for y in range(box["y"], box["y"] + box["h"])
    ]
    assert len(cells) == len(set(cells))
    assert max(x for x, _ in cells) < 24


def instructions():
    lines = re.sub(r"\\\n", " ", (DEPLOY / "Dockerfile").read_text()).splitlines()
    return [tuple(line.split(None, 1)) for line in lines if line.strip() and not line.startswith("#")]


def test_the_image_is_pinned_small_and_runs_as_nobody():
    steps = instructions()
    bases = [value.split()[0] for name, value in steps if name == "FROM"]
    assert all(re.search(r":\d+\.\d+\.\d+-slim", base) for base in bases)
    assert len(bases) == 2  # what builds does not ship
    last = [value for name, value in steps if name == "USER"][-1]
    assert int(last) > 0
    assert [name for name, _ in steps].count("HEALTHCHECK") == 1
    assert any("-c constraints.txt" in value for name, value in steps if name == "RUN")
    ignored = (DEPLOY / "Dockerfile.dockerignore").read_text().split()
    for name, value in steps:
        if name == "COPY" and "--from" not in value:
            *sources, _ = shlex.split(value)
            assert all((ROOT / source).exists() and f"!{source}" in ignored for source in sources)
    check = next(json.loads(value.partition("CMD ")[2]) for name, value in steps if name == "HEALTHCHECK")
    compile(check[2], "healthcheck", "exec")


def test_the_health_check_of_the_image_passes_while_the_service_is_ready(service):
    check = next(json.loads(value.partition("CMD ")[2]) for name, value in instructions() if name == "HEALTHCHECK")
    command = [sys.executable, *check[1:]]
    for port, code in ((service.port, 0), (1, 1)):
        environment = {"RANKFORMER_SERVE_PORT": str(port)}
        done = subprocess.run(command, env=environment, capture_output=True, timeout=60, check=False)
        assert done.returncode == code


def test_compose_mounts_what_exists_and_publishes_to_this_machine_alone():
    compose = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    for name, service in compose["services"].items():
        assert all(port.startswith("127.0.0.1:") for port in service.get("ports", [])), name
        assert "build" in service or not service["image"].endswith(":latest"), name
        for volume in service.get("volumes", []):
            if volume.startswith("./"):
                assert (DEPLOY / volume.split(":")[0]).exists(), volume
    scraped = yaml.safe_load((DEPLOY / "prometheus/prometheus.yml").read_text())["scrape_configs"][0]
    assert scraped["static_configs"][0]["targets"] == ["rankformer:8000"]


def test_kubernetes_probes_and_names_fit_together(service):
    documents = list(yaml.safe_load_all((DEPLOY / "kubernetes.yaml").read_text()))
    by_kind = {document["kind"]: document for document in documents}
    pod = by_kind["Deployment"]["spec"]["template"]
    [container] = pod["spec"]["containers"]
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        assert httpx.get(service.url + container[probe]["httpGet"]["path"]).status_code == 200
        assert container[probe]["httpGet"]["port"] == container["ports"][0]["name"]
    assert pod["metadata"]["labels"].items() >= by_kind["Service"]["spec"]["selector"].items()
    assert by_kind["Service"]["spec"]["ports"][0]["targetPort"] == container["ports"][0]["name"]
    claims = [
        volume["persistentVolumeClaim"]["claimName"]
        for volume in pod["spec"]["volumes"]
        if len(volume) > 1 and "persistentVolumeClaim" in volume
    ]
    assert claims == [by_kind["PersistentVolumeClaim"]["metadata"]["name"]]
    assert {mount["name"] for mount in container["volumeMounts"]} == {
        volume["name"] for volume in pod["spec"]["volumes"]
    }
    assert pod["spec"]["enableServiceLinks"] is False


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
def test_systemd_accepts_the_unit(tmp_path):
    unit = (DEPLOY / "rankformer.service").read_text()
    (tmp_path / "rankformer.service").write_text(unit.replace("/opt/rankformer/bin/rankformer", sys.executable))
    command = ["systemd-analyze", "verify", str(tmp_path / "rankformer.service")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert "rankformer.service" not in done.stderr, done.stderr


def test_every_command_in_the_guide_has_options_that_exist():
    text = (ROOT / "docs/deployment.md").read_text()
    options = {name for each in typer.main.get_command(app).commands["serve"].params for name in each.opts}
    lines = [line.strip() for line in text.splitlines() if line.startswith("    ") and "rankformer serve" in line]
    assert lines
    for line in lines:
        assert set(re.findall(r" (--[a-z-]+)", line.partition("rankformer serve")[2])) <= options, line
    assert set(re.findall(r"RANKFORMER_[A-Z_]*[A-Z]\b", text)) <= serve_variables() | TOKENS | OURS_ELSEWHERE
    assert all((ROOT / "deploy" / file).exists() for file in re.findall(r"`deploy/([\w./-]+)`", text))


def test_the_slurm_script_trains_on_the_shards_of_two_nodes(tmp_path):
    """Slurm's own commands are stood in for: the hosts are this one, and each task of `srun` is a process here."""
    pytest.importorskip("duckdb")
    shard_log(DataSource(source="demo"), 2, tmp_path / "shards", LEAST_MEMORY)
    stand_ins = {
        "scontrol": "echo localhost",
        "srun": 'for node in $(seq "$SLURM_JOB_NUM_NODES"); do "$@" & tasks="$tasks $!"; done\n'
        "for task in $tasks; do wait $task || exit 1; done",
    }
    for name, text in stand_ins.items():
        (tmp_path / name).write_text(f"#!/bin/bash\n{text}\n")
        (tmp_path / name).chmod(0o755)
    slurm = {"SLURM_JOB_NODELIST": "a,b", "SLURM_JOB_NUM_NODES": "2", "SLURM_JOB_ID": "7", "SLURM_CPUS_PER_TASK": "1"}
    path = os.pathsep.join([str(tmp_path), str(Path(sys.executable).parent), os.environ["PATH"]])
    done = subprocess.run(
        ["bash", DEPLOY / "launch" / "train.slurm", "shards", "run", "--epochs", "3", "--set", "embedding_dim=8"],
        cwd=tmp_path,
        env={**os.environ, **slurm, "PATH": path, "RENDEZVOUS_PORT": str(ranks.free_port())},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.count("rankformer on shards:") == 1, "the first rank alone prints"
    assert (tmp_path / "run" / "manifest.json").is_file()
    [job] = [path for path in FILES if path.name == "pytorchjob.yaml"]
    worker = yaml.safe_load(job.read_text())["spec"]["pytorchReplicaSpecs"]["Worker"]
    words = worker["template"]["spec"]["containers"][0]["command"]
    assert words[:4] == ["torchrun", "-m", "rankformer", "train"]
    known = {name for each in typer.main.get_command(app).commands["train"].params for name in each.opts}
    assert {word for word in words[4:] if word.startswith("--")} <= known
