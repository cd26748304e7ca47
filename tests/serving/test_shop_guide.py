"""The commands and the code of docs/shop.md, as they stand there, from the log to the next morning."""

import re
import runpy
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pyarrow.csv
import pytest
from tests.ports import free_port

from rankformer.runs.saved import load_run

PORT = free_port()
GUIDE = (Path(__file__).parents[2] / "docs" / "shop.md").read_text(encoding="utf-8").replace("8765", str(PORT))
URL = f"http://127.0.0.1:{PORT}"
KINDS = ("view", "cart", "purchase")


def blocks(language):
    return re.findall(rf"```{language}\n(.*?)```", GUIDE, re.DOTALL)


def rows(day, users):
    return [
        f"{user},{101 + (at * 3 + step * (1 + at % 2)) % 8},{KINDS[(at + step) % 3]},2026-05-{day + step % 3:02d}"
        for at, user in enumerate(users)
        for step in range(5)
    ]


@pytest.fixture
def shop(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    header, products = blocks("csv")
    users = ["anna", *(f"u{number}" for number in range(24))]
    Path("events.csv").write_text("\n".join([header.splitlines()[0], *rows(1, users)]) + "\n", encoding="utf-8")
    late = rows(5, ["u3", "visitor-1", "visitor-2"])
    Path("tuesday.csv").write_text("\n".join([header.splitlines()[0], *late, "u4,110,cart,2026-05-07"]) + "\n")
    Path("products.csv").write_text(products, encoding="utf-8")
    Path("stock.txt").write_text("\n".join(map(str, range(101, 109))) + "\n")


def run(command):
    words = shlex.split(command)
    if words[0] == "rankformer":
        words = [sys.executable, "-m", "rankformer", *words[1:]]
    return words


def test_the_guide(shop, tmp_path):
    train, serve, night = (block.strip().splitlines() for block in blocks("sh"))
    [code] = blocks("python")
    for command in [*train, serve[0]]:
        subprocess.run(run(command), check=True)
    with open("serve.log", "wb") as stream:
        server = subprocess.Popen(run(serve[1]), stdout=stream, stderr=stream)
    try:
        deadline = time.monotonic() + 60
        while True:
            assert server.poll() is None, Path("serve.log").read_text()
            assert time.monotonic() < deadline
            try:
                before = httpx.get(f"{URL}/readyz")
                if before.status_code == 200:
                    break
            except httpx.TransportError:
                time.sleep(0.1)
        Path("guide.py").write_text(code, encoding="utf-8")
        runpy.run_path("guide.py")
        for command in night:
            subprocess.run(run(command), check=True)
        server.send_signal(signal.SIGHUP)
        while httpx.get(f"{URL}/readyz").json() == before.json():
            assert time.monotonic() < deadline
            time.sleep(0.1)
        listed = httpx.get(f"{URL}/v1/recommend/new visitor?k=100").json()
        assert listed["fallback"] is None
        assert {entry["item_id"] for entry in listed["items"]} <= set(range(101, 109))
    finally:
        server.kill()
        server.wait()
    tuesday = load_run(Path("runs/tuesday"))
    assert tuesday.update["interactions"] == 16 + 2
    assert (tuesday.update["users"], tuesday.update["items"]) == (3, 1)
    known = set(zip(*tuesday.recommender.known.to_arrow().select(["user", "item"]).to_pydict().values(), strict=True))
    lists = pyarrow.csv.read_csv("lists.csv").to_pydict()
    assert not known & set(zip(lists["user_id"], lists["item_id"], strict=True))
    assert load_run(Path("runs/monday")).update is None
