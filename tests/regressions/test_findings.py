"""A fault is planted, a campaign finds it, makes it small and keeps it; what is kept fails until the fault is gone."""

import math
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import httpx
import pytest
from attack import damage, events, hostile, inputs, numerics, service, values
from attack.__main__ import REPLAYS, Attack
from attack.regressions import Findings, encoded, fewer_of, keep, kept, kind, smaller_of
from tests.ports import free_port

from rankformer.data.journal import JournalWriter
from rankformer.errors import RunFolderError
from rankformer.models import registry
from rankformer.models.base import Model
from rankformer.models.popularity import Popularity
from rankformer.serving import model as served

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def regressions(tmp_path, monkeypatch):
    monkeypatch.setenv("ATTACK_REGRESSIONS", str(tmp_path / "regressions"))


def only_case(campaign):
    """The one case that was kept of a campaign."""
    [(_, case)] = kept(campaign)
    return case


def repeated(campaign, folder):
    """The kinds of what the cases that were kept of a campaign do now; empty when all is fine."""
    folder.mkdir()
    return {kind(REPLAYS[campaign](case, folder)) for _, case in kept(campaign)}


def test_bytes_and_lists_lose_all_that_is_not_needed():
    assert fewer_of(b"x" * 100 + b"bad" + b"y" * 57, lambda data: b"bad" in data) == b"bad"
    assert fewer_of(list(range(30)), lambda rows: {3, 20} <= {*rows}) == [3, 20]
    assert fewer_of({"a": 1, "b": b"1234", "c": 3}, lambda part: b"3" in part.get("b", b"")) == {"b": b"3"}
    assert fewer_of("abc", lambda text: True) == ""


def test_a_byte_that_another_held_in_its_place_goes_too():
    def fails(data):  # the first letter can go only once the last is gone
        return b"k" in data and (data.startswith(b"a") or not data.endswith(b"z"))

    assert fewer_of(b"akz", fails) == b"k"


def test_a_json_value_becomes_smaller_in_every_way():
    deep = [[{"x": [[{"y": "nested"}]]}]]

    def depth(value):
        parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
        return 0 if parts is None else 1 + max(map(depth, parts), default=0)

    assert 2**70 < smaller_of({"a": 1, "b": [5, {"c": 10**400}]}, lambda value: _largest(value) > 2**70) < 2**72
    assert smaller_of(10**400, lambda value: value > 10**20) < 3 * 10**20
    assert -4 * 10**38 < smaller_of(-1e300, lambda value: value < -1e38) < -1e38
    assert smaller_of("x" * 20_000, lambda text: len(text) > 40) == "x" * 41
    assert depth(smaller_of(deep, lambda value: depth(value) > 2)) == 3
    assert smaller_of([True, None, 7, "x"], lambda value: isinstance(value, list) and True in value) == [True]
    assert smaller_of(5, lambda value: True) == 0


def _largest(value):
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return value if isinstance(value, int) else max(map(_largest, parts), default=0)


@pytest.mark.parametrize(
    "value",
    [
        *values.NUMBERS,
        b"\xff\0",
        (1, (b"x", [2**64])),
        {"a": {"$int": "1"}, 5: (), None: b""},
        10**6000,
        "\ud800é\0",
        {},
    ],
    ids=lambda value: type(value).__name__,
)
def test_every_value_survives_being_kept(value):
    keep("settings", {"settings": {"a": value}}, "KeyError in x: y")
    [(name, case)] = kept("settings")
    found = case["settings"]["a"]
    assert type(found) is type(value)
    assert found == value or (math.isnan(found) and math.isnan(value))
    assert repr(encoded(found)) == repr(encoded(value))
    assert name.startswith("keyerror-in-x-")


def test_what_is_no_plain_value_is_not_kept():
    with pytest.raises(TypeError, match="plain values only, not PosixPath"):
        keep("settings", {"a": Path()}, "x")


