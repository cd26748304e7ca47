"""What this machine and this process have: memory limits, memory in use, and sizes as people write them."""

import os
import re
import resource
import sys
from pathlib import Path

from rankformer.errors import ConfigError

_UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
_CGROUP_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


def memory_of_machine() -> int:
    """Return the bytes of memory that this process may use at most: the machine's, or its container's if less."""
    limits = [os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")]
    for name in _CGROUP_LIMITS:
        try:
            text = Path(name).read_text(encoding="ascii").strip()
        except OSError:
            continue
        if text.isdecimal():
            limits.append(int(text))
    return min(limits)


def peak_memory() -> int:
    """Return the most bytes that this process has had resident so far."""
    told = _status("VmHWM")  # the other count starts, on Linux, from the memory of the process that started this one
    if told is not None:
        return told
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def memory_now() -> int:
    """Return the resident bytes of this process; where the system does not tell, the most it has had so far."""
    told = _status("VmRSS")
    return peak_memory() if told is None else told


def _status(field: str) -> int | None:
    """Return the bytes of a field of Linux's table of this process, None where there is none."""
    try:
        lines = Path("/proc/self/status").read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return None
    found = [line.split()[1] for line in lines if line.startswith(f"{field}:")]
    return int(found[0]) * 1024 if found else None


def parse_size(text: str) -> int:
    """Return the bytes that a text such as `2GB`, `512MiB` or `8G` stands for."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([KMGT]?)(I?)B?\s*", text.upper())
    if match is None or float(match[1]) == 0 or (match[3] and not match[2]):
        raise ConfigError(f"memory {text!r}: expected a size such as 16GB, 1.5GB or 512MiB")
    number, unit, binary = match.groups()
    scale = 1024 ** "KMGT".index(unit) * 1024 if binary else _UNITS[unit]
    return int(float(number) * scale)


def show_size(size: float) -> str:
    """Return bytes as people read them, such as `1.85 GB`."""
    return f"{size / 1e9:.2f} GB" if size >= 1e9 else f"{size / 1e6:.0f} MB"
