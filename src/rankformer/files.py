"""Writing files so that a reader sees the old bytes or the new bytes, never a mixture; locks and checksums."""

import fcntl
import hashlib
import os
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from rankformer.errors import ConfigError, RunFolderError

LOCK = ".rankformer.lock"
_holders: dict[Path, int] = {}  # the folders this process holds, each with the thread that does


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
    except OSError as error:
        if error.strerror:  # a full disk does not say what was being written
            error.filename = error.filename or str(target)
        raise
    finally:
        with suppress(FileNotFoundError):
            temporary.unlink()


def write_bytes_atomic(target: Path, data: bytes) -> None:
    """Write `data` to `target` in one step as seen by any reader."""
    with atomic_path(target) as temporary:
        temporary.write_bytes(data)


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Keep other processes and threads from writing to a folder, made if missing; one thread may lock it twice.

    Raises:
        RunFolderError: another writes to it; the message has its process id.
    """
    place, thread = folder.resolve(), threading.get_ident()
    if _holders.get(place) == thread:
        yield
        return
    is_new = not folder.exists()
    folder.mkdir(parents=True, exist_ok=True)
    advice = "wait until it has ended, or choose another folder"
    descriptor = _lock(
        folder / LOCK, lambda holder: RunFolderError(f"{folder} is being written by process {holder}; {advice}")
    )
    _holders[place] = thread
    try:
        yield
    finally:
        del _holders[place]
        with suppress(OSError):
            (folder / LOCK).unlink()
            if is_new:
                folder.rmdir()  # unless something was written
        os.close(descriptor)


@contextmanager
def pid_file(path: Path) -> Iterator[None]:
    """Keep the id of this process in a file that is locked meanwhile, so that one a killed process left is no obstacle.

    Raises:
        ConfigError: another process that runs has it; the message has its id.
    """
    advice = "stop it first, or choose another file"
    descriptor = _lock(path, lambda holder: ConfigError(f"{path} belongs to process {holder}, which runs; {advice}"))
    try:
        yield
    finally:
        path.unlink(missing_ok=True)
        os.close(descriptor)


def _lock(path: Path, is_held: Callable[[str], Exception]) -> int:
    """Return the descriptor that holds a lock file; closing it, or the end of the process, releases the lock."""
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.read(descriptor, 20).decode("ascii", "replace") or "unknown"
            os.close(descriptor)
            raise is_held(holder) from None
        except OSError:
            pass  # a file system that has no locks
        with suppress(FileNotFoundError):  # the last holder may just have removed the file that was opened
            if os.path.samestat(os.fstat(descriptor), os.stat(path)):
                os.ftruncate(descriptor, 0)
                os.write(descriptor, str(os.getpid()).encode())
                return descriptor
        os.close(descriptor)


def _umask() -> int:
    # The only portable way to read the mask is to set it; mkstemp's 0600 would otherwise hide shared run folders.
    mask = os.umask(0)
    os.umask(mask)
    return mask
