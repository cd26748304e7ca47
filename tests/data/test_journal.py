"""What is acknowledged is read back, once; what a kill cut off is not."""

import os
import resource
import threading
import zlib

import pyarrow as pa
import pytest

from rankformer.data.id_map import IdMap
from rankformer.data.journal import (
    Event,
    JournalFullError,
    JournalReader,
    JournalWriter,
    interactions_of,
    prune,
    segments,
)
from rankformer.errors import ConfigError, DataError

EVENTS = [Event("anna", 7, 1_000_000), Event("zoë\n", 1.5, 2, "view"), Event(True, "x" * 900, 3, "buy", 2.5)]


def read(folder, positions=None):
    return list(JournalReader(folder, positions).new_events())


def test_what_is_appended_is_read_back(tmp_path):
    writer, reader = JournalWriter(tmp_path / "journal"), JournalReader(tmp_path / "journal")
    assert segments(tmp_path / "journal") == []
    writer.append(EVENTS[:2])
    assert list(reader.new_events()) == EVENTS[:2]
    writer.append(EVENTS[2:])
    assert list(reader.new_events()) == EVENTS[2:]
    assert list(reader.new_events()) == []
    assert read(tmp_path / "journal") == EVENTS


@pytest.mark.parametrize("cut", range(1, 40, 3))
def test_a_torn_tail_is_ignored_and_never_joined_with_what_follows(tmp_path, cut):
    JournalWriter(tmp_path).append(EVENTS)
    [path] = segments(tmp_path)
    os.truncate(path, path.stat().st_size - cut)
    assert read(tmp_path) == EVENTS[:2]
    JournalWriter(tmp_path).append(EVENTS[:1])  # as after a restart
    assert read(tmp_path) == [*EVENTS[:2], EVENTS[0]]


def test_a_line_that_is_being_written_is_read_once_it_is_whole(tmp_path):
    JournalWriter(tmp_path).append(EVENTS[:1])
    [path] = segments(tmp_path)
    reader, line = JournalReader(tmp_path), EVENTS[1].line()
    with open(path, "ab", buffering=0) as stream:
        stream.write(line[:9])
        assert list(reader.new_events()) == EVENTS[:1]
        stream.write(line[9:])
    assert list(reader.new_events()) == EVENTS[1:2]


def test_a_damaged_line_is_counted_and_the_others_are_read(tmp_path):
    JournalWriter(tmp_path).append(EVENTS)
    [path] = segments(tmp_path)
    data = bytearray(path.read_bytes())
    data[len(EVENTS[0].line()) + 15] ^= 1
    path.write_bytes(bytes(data))
    reader = JournalReader(tmp_path)
    assert list(reader.new_events()) == [EVENTS[0], EVENTS[2]]
    assert reader.damaged == 1


def test_lines_without_end_do_not_hide_what_follows(tmp_path):
    """A disk that lost a part of a segment gives zeros for it."""
    JournalWriter(tmp_path).append(EVENTS)
    [path] = segments(tmp_path)
    path.write_bytes(EVENTS[0].line() + bytes(200_000) + EVENTS[1].line() + EVENTS[2].line())
    reader = JournalReader(tmp_path)
    assert list(reader.new_events()) == [EVENTS[0], EVENTS[2]]
    assert reader.damaged > 0
    assert reader.waiting_bytes() == 0


@pytest.mark.parametrize(
    "content",
    [
        *(b"", b"{}", b"[]", b'{"user":[1],"item":2,"time":3}', b'{"user":1,"item":2,"time":3,"more":4}'),
        b'{"user":1,"item":2,"time":%d}' % 10**30,
        *(b'{"user":"","item":2,"time":3}', b'{"user":1,"item":"","time":3}'),
        *(b'{"user":1,"item":2,"time":3,"weight":%s}' % each for each in (b"0", b"-1", b"NaN", b"1e999", b"9" * 400)),
    ],
)
def test_a_line_that_is_not_an_event_is_damaged(content):
    assert Event.read(b"%08x %s\n" % (zlib.crc32(content), content)) is None


def test_positions_say_what_is_new(tmp_path):
    writer, reader = JournalWriter(tmp_path), JournalReader(tmp_path)
    writer.append(EVENTS[:1])
    assert list(reader.new_events()) == EVENTS[:1]
    writer.append(EVENTS[1:])
    assert read(tmp_path, reader.positions) == EVENTS[1:]
    JournalWriter(tmp_path).append(EVENTS[:1])
    assert read(tmp_path, reader.positions) == [*EVENTS[1:], EVENTS[0]]


