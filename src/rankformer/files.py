"""Writing files so that a reader sees the old bytes or the new bytes, never a mixture; checksums of files."""

import hashlib
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


def sha256_of(path: Path) -> str:
    """Return the hexadecimal SHA-256 of a file's bytes, read in blocks."""
    with open(path, "rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def sync_folder(folder: Path) -> None:
    """Flush a folder's entries to disk, so that a rename inside it survives a power cut."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def atomic_path(target: Path) -> Iterator[Path]:
    """Yield a temporary path beside `target`; on success it is fsynced and renamed onto it, on failure removed."""
    target.parent.mkdir(parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(prefix=f".{target.name}.", suffix=".tmp", dir=target.parent)
    os.close(descriptor)
    temporary = Path(name)
    try:
        yield temporary
        with open(temporary, "rb") as stream:
            os.fsync(stream.fileno())
        os.chmod(temporary, 0o666 & ~_umask())
        os.replace(temporary, target)
        sync_folder(target.parent)
    finally:
        with suppress(FileNotFoundError):
            temporary.unlink()


def write_bytes_atomic(target: Path, data: bytes) -> None:
    """Write `data` to `target` in one step as seen by any reader."""
    with atomic_path(target) as temporary:
        temporary.write_bytes(data)


def _umask() -> int:
    # The only portable way to read the mask is to set it; mkstemp's 0600 would otherwise hide shared run folders.
    mask = os.umask(0)
    os.umask(mask)
    return mask