def test_two_findings_of_one_kind_are_kept_beside_each_other_and_none_if_so_asked(monkeypatch):
    for number in (1, 2, 2):
        keep("bytes", {"number": number, "files": {"a/b": b"\xff"}}, "loaded")
    assert sorted(case["number"] for _, case in kept("bytes")) == [1, 2]
    assert {case["files"]["a/b"] for _, case in kept("bytes")} == {b"\xff"}
    monkeypatch.setenv("ATTACK_KEEP", "0")
    keep("bytes", {"number": 3}, "loaded")
    assert len(list(kept("bytes"))) == 2


def test_what_does_not_fail_again_is_reported_and_not_kept():
    findings = Findings("requests", lambda case: "answered", fewer=("path",))
    findings.add({"path": "/a"}, "500: once")
    assert findings.found == {"500": "500: once"}
    assert list(kept("requests")) == []


def test_settings(monkeypatch, tmp_path):
    def init(self, *arguments, _real=Model.__init__, **changes):
        if isinstance(changes.get("l2"), str):
            raise KeyError("l2")
        _real(self, *arguments, **changes)

    with monkeypatch.context() as planted:
        planted.setattr(Model, "__init__", init)
        found = values.settings(count=400, fits=0, seed=0)
        case = only_case("settings")
        assert found["unexpected"]
        assert [*case["settings"]] == ["l2"]
        assert isinstance(case["settings"]["l2"], str)
        assert case["fit"] is False
        assert repeated("settings", tmp_path / "a") == {"KeyError in __init__"}
    assert repeated("settings", tmp_path / "b") == {""}


