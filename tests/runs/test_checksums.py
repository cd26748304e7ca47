"""JSON that carries its own checksum: whatever is not byte for byte what was written is refused."""

import hashlib

import pytest

from rankformer.errors import RunFolderError
from rankformer.runs.checksums import checksummed_json, read_checksummed_json

CONTENT = {"text": "naïve ☃", "number": 0.1, "list": [1, None, True], "inner": {"checksum": "not the outer one"}}


def test_checksummed_json_comes_back(tmp_path):
    (tmp_path / "file.json").write_bytes(checksummed_json(CONTENT))
    assert read_checksummed_json(tmp_path / "file.json") == CONTENT


def test_files_of_version_1_call_the_checksum_seal(tmp_path):
    """Written by hand, as version 0.1 did: the SHA-256 of the content's JSON under another name."""
    text = '{\n  "a": 1\n}\n'
    seal = hashlib.sha256(text.encode()).hexdigest()
    (tmp_path / "file.json").write_text(f'{{\n  "a": 1,\n  "seal": "{seal}"\n}}\n')
    assert read_checksummed_json(tmp_path / "file.json") == {"a": 1}
    (tmp_path / "file.json").write_text(f'{{\n  "a": 2,\n  "seal": "{seal}"\n}}\n')
    with pytest.raises(RunFolderError, match="does not match its checksum"):
        read_checksummed_json(tmp_path / "file.json")


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b"3",
        b"null",
        b'"checksum"',
        b"{}",
        b"\xff\xfe",
        b'{"checksum": "x"}',
        b'{"seal": "x"}',
        b'{"a": NaN, "checksum": "x"}',
        b'{"a": 1e999, "checksum": "x"}',
        b'{"a": "\\ud800", "checksum": "x"}',
        b"[" * 100_000,
        b'{"a":' * 900 + b"1" + b"}" * 900,
        checksummed_json(CONTENT).replace(b"  ", b"\t"),
        checksummed_json(CONTENT).rstrip(),
        checksummed_json(CONTENT).replace(b"\n", b"\r\n"),
        checksummed_json(CONTENT).replace(b"0.1", b"0.10"),
        checksummed_json(CONTENT).replace("☃".encode(), b"\\u2603"),
        checksummed_json({"a": 1}).replace(b'"a": 1,', b'"a": 2, "a": 1,'),
    ],
)
def test_what_was_not_written_so_is_refused_by_name(tmp_path, data):
    (tmp_path / "file.json").write_bytes(data)
    with pytest.raises(RunFolderError, match=r"file\.json is damaged"):
        read_checksummed_json(tmp_path / "file.json")


def test_a_missing_or_oversized_file_is_refused_by_name(tmp_path):
    with pytest.raises(RunFolderError, match=r"file\.json cannot be read"):
        read_checksummed_json(tmp_path / "file.json")
    (tmp_path / "file.json").write_bytes(checksummed_json(CONTENT))
    with pytest.raises(RunFolderError, match=r"file\.json is larger than 50 bytes"):
        read_checksummed_json(tmp_path / "file.json", limit=50)
    with pytest.raises(RunFolderError, match="cannot be read"):
        read_checksummed_json(tmp_path)


def test_what_json_cannot_hold_is_not_written():
    with pytest.raises(ValueError):
        checksummed_json({"loss": float("nan")})
