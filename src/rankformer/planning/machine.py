"""What this machine and this process have: memory limits, memory in use, and sizes as people write them."""

import os
import re
import resource
import sys
from pathlib import Path

from rankformer.errors import ConfigError

_CGROUP_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


def memory_of_machine() -> int:
    """Return the bytes of memory that this process may use at most: the machine's, or its container's if less."""
    limits = [os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")]
    for path in filter(os.path.isfile, _CGROUP_LIMITS):
        text = Path(path).read_text(encoding="ascii").strip()
        if text.isdecimal():
            limits.append(int(text))
    return min(limits)


def peak_memory() -> int:
    """Return the most bytes that this process has had resident so far."""
    # Linux's other count starts from the memory of the process that started this one.
    unit = 1 if sys.platform == "darwin" else 1024
    return _status("VmHWM") or unit * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def memory_now() -> int:
    """Return the resident bytes of this process; where the system does not report it, the most it has had so far."""
    return _status("VmRSS") or peak_memory()


def _status(field: str) -> int | None:
    """Return the bytes of a field of Linux's table of this process, None where there is none."""
    table = Path("/proc/self/status")
    text = table.read_text(encoding="ascii", errors="replace") if table.exists() else ""
    found = re.search(rf"{field}:\s*(\d+) kB", text)
    return int(found[1]) * 1024 if found else None


def parse_size(text: str) -> int:
    """Return the bytes that a string such as `2GB`, `512MiB` or `8G` stands for."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*(?:([KMGT])(I?))?B?\s*", text.upper())
    if match is None or float(match[1]) == 0:
        raise ConfigError(f"memory {text!r}: expected a size such as 16GB, 1.5GB or 512MiB")
    number, unit, binary = match.groups()
    return int(float(number) * (1024 if binary else 1000) ** (" KMGT".index(unit or " ")))


def show_size(size: float) -> str:
    """Return bytes as people read them, such as `1.85 GB`."""
    return f"{size / 1e9:.2f} GB" if size >= 1e9 else f"{size / 1e6:.0f} MB"
