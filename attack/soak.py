"""The soak: the service for long under a mixed load at a modest rate, with reloads and faults; plotted.

Two callers ask for lists, explanations and the page; a third reloads and does harm: damaged runs, missing runs, cut,
idle and deaf connections, malformed requests, bodies made to be dear. Memory, descriptors and latency must stay flat.
"""

import json
import random
import shutil
import signal
import socket
import statistics
import threading
import time
from collections import Counter
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any

import httpx

from attack.service import HEAD, POSTS, Probe, bodies, point, usage

RATE = 12.0  # requests of each caller in a second
PROBES = 5.0  # of /livez in a second
CALLERS = 2


class Caller(threading.Thread):
    """Asks right questions at a steady rate; keeps when each was asked, how long it took, and what was not 200."""

    def __init__(self, url: str, seed: int) -> None:
        super().__init__(daemon=True)
        self.url, self.rng, self.stopped = url, random.Random(seed), threading.Event()
        self.seen: list[tuple[float, float]] = []
        self.failed: list[str] = []

    def run(self) -> None:
        due = time.monotonic()
        with httpx.Client(base_url=self.url, timeout=30) as client:
            while not self.stopped.wait(max(0.0, due - time.monotonic())):
                due += 1 / RATE
                method, path, body = self._request()
                started = time.monotonic()
                try:
                    answer = client.request(method, path, json=body)
                    problem = f"{answer.status_code} {answer.text[:200]}" if answer.status_code != 200 else ""
                except httpx.TransportError as error:
                    problem = repr(error)
                self.seen.append((started, time.monotonic() - started))
                if problem and "nothing_to_explain" not in problem:  # right for a user without interactions
                    self.failed.append(f"{method} {path}: {problem}")

    def _request(self) -> tuple[str, str, Any]:
        user, item, rng = f"u{self.rng.randrange(900)}", f"i{self.rng.randrange(80)}", self.rng
        history = [f"i{rng.randrange(80)}" for _ in range(rng.randint(1, 10))]
        batch = [f"u{rng.randrange(900)}" for _ in range(20)]
        return rng.choice(
            (
                ("GET", f"/v1/recommend/{user}?k={rng.randint(1, 40)}", None),
                ("GET", f"/v1/recommend/{user}?k=10", None),
                ("GET", f"/v1/items/{item}/similar", None),
                ("GET", f"/v1/explain/{user}/{item}", None),
                ("GET", f"/v1/users/{user}/history", None),
                ("GET", f"/v1/items?query={rng.randrange(80)}", None),
                ("GET", rng.choice(("/", "/v1/model", "/metrics", "/readyz")), None),
                ("POST", POSTS[0], {"users": batch, "k": 10}),
                ("POST", POSTS[1], {"history": history, "k": 10}),
                ("POST", POSTS[2], {"history": history, "item": item}),
            )
        )


def soak(service: Any, folder: Path, seconds: float, token: str, seed: int, picture: Path) -> dict[str, Any]:
    """Let it run for a time; return what failed, memory, descriptors and latency, and plot them."""
    rng, samples, harm = random.Random(seed), [], _Harm(service, folder, token, seed)
    callers = [Caller(service.url, seed + number) for number in range(CALLERS)]
    probe = Probe(service.port, 1 / PROBES)
    started, cpu = time.monotonic(), usage(service.process.pid)[0]
    for thread in (*callers, probe):
        thread.start()
    next_swap = next_sample = 0.0
    try:
        while (elapsed := time.monotonic() - started) < seconds:
            if elapsed >= next_sample:
                next_sample = elapsed + seconds / 360
                samples.append((elapsed, usage(service.process.pid)[1], _descriptors(service.process.pid)))
            if elapsed >= next_swap:
                next_swap = elapsed + min(20.0, seconds / 10)
                harm.swap()
            harm.one(rng.choice(HARMS))
            time.sleep(1)
    finally:
        for caller in callers:
            caller.stopped.set()
        for caller in callers:
            caller.join()
        found = probe.result()
        harm.close()
    answers = sorted((when - started, took) for caller in callers for when, took in caller.seen)
    failed = [problem for caller in callers for problem in caller.failed]
    _plot(picture, samples, answers, harm.swaps, seconds)
    early, late = (_part(samples, share, seconds) for share in (0.2, 0.9))
    before, after = (statistics.median(sample[1] for sample in part) for part in (early, late))
    return {
        **found,
        "seconds": round(time.monotonic() - started),
        "answers": len(answers),
        "failed answers": failed,
        "swaps": len(harm.swaps),
        "failed swaps": harm.failed_swaps,
        "faults": harm.counts.total(),
        "kinds": dict(harm.counts),
        "damaged runs taken": harm.taken,
        "5xx to faults": harm.broken,
        "memory MB": after,
        "growth %": 100 * (after / before - 1),
        "descriptors from": statistics.median(sample[2] for sample in early),
        "to": statistics.median(sample[2] for sample in late),
        "answer p99 ms from": _p99(_part(answers, 0.2, seconds)),
        "p99 ms to": _p99(_part(answers, 0.9, seconds)),
        "processor %": 100 * (usage(service.process.pid)[0] - cpu) / (time.monotonic() - started),
        "tracebacks": service.log.count("Traceback"),
        "samples": samples,
    }


HARMS = ("damaged", "missing", "cut", "cut", "idle", "deaf", "malformed", "malformed", "dear", "signal", "none", "none")


