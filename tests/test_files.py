"""Atomic writes and checksums of files."""

import hashlib
import os
import stat

import pytest

from rankformer.files import atomic_path, sha256_of, write_bytes_atomic


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
