"""Atomic writes and sealed JSON."""

import hashlib
import os
import stat

import pytest

from rankformer.errors import RunFolderError
from rankformer.files import atomic_path, sealed_json, sha256_of, unseal_json, write_bytes_atomic

CONTENT = {"text": "naïve ☃", "number": 0.1, "list": [1, None, True], "inner": {"seal": "not the outer one"}}


@pytest.fixture
def target(tmp_path):
    return tmp_path / "folder" / "file.bin"


def test_a_write_makes_folders_and_leaves_only_the_target(target):
    write_bytes_atomic(target, b"new")
    assert target.read_bytes() == b"new"
    assert os.listdir(target.parent) == ["file.bin"]


def test_readers_see_the_old_bytes_until_the_new_are_whole(target):
    write_bytes_atomic(target, b"old")
    with atomic_path(target) as temporary:
        temporary.write_bytes(b"new")
        assert target.read_bytes() == b"old"
    assert target.read_bytes() == b"new"


def test_a_failure_keeps_the_old_bytes_and_cleans_up(target):
    write_bytes_atomic(target, b"old")

    def interrupted():
        with atomic_path(target) as temporary:
            temporary.write_bytes(b"half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert target.read_bytes() == b"old"
    assert os.listdir(target.parent) == ["file.bin"]


@pytest.mark.parametrize("name", ["fsync", "replace"])
def test_a_failing_disk_keeps_the_old_bytes_and_cleans_up(target, monkeypatch, name):
    write_bytes_atomic(target, b"old")

    def fail(*arguments):
        raise OSError("disk full")

    monkeypatch.setattr(os, name, fail)
    with pytest.raises(OSError, match="disk full"):
        write_bytes_atomic(target, b"new")
    assert target.read_bytes() == b"old"
    assert os.listdir(target.parent) == ["file.bin"]


def test_bytes_reach_the_disk_before_the_rename_and_the_name_after_it(target, monkeypatch):
    calls = []
    fsync, replace = os.fsync, os.replace
    monkeypatch.setattr(os, "fsync", lambda descriptor: (calls.append(kind(descriptor)), fsync(descriptor)))
    monkeypatch.setattr(os, "replace", lambda *names: (calls.append("rename"), replace(*names)))

    def kind(descriptor):
        return "folder" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "file"

    write_bytes_atomic(target, b"new")
    assert calls == ["file", "rename", "folder"]


def test_the_mode_follows_the_mask(target):
    before = os.umask(0o027)
    try:
        write_bytes_atomic(target, b"new")
        assert stat.S_IMODE(target.stat().st_mode) == 0o640
        assert os.umask(0o027) == 0o027, "the mask was left changed"
    finally:
        os.umask(before)


def test_sha256_of_a_file_larger_than_a_block(tmp_path):
    data = bytes(range(256)) * 5000
    (tmp_path / "file").write_bytes(data)
    assert sha256_of(tmp_path / "file") == hashlib.sha256(data).hexdigest()


def test_sealed_json_comes_back(tmp_path):
    (tmp_path / "file.json").write_bytes(sealed_json(CONTENT))
    assert unseal_json(tmp_path / "file.json") == CONTENT


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b"3",
        b"null",
        b'"seal"',
        b"{}",
        b"\xff\xfe",
        b'{"seal": "x"}',
        b'{"a": NaN, "seal": "x"}',
        b'{"a": 1e999, "seal": "x"}',
        b'{"a": "\\ud800", "seal": "x"}',
        b"[" * 100_000,
        b'{"a":' * 900 + b"1" + b"}" * 900,
        sealed_json(CONTENT).replace(b"  ", b"\t"),
        sealed_json(CONTENT).rstrip(),
        sealed_json(CONTENT).replace(b"\n", b"\r\n"),
        sealed_json(CONTENT).replace(b"0.1", b"0.10"),
        sealed_json(CONTENT).replace("☃".encode(), b"\\u2603"),
        sealed_json({"a": 1}).replace(b'"a": 1,', b'"a": 2, "a": 1,'),
    ],
)
def test_what_was_not_sealed_is_refused_by_name(tmp_path, data):
    (tmp_path / "file.json").write_bytes(data)
    with pytest.raises(RunFolderError, match=r"file\.json is damaged"):
        unseal_json(tmp_path / "file.json")


def test_a_missing_or_oversized_file_is_refused_by_name(tmp_path):
    with pytest.raises(RunFolderError, match=r"file\.json cannot be read"):
        unseal_json(tmp_path / "file.json")
    (tmp_path / "file.json").write_bytes(sealed_json(CONTENT))
    with pytest.raises(RunFolderError, match=r"file\.json is larger than 50 bytes"):
        unseal_json(tmp_path / "file.json", limit=50)
    with pytest.raises(RunFolderError, match="cannot be read"):
        unseal_json(tmp_path)


def test_what_json_cannot_hold_is_not_sealed():
    with pytest.raises(ValueError):
        sealed_json({"loss": float("nan")})