def test_many_appenders_lose_nothing(tmp_path):
    writers = [JournalWriter(tmp_path) for _ in range(3)]
    wanted = [[Event(f"{at}-{thread}", number, 1) for number in range(40)] for at in range(3) for thread in range(2)]

    def work(at, events):
        for event in events:
            writers[at // 2].append([event])

    threads = [threading.Thread(target=work, args=each) for each in enumerate(wanted)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(segments(tmp_path)) == 3
    assert sorted(read(tmp_path)) == sorted(event for events in wanted for event in events)


def test_rotation_and_pruning(tmp_path, monkeypatch):
    monkeypatch.setattr("rankformer.data.journal._SEGMENT_BYTES", 100)
    writer, reader = JournalWriter(tmp_path), JournalReader(tmp_path)
    for number in range(8):
        writer.append([Event("u", number, 1)])
    assert len(segments(tmp_path)) > 2
    first = [next(reader.new_events())]
    assert prune(tmp_path, reader.positions) == 0
    rest = list(reader.new_events())
    assert [event.item for event in first + rest] == list(range(8))
    assert prune(tmp_path, reader.positions) > 1
    assert len(segments(tmp_path)) == 1
    writer.append([Event("u", 8, 1)])
    assert [event.item for event in reader.new_events()] == [8]


def test_what_a_process_still_writes_is_not_pruned(tmp_path):
    """Whoever appends to a removed file is told that the event is on disk, and nobody ever reads it."""
    one, two, reader = JournalWriter(tmp_path), JournalWriter(tmp_path), JournalReader(tmp_path)
    one.append(EVENTS[:1])
    two.append(EVENTS[1:2])
    assert len(list(reader.new_events())) == 2
    assert prune(tmp_path, reader.positions) == 0
    one.append(EVENTS[2:])
    assert list(reader.new_events()) == EVENTS[2:]
    one.close()
    assert prune(tmp_path, {}) == 0  # nobody says that it was read
    assert prune(tmp_path, reader.positions) == 1


def test_a_segment_that_a_kill_cut_off_is_pruned(tmp_path):
    writer = JournalWriter(tmp_path)
    writer.append(EVENTS)
    writer.close()
    [path] = segments(tmp_path)
    os.truncate(path, path.stat().st_size - 5)
    writer.append(EVENTS[:1])
    reader = JournalReader(tmp_path)
    assert len(list(reader.new_events())) == 3
    assert prune(tmp_path, {**reader.positions, path.name: len(EVENTS[0].line())}) == 0  # an event follows
    assert prune(tmp_path, reader.positions) == 1
    assert read(tmp_path) == EVENTS[:1]


def test_a_segment_may_be_pruned_while_it_is_read(tmp_path, monkeypatch):
    JournalWriter(tmp_path).append(EVENTS[:1])
    [path] = segments(tmp_path)
    gone = {tmp_path / "00000000-x.journal": 50, path: path.stat().st_size}
    monkeypatch.setattr("rankformer.data.journal._sizes", lambda folder: gone)
    assert read(tmp_path) == EVENTS[:1]


def test_a_full_disk_leaves_no_empty_segments(tmp_path):
    writer, before = JournalWriter(tmp_path), resource.getrlimit(resource.RLIMIT_FSIZE)
    writer.append(EVENTS[:1])
    for most in (len(EVENTS[0].line()) + 9, 0, 0):
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, before[1]))
        try:
            with pytest.raises(OSError, match="too large"):
                writer.append(EVENTS[1:])
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert len(segments(tmp_path)) == 1
    writer.append(EVENTS[2:])
    assert read(tmp_path) == [EVENTS[0], EVENTS[2]]


def test_a_full_journal_takes_nothing(tmp_path):
    writer = JournalWriter(tmp_path, max_bytes=len(EVENTS[0].line()) + 5)
    writer.append(EVENTS[:1])
    with pytest.raises(JournalFullError):
        writer.append(EVENTS[:1])
    assert read(tmp_path) == EVENTS[:1]
    with pytest.raises(DataError, match="more than"):
        writer.append([Event("u" * 70_000, 1, 1)])
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="is a file"):
        JournalWriter(tmp_path / "file")


def test_a_failed_write_ends_its_segment(tmp_path, monkeypatch):
    writer = JournalWriter(tmp_path)
    writer.append(EVENTS[:1])
    real = os.fsync

    def fail(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="No space"):
        writer.append(EVENTS[1:2])
    monkeypatch.setattr(os, "fsync", real)
    writer.append(EVENTS[2:])
    assert len(segments(tmp_path)) == 2
    assert {EVENTS[0], EVENTS[2]} <= set(read(tmp_path))


def test_events_become_interactions_in_the_ids_of_the_model():
    users, items = IdMap(pa.array(["a", "b"])), IdMap(pa.array([1, 2]))
    events = [Event("b", 2, 1_000_000, "view"), Event("new", 9, 2_000_000, "buy", 2.0), Event("a", 1, 3, "skip")]
    log = interactions_of(events, users, items, {"view": 1.0, "buy": 5.0, "other": 0.0})
    assert log.to_arrow().to_pylist() == [
        {"user": "b", "item": 2, "time": 1_000_000, "weight": 1.0},
        {"user": "new", "item": 9, "time": 2_000_000, "weight": 10.0},
    ]
    with pytest.raises(DataError, match="item id"):
        interactions_of([Event("a", "x", 1)], users, items, None)
    dates = IdMap(pa.array([1, 2], pa.date32()))
    assert interactions_of([Event("a", "2026-05-01", 1)], users, dates, None).item_ids.ids.type == pa.date32()
