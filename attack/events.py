"""The journal of events, updates of a run, and services of several processes: killed, failing, changed, pruned.

What was acknowledged is read once, as it was sent; what was not may be read or not; nothing else ever is.
"""

import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from itertools import count
from pathlib import Path
from typing import Any

import httpx

from attack.damage import CALLS, ERRORS, Failing, Full
from attack.limits import command, result_of, write_log
from attack.writers import die_at_file_call
from rankformer.data.journal import Event, JournalReader, JournalWriter, prune, segments

PROCESSES = 3
CLIENTS = 4


def journal(folder: Path, kills: int, faults: int, changes: int, prunings: int, seed: int) -> dict[str, Any]:
    """Return how many events were lost, invented or read twice, when writers die and fail and bytes change."""
    rng, found = random.Random(seed), Counter[str]()
    _killed_writers(folder / "killed", kills, rng, found)
    _failing_writers(folder / "failing", faults, rng, found)
    _changed_segments(folder / "changed", changes, rng, found)
    _pruned_meanwhile(folder / "pruned", prunings, found)
    names = ("kills", "faults", "changes", "prunings", "acknowledged", "lost", "invented", "twice")
    return {name: found[name] for name in names}


def _check(found: Counter[str], acknowledged: Iterable[Any], sent: Iterable[Any], read: Iterable[Event]) -> None:
    got, told = Counter((event.user, event.item) for event in read), Counter(acknowledged)
    found["acknowledged"] += told.total()
    found["lost"] += (told - got).total()
    found["invented"] += len(got.keys() - {*sent})
    found["twice"] += sum(times > 1 for times in got.values())


def _killed_writers(folder: Path, kills: int, rng: random.Random, found: Counter[str]) -> None:
    """Append in forked processes that die at a call that touches the disk; a pipe says what each was told."""
    acknowledged, sent = [], []
    while found["kills"] < kills:
        number, file_call, (ours, theirs), tell = len(sent), rng.randint(1, 60), os.pipe(), os.write
        child = os.fork()
        if child == 0:
            writer = JournalWriter(folder)
            die_at_file_call(file_call)
            for step in range(20):
                writer.append([Event(number, 2 * step, 1), Event(number, 2 * step + 1, 1)])
                tell(theirs, bytes([step]))
            os._exit(0)
        os.close(theirs)
        with os.fdopen(ours, "rb") as told:
            acknowledged += [(number, 2 * step + each) for step in told.read() for each in (0, 1)]
        found["kills"] += os.WIFSIGNALED(os.waitpid(child, 0)[1])
        sent += [(number, each) for each in range(40)]
    _check(found, acknowledged, sent, JournalReader(folder).new_events())


def _failing_writers(folder: Path, faults: int, rng: random.Random, found: Counter[str]) -> None:
    """Append while a call fails or the disk is full; whoever is told of it sends the events no more."""
    writer, acknowledged, sent = JournalWriter(folder), [], []
    while found["faults"] < faults:
        events = [(len(sent), each) for each in range(rng.randint(1, 5))]
        sent += events
        written = sum(path.stat().st_size for path in segments(folder))
        fault = (
            Failing(rng.choice(CALLS), rng.randint(1, 3), rng.choice(ERRORS))
            if rng.random() < 0.5
            else Full(rng.randrange(written + 200))
        )
        with fault:
            try:
                writer.append([Event(*each, 1) for each in events])
                acknowledged += events
            except OSError:
                found["faults"] += 1
    writer.close()
    found["lost"] += sum(path.stat().st_size == 0 for path in segments(folder))  # a full disk would fill with these
    _check(found, acknowledged, sent, JournalReader(folder).new_events())


def _changed_segments(folder: Path, changes: int, rng: random.Random, found: Counter[str]) -> None:
    """Flip a bit, cut the end or put zeros in the place of a part: only the events that were touched are gone."""
    sent, writer = [(f"user {number}", number) for number in range(300)], JournalWriter(folder)
    writer.append([Event(*each, 1) for each in sent])
    [path] = segments(folder)
    whole = path.read_bytes()
    ends = [end for end, byte in enumerate(whole) if byte == 10]
    for number in range(changes):
        data, start = bytearray(whole), rng.randrange(len(whole))
        match number % 4:
            case 0 | 1:
                end = start + 1
                data[start] ^= 1 << rng.randrange(8)
            case 2:
                end = len(data)
                del data[start:]
            case _:
                end = min(len(data), start + rng.choice((9, 600, 5000)))
                data[start:end] = bytes(rng.choice((end - start, 70_000, 200_000)))
        path.write_bytes(bytes(data))
        # A line end that was changed takes the next event with it.
        safe = [each for each, stop in zip(sent, ends, strict=True) if not start - 60 <= stop < end + 60]
        _check(found, safe, sent, JournalReader(folder).new_events())
        found["changes"] += 1


def _pruned_meanwhile(folder: Path, prunings: int, found: Counter[str]) -> None:
    """Append from several writers while another prunes what was read: each event is read once."""
    writers, done, acknowledged = [JournalWriter(folder) for _ in range(3)], threading.Event(), []
    reader, read, numbers = JournalReader(folder), list[Event](), count()

    def append(writer: JournalWriter) -> None:
        while not done.is_set():
            number = next(numbers)
            writer.append([Event("u", number, 1)])
            acknowledged.append(("u", number))
            if number % 40 == 0:
                writer.close()  # as a process that ends; the next event begins another segment

    threads = [threading.Thread(target=append, args=(writer,)) for writer in writers]
    for thread in threads:
        thread.start()
    while found["prunings"] < prunings:
        read += reader.new_events()
        found["prunings"] += prune(folder, reader.positions)
    done.set()
    for thread in threads:
        thread.join()
    read += reader.new_events()
    _check(found, acknowledged, acknowledged, read)


