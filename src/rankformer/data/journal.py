"""The journal: interactions since a run was trained, in files that only grow.

    FOLDER/NUMBER-NAME.journal     a segment; one process appends to it, any number of processes read it
    CRC32 {"user": .., "item": .., "time": ..}     an event, one per line; CRC32 in hexadecimal, of the JSON

An event is acknowledged once its bytes are on disk (fsync). A segment is never opened for writing again: after a crash
a process begins another one, so that what a kill cut off stays the last line of a segment and is ignored. Nothing marks
events as used. A run says how far it has learned each segment (its position, in bytes), and that is saved with the run
in one step: whatever is killed, an event is in a run or after its positions, never both and never neither.
"""

import fcntl
import json
import os
import secrets
import stat
import threading
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from rankformer.data.id_map import IdMap
from rankformer.data.interactions import Interactions
from rankformer.errors import ConfigError, DataError, RankformerError
from rankformer.files import sync_folder

SUFFIX = ".journal"
MAX_LINE_BYTES = 1 << 16
_LATEST = 1 << 62  # microseconds
_SEGMENT_BYTES = 1 << 26  # after which a process begins another segment
_FIELDS: dict[str, tuple[type, ...]] = {
    "user": (str, int, float, bool),
    "item": (str, int, float, bool),
    "time": (int,),  # microseconds since 1970
    "event": (str,),
    "weight": (int, float),
}

Positions = dict[str, int]  # bytes of each segment, by its name


class JournalFullError(RankformerError):
    """The journal has reached its limit of bytes."""


class Event(NamedTuple):
    """One interaction of the journal, ids as JSON holds them."""

    user: Any
    item: Any
    time: int
    event: str | None = None
    weight: float | None = None

    def line(self) -> bytes:
        """Return the line of a segment."""
        fields = {name: value for name, value in self._asdict().items() if value is not None}
        content = json.dumps(fields, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass")
        return b"%08x %s\n" % (zlib.crc32(content), content)

    @classmethod
    def read(cls, line: bytes) -> "Event | None":
        """Return the event of a line, None for a damaged one."""
        checksum, _, content = line.rstrip(b"\n").partition(b" ")
        try:
            if len(line) > MAX_LINE_BYTES or int(checksum, 16) != zlib.crc32(content):
                return None
            fields = json.loads(content)
            event = cls(**fields) if all(type(value) in _FIELDS[name] for name, value in fields.items()) else None
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            return None
        if event is None or abs(event.time) > _LATEST or not 0 < (1 if event.weight is None else event.weight) < 1e9:
            return None
        return None if "" in (event.user, event.item) else event  # an update would take it for a missing id


class JournalWriter:
    """Appends events to a segment of this process's own."""

    def __init__(self, folder: Path, max_bytes: int = 1 << 28) -> None:
        """Make the folder if it is missing; the first event makes a segment.

        Args:
            folder: of the journal.
            max_bytes: of all segments together, beyond which no event is taken.
        """
        self.folder, self.max_bytes = folder, max_bytes
        if folder.exists() and not folder.is_dir():
            raise ConfigError(f"{folder} is a file; a journal is a folder, choose another name")
        folder.mkdir(parents=True, exist_ok=True)
        self._lock, self._segment, self._process, self._path = threading.Lock(), -1, 0, folder

    def append(self, events: Sequence[Event]) -> None:
        """Append events; they are on disk when this returns.

        Raises:
            JournalFullError: they would exceed the limit; none of them was taken.
            OSError: they could not be written; none of them counts unless all bytes of it reached the disk.
        """
        lines = [event.line() for event in events]
        if any(len(line) > MAX_LINE_BYTES for line in lines):
            raise DataError(f"an event takes more than {MAX_LINE_BYTES:,} bytes; use shorter ids")
        data = b"".join(lines)
        with self._lock:
            if sum(_sizes(self.folder).values()) + len(data) > self.max_bytes:
                raise JournalFullError(
                    f"the journal holds its most, {self.max_bytes:,} bytes; update the run and prune it"
                )
            try:
                segment = self._open()
                view = memoryview(data)
                while view:
                    view = view[os.write(segment, view) :]
                os.fsync(segment)
            except BaseException:
                self._end_failed()
                raise
            if os.fstat(segment).st_size >= _SEGMENT_BYTES:
                self.close()

    def _open(self) -> int:
        """Return the descriptor of this process's segment; a forked process makes its own."""
        if self._segment >= 0 and self._process == os.getpid():
            return self._segment
        last = max((int(path.name.partition("-")[0]) for path in segments(self.folder)), default=0)
        path = self.folder / f"{last + 1:08d}-{secrets.token_hex(4)}{SUFFIX}"
        self._segment = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL, 0o666)
        self._process, self._path = os.getpid(), path
        with suppress(OSError):  # a file system that has no locks
            fcntl.flock(self._segment, fcntl.LOCK_EX | fcntl.LOCK_NB)  # until it is closed: see `prune`
        sync_folder(self.folder)
        return self._segment

    def _end_failed(self) -> None:
        """End the segment: what was written in part stays its end. One that a full disk left empty is removed."""
        with suppress(OSError):
            if self._segment >= 0 and os.fstat(self._segment).st_size == 0:
                self._path.unlink()
        self.close()

    def close(self) -> None:
        """End the segment; the next event begins another."""
        if self._segment >= 0:
            os.close(self._segment)
        self._segment = -1


