"""The journal of events, updates of a run, and services of several processes: killed, failing, changed, pruned.

What was acknowledged is read once, as it was sent; what was not may be read or not; nothing else ever is.
"""

import os
import random
import shutil
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from itertools import count
from pathlib import Path
from typing import Any

import httpx

from attack.damage import draw_fault, fault_of
from attack.limits import command, result_of, write_log
from attack.regressions import Findings
from attack.writers import die_at_file_call
from rankformer.data.journal import Event, JournalReader, JournalWriter, prune, segments

PROCESSES = 3
CLIENTS = 4
DIE = "from attack.writers import die_at_file_call; die_at_file_call({})"


def journal(folder: Path, kills: int, faults: int, changes: int, prunings: int, seed: int) -> dict[str, Any]:
    """Return how many events were lost, invented or read twice, when writers die and fail and bytes change."""
    rng, found = random.Random(seed), Counter[str]()
    findings = Findings("journal", lambda case: journaled(case, folder / "again"), fewer=("file_calls", "faults"))

    def seen(case: dict[str, Any]) -> None:
        findings.add(case, journaled(case, folder / "journal", found))

    while found["kills"] + found["lost"] < kills:
        seen({"file_calls": [rng.randint(1, 60) for _ in range(min(50, kills - found["kills"]))]})
    while found["faults"] + found["lost"] < faults:
        steps = range(min(50, faults - found["faults"]))
        seen({"faults": [[rng.randint(1, 5), draw_fault(rng, calls=3, size=1000)] for _ in steps]})
    while found["changes"] < changes:
        change: dict[str, Any] = {"start": rng.randrange(2**30)}
        if found["changes"] % 4 < 2:
            change |= {"bit": rng.randrange(8)}
        elif found["changes"] % 4 == 3:
            change |= {"length": rng.choice((9, 600, 5000)), "zeros": rng.choice((0, 70_000, 200_000))}
        seen(change)
    _pruned_meanwhile(folder / "pruned", prunings, found)
    names = ("kills", "faults", "changes", "prunings", "acknowledged", "lost", "invented", "twice")
    return {name: found[name] for name in names}


def journaled(case: dict[str, Any], folder: Path, found: Counter[str] | None = None) -> str:
    """Write and read a journal as a case says; return what was wrong about it, and add to what was found."""
    part = Counter[str]()
    if "file_calls" in case:
        _killed_writers(folder / "killed", case["file_calls"], part)
    elif "faults" in case:
        _failing_writers(folder / "failing", case["faults"], part)
    else:
        _changed_segment(folder / "changed", case, part)
    shutil.rmtree(folder)
    if found is not None:
        found.update(part)
    return ", ".join(name for name in ("lost", "invented", "twice") if part[name]) or "whole"


def _check(found: Counter[str], acknowledged: Iterable[Any], sent: Iterable[Any], read: Iterable[Event]) -> None:
    got, told = Counter((event.user, event.item) for event in read), Counter(acknowledged)
    found["acknowledged"] += told.total()
    found["lost"] += (told - got).total()
    found["invented"] += len(got.keys() - {*sent})
    found["twice"] += sum(times > 1 for times in got.values())


def _killed_writers(folder: Path, file_calls: list[int], found: Counter[str]) -> None:
    """Append in forked processes that die at a call that touches the disk; a pipe says what each was told."""
    acknowledged, sent = [], []
    for file_call in file_calls:
        number, (ours, theirs), tell = len(sent), os.pipe(), os.write
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