class _Harm:
    """What is done to the service besides asking it; counts what was done, and what must not have worked."""

    def __init__(self, service: Any, folder: Path, token: str, seed: int) -> None:
        self.service, self.folder, self.rng = service, folder, random.Random(seed)
        self.client = httpx.Client(base_url=service.url, timeout=60)
        self.admin = {"Authorization": f"Bearer {token}"}
        self.open: list[socket.socket] = []
        self.counts, self.swaps, self.started = Counter[str](), list[float](), time.monotonic()
        self.taken, self.failed_swaps, self.broken = 0, 0, 0
        self.current = "one"

    def swap(self) -> None:
        self.current = "two" if self.current == "one" else "one"
        point(self.folder / "current", self.folder / self.current)
        self.failed_swaps += self._reload() != 200
        self.swaps.append(time.monotonic() - self.started)

    def one(self, name: str) -> None:
        self.counts[name] += name != "none"
        with suppress(OSError, httpx.TransportError):
            getattr(self, f"_{name}")()

    def close(self) -> None:
        self.client.close()
        for connection in self.open:
            connection.close()

    def _none(self) -> None:
        pass

    def _reload(self) -> int:
        for _ in range(50):  # 409 while a reload that a signal asked for is under way
            answer = self.client.post("/v1/admin/reload", headers=self.admin)
            if answer.status_code != 409 or "reload_running" not in answer.text:
                break
            time.sleep(0.1)
        return answer.status_code

    def _damaged(self) -> None:
        """Put a damaged run where the service looks; it must be refused, and the previous model continue."""
        broken = Path(shutil.copytree(self.folder / self.current, self.folder / "broken"))
        named = json.loads((broken / "manifest.json").read_bytes())["files"]  # not the card: nothing reads it
        file = broken / self.rng.choice(["manifest.json", *sorted(named)])
        data = bytearray(file.read_bytes())
        data[self.rng.randrange(len(data))] ^= 1 << self.rng.randrange(8)
        file.write_bytes(data)
        point(self.folder / "current", broken)
        self.taken += self._reload() != 409
        point(self.folder / "current", self.folder / self.current)
        shutil.rmtree(broken)

    def _missing(self) -> None:
        point(self.folder / "current", self.folder / "nowhere")
        self.taken += self._reload() != 409
        point(self.folder / "current", self.folder / self.current)

    def _signal(self) -> None:
        self.service.process.send_signal(signal.SIGHUP)

    def _cut(self) -> None:
        with socket.create_connection(("127.0.0.1", self.service.port)) as connection:
            connection.sendall(b"GET /v1/recommend/u1 HTTP/1.1\r\nHost: lo")

    def _idle(self) -> None:
        self._leave_open(b"GET / HT")

    def _deaf(self) -> None:
        """Ask for ten megabytes and do not read them."""
        batch = '{"users": [' + ",".join(f'"u{each}"' for each in range(1000)) + '], "k": 80, "include_seen": true}'
        self._leave_open((HEAD.format(POSTS[0], len(batch)) + batch).encode())

    def _leave_open(self, data: bytes) -> None:
        connection = socket.socket()
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.settimeout(10)
        connection.connect(("127.0.0.1", self.service.port))
        connection.sendall(data)
        self.open.append(connection)
        while len(self.open) > 20:
            self.open.pop(0).close()

    def _malformed(self) -> None:
        from tests.serving.malformed import at_random

        for method, path, headers, body in at_random(10, self.rng.randrange(10**6)):
            with suppress(httpx.TransportError):
                self._asked(method, path, headers, body)

    def _dear(self) -> None:
        seed = random.Random(self.rng.randrange(10**6))
        for _, body in islice(bodies(seed, 100), 60, 62):
            with suppress(httpx.TransportError):
                self._asked("POST", self.rng.choice(POSTS), {"Content-Type": "application/json"}, body)

    def _asked(self, method: str, path: str, headers: dict[str, str], body: bytes) -> None:
        self.broken += self.client.request(method, path, headers=headers, content=body).status_code >= 500


def _descriptors(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


def _part(samples: list[Any], share: float, seconds: float) -> list[Any]:
    """Return the samples of a tenth of the time, from a share of it on."""
    return [sample for sample in samples if share <= sample[0] / seconds < share + 0.1] or samples[-1:]


def _p99(answers: list[tuple[float, float]]) -> float:
    ordered = sorted(took for _, took in answers) or [0.0]
    return 1e3 * ordered[int(len(ordered) * 0.99)]


def _plot(picture: Path, samples: list[Any], answers: list[Any], swaps: list[float], seconds: float) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    figure, (memory, descriptors, latency) = plt.subplots(3, 1, figsize=(8, 7), sharex=True)
    minutes = [sample[0] / 60 for sample in samples]
    memory.plot(minutes, [sample[1] for sample in samples], lw=1)
    memory.set_ylabel("resident memory (MB)")
    descriptors.plot(minutes, [sample[2] for sample in samples], lw=1, color="tab:green")
    descriptors.set_ylabel("open descriptors")
    windows = [_window(answers, number * seconds / 60, (number + 1) * seconds / 60) for number in range(60)]
    middles = [(number + 0.5) * seconds / 3600 for number in range(60)]
    for share, name in ((0.5, "median"), (0.99, "99th percentile")):
        latency.plot(middles, [1e3 * each[int(len(each) * share)] for each in windows], lw=1, label=name)
    latency.set_ylabel("time to an answer (ms)")
    latency.set_xlabel(f"minutes; {len(answers):,} answers, {len(swaps)} reloads")
    latency.legend(frameon=False)
    for axes in (memory, descriptors, latency):
        axes.set_ylim(bottom=0)
        axes.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    figure.savefig(picture, dpi=110)
    plt.close(figure)


def _window(answers: list[tuple[float, float]], start: float, end: float) -> list[float]:
    return sorted(took for when, took in answers if start <= when < end) or [0.0]
