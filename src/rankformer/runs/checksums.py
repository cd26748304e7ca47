"""JSON files that carry their own SHA-256, so that a single changed bit is noticed."""

import hashlib
import json
from pathlib import Path
from typing import Any

from rankformer.errors import RunFolderError

_KEYS = ("checksum", "seal")  # files of version 0.1 have the second


def checksummed_json(content: dict[str, Any]) -> bytes:
    """Return the content as readable JSON that carries the SHA-256 of itself under "checksum"."""
    return _serialise({**content, "checksum": _checksum_of(content)})


def read_checksummed_json(path: Path, limit: int = 64 * 2**20) -> dict[str, Any]:
    """Return the content of a file made by `checksummed_json`, without the checksum.

    Raises:
        RunFolderError: the file is missing, larger than `limit` bytes, or a single bit of it has changed.
    """
    try:
        if path.stat().st_size > limit:
            raise RunFolderError(f"{path} is larger than {limit} bytes; it is not a file this package wrote")
        data = path.read_bytes()
    except OSError as error:
        raise RunFolderError(f"{path} cannot be read: {error.strerror}") from error
    try:
        content = json.loads(data)
        key = next(key for key in _KEYS if key in content)
        checksum = content.pop(key)
        intact = checksum == _checksum_of(content) and data == _serialise({**content, key: checksum})
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, StopIteration) as error:
        raise RunFolderError(f"{path} is damaged: it is not the JSON this package writes") from error
    if not intact:
        raise RunFolderError(f"{path} is damaged: its content does not match its checksum")
    return dict(content)


def _serialise(content: dict[str, Any]) -> bytes:
    return (json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False) + "\n").encode()


def _checksum_of(content: dict[str, Any]) -> str:
    return hashlib.sha256(_serialise(content)).hexdigest()
