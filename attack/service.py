"""The service under bad callers: bodies made to be dear, idle, slow and deaf connections, swaps under load.

Everything is aimed at `rankformer serve` in a process of its own, whose processor time and memory are read from /proc.
A probe asks /livez all the while.
"""

import asyncio
import os
import random
import re
import socket
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx

from attack.regressions import Findings, kind
from attack.report import BELOW

JSON = {"Content-Type": "application/json"}
BODY_BYTES = 2**20
POSTS = ("/v1/recommend:batch", "/v1/recommend:session", "/v1/explain:session", "/v1/events")
HEAD = "POST {} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n"


class Probe(threading.Thread):
    """Asks /livez again and again, by default fifty times a second, each time on a new connection."""

    def __init__(self, port: int, pause: float = 0.02) -> None:
        super().__init__(daemon=True)
        self.port, self.pause = port, pause
        self.seconds, self.failed, self.stopped = [0.0], 0, threading.Event()

    def run(self) -> None:
        request = b"GET /livez HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
        while not self.stopped.wait(self.pause):
            started = time.perf_counter()
            try:
                with socket.create_connection(("127.0.0.1", self.port), timeout=30) as connection:
                    connection.sendall(request)
                    answered = connection.recv(1000).startswith(b"HTTP/1.1 200 ")
            except OSError:
                answered = False
            self.failed += not answered
            self.seconds.append(time.perf_counter() - started)

    def result(self) -> dict[str, Any]:
        self.stopped.set()
        self.join()
        ordered = sorted(self.seconds)
        p99, worst = (ordered[int(len(ordered) * share)] for share in (0.99, 0.9999))
        return {"livez asked": len(ordered), "failed": self.failed, "p99 ms": p99 * 1e3, "worst ms": worst * 1e3}


@contextmanager
def probed(port: int, found: dict[str, Any]) -> Iterator[None]:
    """Probe during a block, and put what was seen into `found`."""
    probe = Probe(port)
    probe.start()
    try:
        yield
    finally:
        found |= probe.result()