def _failing_writers(folder: Path, steps: list[Any], found: Counter[str]) -> None:
    """Append while a call fails or the disk is full; whoever is told of it sends the events no more.

    A disk is full at so many thousandths of what is written and 200 bytes more.
    """
    writer, acknowledged, sent = JournalWriter(folder), [], []
    for size, fault in steps:
        events = [(len(sent), each) for each in range(size)]
        sent += events
        written = sum(path.stat().st_size for path in segments(folder))
        with fault_of(["full", fault[1] * (written + 200) // 1000] if fault[0] == "full" else fault):
            try:
                writer.append([Event(*each, 1) for each in events])
                acknowledged += events
            except OSError:
                found["faults"] += 1
    writer.close()
    found["lost"] += sum(path.stat().st_size == 0 for path in segments(folder))  # a full disk would fill with these
    _check(found, acknowledged, sent, JournalReader(folder).new_events())


def _changed_segment(folder: Path, change: dict[str, Any], found: Counter[str]) -> None:
    """Flip a bit, cut the end or put zeros in the place of a part: only the events that were touched are gone."""
    sent, writer = [(f"user {number}", number) for number in range(300)], JournalWriter(folder)
    writer.append([Event(*each, 1) for each in sent])
    [path] = segments(folder)
    data = bytearray(path.read_bytes())
    ends = [end for end, byte in enumerate(data) if byte == 10]
    start = change["start"] % len(data)
    if "bit" in change:
        end = start + 1
        data[start] ^= 1 << change["bit"]
    elif "length" in change:
        end = min(len(data), start + change["length"])
        data[start:end] = bytes(change["zeros"] or end - start)
    else:
        end = len(data)
        del data[start:]
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
    rng, updates, found, steps = random.Random(seed), _Updates(folder), Counter[str](), []
    findings = Findings("updates", updates.replay, fewer=("steps",))
    while found["kills"] < kills:
        if rng.random() < 0.6:
            file_call = rng.randint(1, 90)
            die = DIE.format(file_call)
        else:
            file_call, moment = 0, rng.uniform(0, updates.seconds)
            die = f"import threading, os; threading.Timer({moment}, os.kill, (os.getpid(), 9)).start()"
        step = [file_call, rng.random() >= 0.5]
        steps += [step] if file_call else []  # a moment cannot be met again
        killed, wrong = updates.killed(die, step[1], folder / "out")
        found["kills"] += killed
        if killed and rng.random() < 0.3:
            found["made again"] += 1
            wrong += updates.made_again(folder / "out")
        for name in wrong:
            found[name] += 1
            findings.add({"steps": [*steps]}, name)
    names = ("kills", "made again", "parent changed", "lost or mixed", "different")
    return {name: found[name] for name in names}


def updated(case: dict[str, Any], folder: str) -> str:
    """Return the outcome of a case of `killed_updates` that was kept."""
    return _Updates(Path(folder)).replay(case)


class _Updates:
    """A run in a folder, and updates of it that are killed: beside what an undisturbed one gives."""

    def __init__(self, folder: Path) -> None:
        self.run, self.again, events, new = folder / "run", folder / "again", folder / "events", folder / "new.csv"
        log = write_log(folder / "log.csv", users=200, rows=4000)
        train = ["train", str(log), "--model", "lightgcn", "--set", "epochs=2", "--json", "--out", str(self.run)]
        _done(command(train))
        new.write_text("user,item,time\n" + "".join(f"{user},{user % 7 + 500},9\n" for user in range(150, 260)))
        JournalWriter(events).append([Event(user, 3, 5_000_000) for user in range(100)])
        self.words = ["update", str(self.run), "--with", str(new), "--journal", str(events), "--json", "--out"]
        self.before, started = _bytes_of(self.run), time.perf_counter()
        _done(command([*self.words, str(folder / "undisturbed")]))
        self.seconds, self.expected = time.perf_counter() - started, result_of(folder / "undisturbed")

    def killed(self, die: str, overwrite: bool, out: Path) -> tuple[bool, list[str]]:
        """Update, after statements that will kill it; return whether they did, and what was wrong."""
        ended = command([*self.words, str(out), *["--overwrite"] * overwrite], before=die)
        wrong = ["parent changed"] if _bytes_of(self.run) != self.before else []
        if ended.returncode >= 0:  # refused, as it holds what another left; or done before its end came
            is_wrong = ended.returncode not in (0, 2) or "Traceback" in ended.stderr
        else:
            is_wrong = (out / "manifest.json").exists() and result_of(out) != self.expected
        return ended.returncode < 0, wrong + ["lost or mixed"] * is_wrong

    def made_again(self, out: Path) -> list[str]:
        """Update without a disturbance; return what was wrong."""
        again = command([*self.words, str(out), "--overwrite"])
        return ["different"] if again.returncode or result_of(out) != self.expected else []

    def replay(self, case: dict[str, Any]) -> str:
        """Kill updates of a fresh folder at file calls, one after another, and update again; return what came of it."""
        shutil.rmtree(self.again, ignore_errors=True)
        for file_call, overwrite in case["steps"]:
            if wrong := self.killed(DIE.format(file_call), overwrite, self.again)[1]:
                return wrong[0]
        return next(iter(self.made_again(self.again)), "whole")


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
