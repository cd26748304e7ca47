"""`RecentEvents`: what the journal holds beyond a run, by user: left out of their lists, and folded in."""

import sys
import threading
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any

from rankformer.data.journal import Event, JournalReader
from rankformer.data.weights import OTHER
from rankformer.serving.errors import invalid, shortened
from rankformer.serving.ids import IdIndex
from rankformer.serving.schemas import EventEntry

_CLOCKS_DIFFER = timedelta(hours=1)
_READ_AT_ONCE = 1 << 15  # bytes of the journal, some hundred events
_EVENTS_AT_ONCE = 500

Added = dict[int, float]  # weight of each item of the catalogue that a user has since the run, by its index


class RecentEvents:
    """The events after a run's positions in the journal; an answer sees whatever any process has appended."""

    def __init__(
        self, reader: JournalReader, users: IdIndex, items: IdIndex, weights: Mapping[str, float] | None
    ) -> None:
        """Begin where the run ends.

        Args:
            reader: of the journal, at the positions of the run.
            users: ids of the run's users.
            items: ids of its items.
            weights: of events, None where the run has none.
        """
        self._reader, self._users, self._items, self._weights = reader, users, items, weights
        self._lock, self._by_user = threading.Lock(), dict[Any, Added]()
        self._cut_off = 0

    @property
    def is_far_behind(self) -> bool:
        """Whether there is more to read than the event loop may wait for: `catch_up` in a thread first."""
        return self._reader.waiting_bytes() > self._cut_off + _READ_AT_ONCE

    def catch_up(self) -> None:
        """Read what was appended, in parts, so that others can answer meanwhile."""
        while self._read(_EVENTS_AT_ONCE):
            pass
        self._cut_off = self._reader.waiting_bytes()  # what kills left at the ends of segments

    def of(self, user: Any) -> Added:
        """Return what a user, known or not, has since the run; `user` is an id as `IdIndex.accepted` returns it."""
        self._read(sys.maxsize)
        with self._lock:
            return dict(self._by_user.get(user, {}))

    def _read(self, most: int) -> int:
        """Take so many new events; return how many there were."""
        count = 0
        with self._lock:
            for event in islice(self._reader.new_events(), most):
                count += 1
                weight, item = self._weight(event.event), self._items.find(event.item)
                if weight and item is not None:
                    added = self._by_user.setdefault(self._users.accepted(event.user), {})
                    added[item] = added.get(item, 0.0) + weight * (1.0 if event.weight is None else event.weight)
        return count

    def _weight(self, event: str | None) -> float | None:
        """Return what an event counts; None where the run has weights and none for it."""
        if self._weights is None:
            return 1.0
        return self._weights.get(event or "", self._weights.get(OTHER))

    def described(self, entry: dict[str, Any]) -> dict[str, Any]:
        """Return the JSON Schema of an `EventEntry` with what this run takes: the types of its ids, its events."""
        fields, required = dict(entry["properties"]), list(entry["required"])
        changes = {"user": self._users.json_schema, "item": self._items.json_schema}
        if self._weights is None:
            changes["event"] = {"type": "null"}
        elif OTHER not in self._weights:
            changes["event"] = {"type": "string", "enum": sorted(self._weights)}
            required.append("event")
        for name, schema in changes.items():
            kept = {key: fields[name][key] for key in ("title", "description") if key in fields[name]}
            fields[name] = kept | schema
        return {**entry, "properties": fields, "required": required}

    def records(self, entries: Sequence[EventEntry]) -> list[Event]:
        """Return what is appended for a request, or raise the error for an event that no update could learn."""
        return [self._record(entry, f"events.{at}") for at, entry in enumerate(entries)]

    def _record(self, entry: EventEntry, where: str) -> Event:
        ids = []
        for kind, index in (("user", self._users), ("item", self._items)):
            value = index.accepted(getattr(entry, kind))
            if value is None:
                example = f", such as {shortened(index.values[0])}" if len(index) else ""
                raise invalid(f"{where}.{kind}: ids of this model are of type {index.type}{example}")
            ids.append(value)
        if self._weights is None and entry.event is not None:
            raise invalid(f"{where}.event: the run was trained without weights of events; leave it out")
        if self._weight(entry.event) is None:
            known = ", ".join(sorted(self._weights or ()))
            raise invalid(f"{where}.event: expected one of {known}")
        return Event(ids[0], ids[1], _microseconds(entry.time, where), entry.event, entry.weight)


def _microseconds(text: str | None, where: str) -> int:
    """Return a moment as microseconds since 1970; now without one."""
    now = datetime.now(UTC)
    try:
        moment = now if text is None else datetime.fromisoformat(text.upper())
    except ValueError:
        raise invalid(f"{where}.time: expected a date and time such as 2026-05-01T12:00:00Z") from None
    moment = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment
    if moment > now + _CLOCKS_DIFFER:
        raise invalid(f"{where}.time: it lies in the future")
    return (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
