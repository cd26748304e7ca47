"""Ten thousand wrong requests at a real service: `python -m tests.serving.fuzz [--count N]`; prints counts by status.

By hand (every combination once), from the OpenAPI description (schemathesis, wrong on purpose), raw bytes that are no
HTTP, bodies without end and bodies that come by drops, and right requests with bytes changed until the count is
reached. Ends with 1 when anything was answered by a 5xx or the process was not the same at the end.
"""

import argparse
import itertools
import socket
import sys
import tempfile
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis import GenerationMode
from tests.serving.clients import serving
from tests.serving.malformed import at_random, by_hand
from tests.serving.runs import write_run

HEAD = b"POST /v1/recommend:batch HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
NO_HTTP = (
    b"\0" * 50 + b"\r\n\r\n",
    b"GET\r\n\r\n",
    b"GET / HTTP/9.9\r\n\r\n",
    b"GET /\xff HTTP/1.1\r\n\r\n",
    b"GET / HTTP/1.1\r\n" + b"X: y\r\n" * 20_000 + b"\r\n",
    HEAD + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\n12345",
    HEAD + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    HEAD + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n",
    HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + (b"10000\r\n" + b" " * 65536 + b"\r\n") * 20,
    HEAD + b"Content-Length: 99999999999999999999\r\n\r\n",
)


def raw(port: int, parts: list[bytes], pause: float = 0.0) -> str:
    """The status of an answer to raw bytes, or that the connection was closed without one."""
    import time

    received = b""
    with socket.create_connection(("127.0.0.1", port), timeout=30) as connection:
        try:
            for part in parts:
                connection.sendall(part)
                time.sleep(pause)
            connection.shutdown(socket.SHUT_WR)
        except OSError:
            pass  # answered before the end
        try:
            while chunk := connection.recv(65536):
                received += chunk
        except OSError:
            pass
    return received[9:12].decode("latin-1") if received.startswith(b"HTTP/1.1 ") else "closed"


def described(url: str, examples: int) -> Counter[str]:
    """The statuses of wrong requests made from the description."""
    statuses: Counter[str] = Counter()
    schema = schemathesis.openapi.from_url(f"{url}/openapi.json")
    for operation in (found.ok() for found in schema.get_all_operations()):
        if not (operation.body or operation.query):
            continue

        @settings(max_examples=examples, deadline=None, database=None, suppress_health_check=list(HealthCheck))
        @given(case=operation.as_strategy(generation_mode=GenerationMode.NEGATIVE))
        def ask(case) -> None:
            statuses[str(case.call().status_code)] += 1

        ask()
    return statuses


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=10_000, help="requests to send")
    options = parser.parse_args()
    kinds: dict[str, Counter[str]] = {}
    with tempfile.TemporaryDirectory() as name:
        run = write_run(Path(name) / "run")
        with serving(run, "--body-timeout", "1", "--no-access-log", log=Path(name) / "log") as service:
            with ThreadPoolExecutor(20) as threads:
                drops = [HEAD + b"Content-Length: 100\r\n\r\n", *[b" "] * 30]
                slow = threads.map(lambda _: raw(service.port, drops, 0.1), range(40))
                kinds["slow bodies"] = Counter(slow)
            kinds["raw bytes"] = Counter(raw(service.port, [part]) for part in NO_HTTP * 10)
            kinds["from the description"] = described(service.url, 200)
            with httpx.Client(base_url=service.url) as client:

                def statuses(requests) -> Counter[str]:
                    found: Counter[str] = Counter()
                    for method, path, headers, body in requests:
                        try:
                            answer = client.request(method, path, headers=headers, content=body)
                        except httpx.TransportError:  # closed while a huge body was still being sent
                            found["closed"] += 1
                        else:
                            found[str(answer.status_code)] += 1
                    return found

                kinds["by hand"] = statuses(by_hand())
                left = options.count - sum(sum(found.values()) for found in kinds.values())
                kinds["changed bytes"] = statuses(itertools.islice(at_random(max(0, left)), max(0, left)))
                alive = service.process.poll() is None and client.get("/v1/recommend/u1").status_code == 200
            tracebacks = service.log.count("Traceback")
    total: Counter[str] = sum(kinds.values(), Counter())
    for kind, found in {**kinds, "all": total}.items():
        print(f"{kind:22}{sum(found.values()):7}  " + "  ".join(f"{key} {found[key]}" for key in sorted(found)))
    failed = sum(count for status, count in total.items() if status.startswith("5"))
    print(f"5xx: {failed}; tracebacks in the log: {tracebacks}; the same process answers at the end: {alive}")
    return 0 if alive and not failed and not tracebacks else 1


if __name__ == "__main__":
    sys.exit(main())