class JournalReader:
    """Reads what follows some positions, and what is appended later.

    Attributes:
        positions: how far each segment was read; positions of segments that are gone are dropped.
        damaged: how many lines were ignored because their checksum is wrong.
    """

    def __init__(self, folder: Path, positions: Mapping[str, int] | None = None) -> None:
        self.folder, self.positions, self.damaged = folder, dict(positions or {}), 0

    def new_events(self) -> Iterator[Event]:
        """Yield the events that were appended since the last call, in the order of each segment."""
        sizes = _sizes(self.folder)
        self.positions = {path.name: self.positions.get(path.name, 0) for path in sizes}
        for path, size in sizes.items():
            if size > self.positions[path.name]:
                with suppress(FileNotFoundError):  # pruned by now
                    yield from self._read(path)

    def waiting_bytes(self) -> int:
        """Return how many bytes were appended that have not been read."""
        known = self.positions
        return sum(max(0, size - known.get(path.name, 0)) for path, size in _sizes(self.folder).items())

    def _read(self, path: Path) -> Iterator[Event]:
        with open(path, "rb") as stream:
            stream.seek(self.positions[path.name])
            # A line without an end is cut off, or being written; one that is longer than any is damaged.
            while (line := stream.readline(MAX_LINE_BYTES + 1)).endswith(b"\n") or len(line) > MAX_LINE_BYTES:
                self.positions[path.name] += len(line)
                event = Event.read(line)
                if event is None:
                    self.damaged += 1
                else:
                    yield event


def segments(folder: Path) -> list[Path]:
    """Return the segments of a journal, the oldest first."""
    return list(_sizes(folder))


def _sizes(folder: Path) -> dict[Path, int]:
    """Return the bytes of each segment, the oldest first; one may be pruned at any time."""
    found = {}
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        if path.name.endswith(SUFFIX) and path.name[:8].isdecimal():
            with suppress(FileNotFoundError):
                status = path.lstat()
                if stat.S_ISREG(status.st_mode):
                    found[path] = status.st_size
    return found


def prune(folder: Path, positions: Mapping[str, int]) -> int:
    """Remove the segments that positions cover, but for the newest and those that a process writes; return how many."""
    return sum(_removed(path, positions[path.name]) for path in segments(folder)[:-1] if path.name in positions)


def _removed(path: Path, position: int) -> bool:
    """Remove a segment unless it is being written, or an event follows a position; return whether it was."""
    with suppress(OSError), open(path, "rb") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)  # fails while its writer lives: it could append more
        stream.seek(position)
        if b"\n" not in stream.read(MAX_LINE_BYTES):  # a kill may have cut off the last line
            path.unlink()
            return True
    return False


def interactions_of(
    events: Sequence[Event], user_ids: IdMap, item_ids: IdMap, event_weights: Mapping[str, float] | None
) -> Interactions:
    """Return events as interactions, with ids of the types of a model's.

    Raises:
        DataError: an id is not of that type, or an event has no weight.
    """
    columns: dict[str, pa.Array] = {"time": pa.array([event.time for event in events], pa.timestamp("us"))}
    for name, ids in (("user", user_ids), ("item", item_ids)):
        raw = [getattr(event, name) for event in events]
        try:
            columns[name] = pa.array(raw, ids.ids.type)
        except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
            try:
                columns[name] = pa.array(list(map(str, raw))).cast(ids.ids.type)
            except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
                raise DataError(f"the journal has a {name} id that is not of type {ids.ids.type}: {error}") from None
    weights = [1.0 if event.weight is None else event.weight for event in events]
    names: dict[str, Any] = {"user": "user", "item": "item", "time": "time", "weight": ""}
    if event_weights is not None or any(event.weight is not None for event in events):
        columns["weight"], names["weight"] = pa.array(weights, pa.float64()), "weight"
    if event_weights is not None:
        columns["event"] = pa.array([event.event for event in events], pa.string())
        names |= {"event": "event", "event_weights": dict(event_weights)}
    return Interactions.from_arrow(pa.table(columns), name="journal", **names)