def usage(pid: int) -> tuple[float, float]:
    """Return the processor seconds a process has used and the megabytes it holds."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    status = Path(f"/proc/{pid}/status").read_text()
    rss = int(status.partition("VmRSS:")[2].split()[0]) / 1024
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK"), rss


def peak(pid: int) -> float:
    """Return the most megabytes a process has held since the last call of this, and start to count anew."""
    most = int(Path(f"/proc/{pid}/status").read_text().partition("VmHWM:")[2].split()[0]) / 1024
    with suppress(OSError):
        Path(f"/proc/{pid}/clear_refs").write_text("5")
    return most


def dear_bodies(service: Any, seed: int, count: int) -> dict[str, Any]:
    """Send bodies of one megabyte in search of the dearest; return the most processor time and memory of one."""
    rng, worst = random.Random(seed), {"bodies": 0, "cpu ms": 0.0, "memory MB": 0.0, "5xx": 0}
    statuses, names = Counter[str](), {"cpu ms": "", "memory MB": ""}
    with probed(service.port, worst), httpx.Client(base_url=service.url, timeout=60) as client:
        findings = Findings("bodies", lambda case: dear(case, service, client), fewer=("headers", "files"))
        for number, (name, body) in enumerate(bodies(rng, count)):
            case = {"method": "POST", "path": POSTS[number % len(POSTS)], "headers": JSON, "files": {"body": body}}
            status, wrong, seen = measured(case, service, client)
            if status:
                statuses[str(status)] += 1
            worst["5xx"] += status >= 500
            worst["bodies"] += 1
            for key, value in seen.items():
                if value > worst[key]:
                    worst[key], names[key] = value, name
            findings.add(case, wrong, again=service.process.poll() is None)
    return {**worst, "dearest": names, "statuses": dict(statuses)}


def answered(case: dict[str, Any], service: Any, client: httpx.Client) -> tuple[int, str]:
    """Send a request; return its status, and what came of it.

    The status is 0 where the connection was closed, and 599 where the service has ended.
    """
    before, status = service.log, 0
    # Closed while a huge body was still being sent; or a path, made shorter, that is none.
    with suppress(httpx.TransportError, httpx.InvalidURL):
        body = case.get("files", {}).get("body", b"")
        status = client.request(case["method"], case["path"], headers=case["headers"], content=body).status_code
    if service.process.poll() is not None:
        return 599, f"the service ended: {service.process.poll()}"
    said = service.log[len(before) :]
    if status < 500 and "Traceback" not in said:
        return status, "answered"
    errors = re.findall(r"\b[A-Z]\w*(?:Error|Exception)\b", said)
    return status, " ".join([str(status), *errors[-1:]]) + f": {said[-100:]}"


def measured(case: dict[str, Any], service: Any, client: httpx.Client) -> tuple[int, str, dict[str, float]]:
    """Send a request; return its status, what came of it, and the processor time and memory it took."""
    pid = service.process.pid
    before, held = usage(pid)
    peak(pid)
    status, got = answered(case, service, client)
    seen = {"cpu ms": (usage(pid)[0] - before) * 1e3, "memory MB": peak(pid) - held}
    beyond = [f"{name} beyond its bound: {value:.0f}" for name, value in seen.items() if value >= BELOW["bodies"][name]]
    return status, next(iter(beyond), got) if got == "answered" else got, seen


def dear(case: dict[str, Any], service: Any, client: httpx.Client) -> str:
    """Return what comes of a request each time: fine, if one of three in a row is."""
    for _ in range(3):
        got = measured(case, service, client)[1]
        if not kind(got):
            break
    return got


def bodies(rng: random.Random, count: int) -> Iterator[tuple[str, bytes]]:
    """Yield bodies of up to a megabyte, each with its kind: lists of very many entries, long numbers, many fields."""
    entries = [
        "[]",
        "{}",
        "1",
        '""',
        '"u1"',
        "null",
        "[[[]]]",
        "1e5",
        "true",
        '{"a":1}',
        "9" * 30,
        '"\\ud800"',
        "[1,[2]]",
    ]
    event = '{"user":"u1","item":"i1"}'
    entries += [event, '{"user":"%s","item":"i1"}' % ("x" * 900), '{"user":"u1","item":"i1","time":"2020-01-01"}']
    fields = ["users", "history", "item", "allow", "block", "k", "zzz", "events", "events"]
    for number in range(count):
        entry = entries[number] if number < len(entries) else rng.choice(entries) * rng.choice((1, 1, 2))
        entry = entry if number < len(entries) or rng.random() < 0.5 else f"[{entry},{rng.choice(entries)}]"
        size = BODY_BYTES if rng.random() < 0.7 else rng.choice((8000, 30_000, 200_000))
        field, length = rng.choice(fields), rng.choice((size, 8000 * (len(entry) + 1), 65_000 * (len(entry) + 1)))
        room = (min(size, length) - 40) // (len(entry) + 1)
        how = rng.random()
        if how < 0.8:
            known = '"users":["u1"],' if field in ("allow", "block") else ""
            body = f'{{{known}"{field}":[{",".join([entry] * room)}]}}'
        elif how < 0.9:
            body = f'{{"users":["u1"],"{field}":{rng.choice(("9", "[", " ", chr(34) + "x")) * (size - 60)}}}'
        else:
            body = "{" + ",".join(f'"{place:x}":{entry}' for place in range(room // 3)) + "}"
        yield f"{field} {entry[:20]} x {room}", body.encode()[:BODY_BYTES]


def bad_connections(service: Any, count: int) -> dict[str, Any]:
    """Open connections that say nothing, send by drops or do not read; return what they did to others."""
    found: dict[str, Any] = {"connections": 0}
    before = usage(service.process.pid)[1]
    open_ones: list[socket.socket] = []
    batch = '{"users": [' + ",".join(f'"u{number}"' for number in range(1000)) + '], "k": 80, "include_seen": true}'
    deaf = (HEAD.format(POSTS[0], len(batch)) + batch).encode()
    with probed(service.port, found):
        for number in range(count):
            connection = socket.socket()
            with suppress(OSError):
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                connection.settimeout(10)
                connection.connect(("127.0.0.1", service.port))
                kind = number % 4
                connection.sendall((b"", b"GET / HT", HEAD.format(POSTS[0], 100).encode() + b"{", deaf)[kind])
                found["connections"] += 1
            open_ones.append(connection)
        time.sleep(3)
        held = usage(service.process.pid)[1]
        with httpx.Client(base_url=service.url, timeout=30) as client:
            found["answered meanwhile"] = client.get("/v1/recommend/u1").status_code
        time.sleep(15)  # by then every time-out has passed
    found |= {"memory MB before": before, "while held": held, "after": usage(service.process.pid)[1]}
    found["tracebacks"] = service.log.count("Traceback")
    for connection in open_ones:
        connection.close()
    return found


def malformed(service: Any, count: int, seed: int) -> dict[str, Any]:
    """Send requests that are wrong in every way known; return the statuses."""
    from itertools import chain, islice

    from tests.serving.malformed import at_random, by_hand

    found: dict[str, Any] = {"requests": 0, "5xx": 0}
    statuses = Counter[str]()
    with probed(service.port, found), httpx.Client(base_url=service.url, timeout=30) as client:
        replay, parts = lambda case: answered(case, service, client)[1], ("headers", "path", "files")
        findings = Findings("requests", replay, fewer=parts)
        for method, path, headers, body in islice(chain(by_hand(), at_random(count, seed)), count):
            case = {"method": method, "path": path, "headers": headers, "files": {"body": body}}
            status, got = answered(case, service, client)
            statuses[str(status)] += 1
            found["requests"] += 1
            found["5xx"] += status >= 500
            findings.add(case, got, again=service.process.poll() is None)
    return {**found, "statuses": dict(statuses), "tracebacks": service.log.count("Traceback")}


def swaps(service: Any, folder: Path, count: int, token: str) -> dict[str, Any]:
    """Reload between two runs while others ask; return how many were not answered with 200."""
    from benchmarks.http_load import closed_loop, get

    requests, done = [get(f"/v1/recommend/u{number}?k=5") for number in range(500)], threading.Event()

    headers = {"Authorization": f"Bearer {token}"}

    def swap() -> int:
        failed = 0
        try:
            for number in range(count):
                point(folder / "current", folder / ("two", "one")[number % 2])
                answer = httpx.post(f"{service.url}/v1/admin/reload", headers=headers, timeout=60)
                failed += answer.status_code != 200
        finally:
            done.set()
        return failed

    async def both() -> tuple[dict[str, Any], int]:
        load, failed = await asyncio.gather(
            closed_loop(service.port, requests, 4, done.is_set), asyncio.to_thread(swap)
        )
        return load, failed

    load, failed = asyncio.run(both())
    not_fine = sum(number for status, number in load["statuses"].items() if status != "200") + load["broken"]
    return {"swaps": count, "failed swaps": failed, "answers": load["answered"], "failed answers": not_fine}


def point(link: Path, target: Path) -> None:
    """Let a link point elsewhere, in one step."""
    fresh = link.with_name("fresh")
    fresh.symlink_to(target)
    fresh.replace(link)