def test_settings_of_a_fit(monkeypatch, tmp_path):
    monkeypatch.setattr(registry, "MODELS", {"popularity": Popularity})
    with monkeypatch.context() as planted:
        planted.setattr(Popularity, "fit", lambda self, log: 1 // 0)
        values.settings(count=200, fits=3, seed=0)
        assert only_case("settings") == {"model": "popularity", "settings": {}, "fit": True}
    assert repeated("settings", tmp_path / "b") == {""}


def test_numerics(monkeypatch, tmp_path):
    def fit(self, log, _real=Popularity.fit):
        if (7, 0) in zip(log.users, log.items, strict=True) and log.weights is None:
            raise ValueError("seven")
        return _real(self, log)

    monkeypatch.setattr(registry, "MODELS", {"popularity": Popularity})
    with monkeypatch.context() as planted:
        planted.setattr(Popularity, "fit", fit)
        assert numerics.numerics()["unexpected"]
        assert only_case("numerics")["rows"] == [[7, 0]]
        assert repeated("numerics", tmp_path / "a") == {"ValueError in ?"}
    assert repeated("numerics", tmp_path / "b") == {""}


def test_folders(monkeypatch, tmp_path):
    def load(folder, _real=served.load_served_model):
        text = (folder / "manifest.json").read_text()
        if '"created": ' in text and '"created": "2' not in text:
            return None  # the date is not checked
        if "0" * 100 in text:
            raise OverflowError("too large")
        return _real(folder)

    monkeypatch.setattr(hostile, "BY_HAND", {name: hostile.BY_HAND[name] for name in ("log 1", "log []")})
    monkeypatch.setattr(hostile, "TO_A_BLEND", {})
    (tmp_path / "a").mkdir()
    with monkeypatch.context() as planted:
        planted.setattr(served, "load_served_model", load)
        found = Attack(0.1, 0, tmp_path / "a").folders()
        cases = {name[:8]: case for name, case in kept("folders")}
        assert {*cases} == {"loaded-" + next(n for n in cases if n.startswith("loaded"))[7:], "overflow"}
        taken = next(case for name, case in cases.items() if name.startswith("loaded"))
        assert (taken["path"], taken["within"]) == (["created"], "")
        raised = cases["overflow"]
        assert raised["within"] == ""
        assert 10**100 <= raised["value"] < 10**400
        assert found["others"]
        assert repeated("folders", tmp_path / "b") == {"loaded", "OverflowError"}
    assert repeated("folders", tmp_path / "c") == {""}


def test_bytes(monkeypatch, tmp_path):
    def load(path, _real=damage.load_run):
        try:
            return _real(path)
        except RunFolderError as error:
            if "log.jsonl" not in str(error):
                raise

    with monkeypatch.context() as planted:
        planted.setattr(damage, "load_run", load)
        assert damage.changed_bytes(tmp_path, 30, 10, seed=0)["not refused"]
        assert only_case("bytes")["file"] == "log.jsonl"
        assert repeated("bytes", tmp_path / "a") == {"log.jsonl is taken as it is"}
    assert repeated("bytes", tmp_path / "b") == {""}


def test_faults(monkeypatch, tmp_path):
    def save(path, run, _real=damage.save_run):
        try:
            _real(path, run)
        except OSError:
            (path / "manifest.json").unlink(missing_ok=True)
            raise

    with monkeypatch.context() as planted:
        planted.setattr(damage, "save_run", save)
        assert damage.failing_disk(tmp_path, 5, seed=0)["lost or mixed"]
        assert only_case("faults")["run"] is True
        assert repeated("faults", tmp_path / "a") == {"lost or mixed"}
    assert repeated("faults", tmp_path / "b") == {""}


def test_journal(monkeypatch, tmp_path):
    def append(self, events, _real=JournalWriter.append):
        with suppress(OSError):  # and nobody is told
            _real(self, events)

    with monkeypatch.context() as planted:
        planted.setattr(JournalWriter, "append", append)
        assert events.journal(tmp_path / "journal", 0, 10, 0, 0, seed=0)["lost"]
        assert len(only_case("journal")["faults"]) <= 2  # a full disk is one that something was written to
        assert repeated("journal", tmp_path / "a") == {"lost"}
    assert repeated("journal", tmp_path / "b") == {""}


def test_inputs(monkeypatch, tmp_path):
    from rankformer.data.source import DataSource

    def load(self, _real=DataSource.load):
        if self.source.endswith("/log.csv") and b"\0" in Path(self.source).read_bytes():
            raise KeyError("zero")
        return _real(self)

    with monkeypatch.context() as planted:
        planted.setattr(DataSource, "load", load)
        found = inputs.inputs(tmp_path, count=200, seed=0)
        assert found["unexpected"] == ["KeyError in ?: 'zero'"]
        case = only_case("inputs")
        assert [*case["files"].values()] == [b"\0"]
        assert case["options"] == {}
        assert repeated("inputs", tmp_path / "a") == {"KeyError in ?"}
    assert repeated("inputs", tmp_path / "b") == {""}


def in_a_process(program, *arguments):
    """What a program prints in a process that may fork."""
    command = [sys.executable, "-c", program, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_replacements(tmp_path):
    program = """if True:
        import sys; from attack import writers; from rankformer.runs import saved
        real = saved.save_run
        def save(path, run):
            (path / "manifest.json").unlink(missing_ok=True)
            real(path, run)
        saved.save_run = save
        print(writers._kill(sys.argv[1], 3, 0)["lost or mixed"])"""
    assert int(in_a_process(program, tmp_path)) >= 1
    assert len(only_case("replacements")["file_calls"]) == 1
    assert repeated("replacements", tmp_path / "b") == {""}


def test_updates(tmp_path):
    program = """if True:
        import sys; from pathlib import Path; from attack import events
        real, out = events.command, Path(sys.argv[1])
        def command(words, before=""):
            ended = real(words, before=before)
            if before and "--overwrite" not in words and ended.returncode < 0:
                Path(words[words.index("--out") + 1], "manifest.json").write_text('{"metrics": {}, "files": {}}')
            return ended
        events.command = command
        print(events.killed_updates(out, 4, 3)["lost or mixed"])"""
    assert int(in_a_process(program, tmp_path)) >= 1
    [case] = [case for name, case in kept("updates") if name.startswith("lost-or-mixed")]
    assert [overwrite for _, overwrite in case["steps"]] == [False]
    assert repeated("updates", tmp_path / "b") == {""}


def test_kills(tmp_path):
    program = """if True:
        import sys; from attack import writers; from rankformer.runs.checkpoint import CheckpointStore as Store
        from tests.runs import kill_worker
        real = Store.load
        def load(self):
            found = real(self)
            return found and ({name: each + 1 for name, each in found[0].items()}, found[1])
        Store.load = load
        kill_worker.SETTINGS |= {"epochs": 4, "embedding_dim": 32}
        print(writers._train(sys.argv[1], 2, 1)["different"])"""
    assert int(in_a_process(program, tmp_path)) >= 1
    assert len(only_case("kills")["file_calls"]) == 1
    assert repeated("kills", tmp_path / "b") == {""}


TINY = """if True:
    import os, sys, time; from http.server import BaseHTTPRequestHandler, HTTPServer
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            body = self.rfile.read(int(self.headers["Content-Length"]))
            faulty = sys.argv[2] == "faulty" and self.headers["Content-Type"] == "application/json"
            started = time.process_time()
            while faulty and b"zzz" in body and time.process_time() < started + 0.08:
                pass
            self.answer(500 if faulty and b"u1" in body and self.path.startswith("/v1/rec") else 200)
        def do_GET(self):
            if sys.argv[2] == "faulty" and "k=" in self.path:
                print("Traceback\\nKeyError: 'k'", file=sys.stderr, flush=True)
            self.answer(200)
        def do_PUT(self):
            os._exit(9)
        def answer(self, status):
            self.send_response(status); self.send_header("Content-Length", "0"); self.end_headers()
        def log_message(self, *arguments):
            pass
    HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()"""


class Tiny:
    """A service of a few lines, faulty or not, in a process of its own."""

    def __init__(self, folder, how):
        self.port, self._log = free_port(), folder / f"{how}.log"
        with open(self._log, "wb") as stream:
            self.process = subprocess.Popen([sys.executable, "-c", TINY, str(self.port), how], stderr=stream)
        self.url = f"http://127.0.0.1:{self.port}"

    @property
    def log(self):
        return self._log.read_text()

    def __enter__(self):
        for _ in range(500):
            try:
                httpx.get(self.url)
                break
            except httpx.TransportError:
                time.sleep(0.02)
        return self

    def __exit__(self, *error):
        self.process.kill()
        self.process.wait()


def asked(campaign, tiny):
    """The kinds of what the requests that were kept do at a service."""
    with httpx.Client(base_url=tiny.url) as client:
        return {kind(REPLAYS[campaign](case, tiny, client)) for _, case in kept(campaign)}


def test_requests(tmp_path, monkeypatch):
    monkeypatch.setattr("tests.serving.malformed.by_hand", lambda: iter(()))
    with Tiny(tmp_path, "faulty") as faulty, Tiny(tmp_path, "sound") as sound:
        found = service.malformed(faulty, 60, seed=0)
        assert found["5xx"]
        cases = dict(sorted(kept("requests")))
        traced, failed = cases.values()
        assert (traced["method"], traced["headers"], traced.get("files")) == ("GET", {}, None)
        assert traced["path"] == "k="
        assert failed["files"] == {"body": b"u1"}
        assert failed["headers"] == {"Content-Type": "application/json"}
        assert failed["path"] == "v1/rec"
        assert asked("requests", faulty) == {"500", "200 KeyError"}
        assert asked("requests", sound) == {""}


def test_bodies(tmp_path, monkeypatch):
    monkeypatch.setattr(service, "BODY_BYTES", 1000)
    monkeypatch.setattr(service, "POSTS", ("/v1/events",))
    monkeypatch.setitem(service.BELOW, "bodies", {"cpu ms": 60.0, "memory MB": 1e9})
    with Tiny(tmp_path, "faulty") as faulty, Tiny(tmp_path, "sound") as sound:
        assert service.dear_bodies(faulty, 0, 12)["cpu ms"] >= 60
        assert only_case("bodies")["files"] == {"body": b"zzz"}
        assert asked("bodies", faulty) == {"cpu ms beyond its bound"}
        assert asked("bodies", sound) == {""}


def test_a_request_that_ends_the_service_is_kept_as_it_is(tmp_path):
    with Tiny(tmp_path, "ending") as ending:
        found = service.malformed(ending, 40, seed=0)
        assert found["5xx"] > 1
    case = only_case("requests")
    assert (case["method"], case["path"]) == ("PUT", "/")