def killed_updates(folder: Path, kills: int, seed: int) -> dict[str, Any]:
    """Kill updates of a run and make them again; return how often the run changed or the result was another."""
    rng, run, out, events = random.Random(seed), folder / "run", folder / "out", folder / "events"
    log, new = write_log(folder / "log.csv", users=200, rows=4000), folder / "new.csv"
    train = ["train", str(log), "--model", "lightgcn", "--set", "epochs=2", "--json", "--out", str(run)]
    _done(command(train))
    new.write_text("user,item,time\n" + "".join(f"{user},{user % 7 + 500},9\n" for user in range(150, 260)))
    JournalWriter(events).append([Event(user, 3, 5_000_000) for user in range(100)])
    words = ["update", str(run), "--with", str(new), "--journal", str(events), "--json", "--out"]
    before, started = _bytes_of(run), time.perf_counter()
    _done(command([*words, str(folder / "undisturbed")]))
    seconds, expected = time.perf_counter() - started, result_of(folder / "undisturbed")
    found = Counter[str]()
    while found["kills"] < kills:
        if rng.random() < 0.6:
            die = f"from attack.writers import die_at_file_call; die_at_file_call({rng.randint(1, 90)})"
        else:
            moment = rng.uniform(0, seconds)
            die = f"import threading, os; threading.Timer({moment}, os.kill, (os.getpid(), 9)).start()"
        flags = [] if rng.random() < 0.5 else ["--overwrite"]
        ended = command([*words, str(out), *flags], before=die)
        found["kills"] += ended.returncode < 0
        found["parent changed"] += _bytes_of(run) != before
        if ended.returncode >= 0:  # refused, as it holds what another left; or done before its end came
            found["lost or mixed"] += ended.returncode not in (0, 2) or "Traceback" in ended.stderr
            continue
        whole = (out / "manifest.json").exists()
        found["lost or mixed"] += whole and result_of(out) != expected
        if rng.random() < 0.3:
            again = command([*words, str(out), "--overwrite"])
            found["made again"] += 1
            found["different"] += bool(again.returncode) or result_of(out) != expected
    names = ("kills", "made again", "parent changed", "lost or mixed", "different")
    return {name: found[name] for name in names}


def _done(ended: Any) -> None:
    if ended.returncode:
        raise RuntimeError(ended.stderr)


def _bytes_of(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def killed_processes(folder: Path, kills: int, seed: int) -> dict[str, Any]:
    """Kill the processes of a service one after another while callers ask and send events.

    A caller whose connection broke asks again, once: an answer is lost when that fails too.
    """
    from tests.serving.clients import serving
    from tests.serving.runs import write_run

    rng, found, done, events = random.Random(seed), Counter[str](), threading.Event(), folder / "journal"
    run, acknowledged, sent = write_run(folder / "run"), list[Any](), list[Any]()
    flags = ("--no-access-log", "--processes", str(PROCESSES), "--journal", str(events))
    with serving(run, *flags, log=folder / "log", OMP_NUM_THREADS="1") as service:

        def ask(number: int) -> None:
            numbers = count()
            while not done.is_set():
                with httpx.Client(base_url=service.url, timeout=30) as client:
                    while not done.is_set() and _asked(client.get, f"/v1/recommend/u{rng.randrange(900)}", found):
                        event = (f"u{number}", f"caller {number} event {next(numbers)}")
                        sent.append(event)
                        body = {"events": [{"user": event[0], "item": event[1]}]}
                        if not _asked(client.post, "/v1/events", found, json=body):
                            break
                        acknowledged.append(event)

        callers = [threading.Thread(target=ask, args=(number,)) for number in range(CLIENTS)]
        for caller in callers:
            caller.start()
        for _ in range(kills):
            time.sleep(1.0)
            running = _children(service.process.pid)
            victim = rng.choice(running)
            os.kill(victim, signal.SIGKILL)
            found["kills"] += 1
            deadline = time.monotonic() + 20
            while victim in _children(service.process.pid) or len(_children(service.process.pid)) < PROCESSES:
                if time.monotonic() > deadline:
                    found["not replaced"] += 1
                    break
                time.sleep(0.05)
        done.set()
        for caller in callers:
            caller.join()
        tracebacks = service.log.count("Traceback")
    read = Counter((event.user, event.item) for event in JournalReader(events).new_events())
    lost = Counter(acknowledged) - read
    # Each kill may break what each caller was just asking.
    lost_answers = found["refused"] + max(0, found["broken"] - CLIENTS * kills)
    return {
        **{name: found[name] for name in ("kills", "answers", "broken", "not replaced")},
        "events": len(acknowledged),
        "lost answers": lost_answers,
        "lost events": lost.total() + len(read.keys() - {*sent}),
        "tracebacks": tracebacks,
    }


def _asked(request: Callable[..., Any], path: str, found: Counter[str], **options: Any) -> bool:
    """Return whether a request was answered; its connection may have been that of a killed process."""
    try:
        status = request(path, **options).status_code
    except httpx.TransportError:
        found["broken"] += 1
        return False
    found["answers"] += 1
    found["refused"] += status != 200
    return bool(status == 200)


def _children(pid: int) -> list[int]:
    """Return the processes that a process has started and that have not ended."""
    found = [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return [each for each in found if "State:\tZ" not in Path(f"/proc/{each}/status").read_text()]
