"""What the numbers were measured on."""

import os
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

PACKAGES = ("rankformer", "torch", "numpy", "scipy", "pyarrow", "implicit")
THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "GOMP_SPINCOUNT", "OMP_WAIT_POLICY")


def describe_machine() -> dict[str, object]:
    """Return processor, memory, threads, versions and how busy the machine was."""
    import torch

    return {
        "processor": processor(),
        "cores": os.cpu_count(),
        "memory_gb": round(memory_gb(), 1),
        "threads": torch.get_num_threads(),
        "thread_variables": {name: os.environ[name] for name in THREAD_VARIABLES if name in os.environ},
        "load_at_start": round(os.getloadavg()[0], 2),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "versions": installed(),
    }


def machine_line(machine: dict[str, object]) -> str:
    """Return a description as one sentence."""
    versions = ", ".join(f"{name} {number}" for name, number in machine["versions"].items())
    variables = "".join(f", {name}={value}" for name, value in machine["thread_variables"].items())
    return (
        f"{machine['processor']}, {machine['cores']} cores, {machine['memory_gb']} GB; {machine['threads']} threads"
        f"{variables}; load {machine['load_at_start']} at the start; Python {machine['python']}, {versions}"
    )


def memory_gb() -> float:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30


def processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def installed() -> dict[str, str]:
    found = {}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found
