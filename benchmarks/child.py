"""Run in a process of its own: call one function of one module and print what it returns as JSON."""

import importlib
import json
import resource
import sys

from benchmarks.measure import Result


def main(target: str, arguments: str, memory_limit_gb: str) -> None:
    limit_memory(float(memory_limit_gb))
    module, _, function = target.partition(":")
    try:
        result: Result = getattr(importlib.import_module(module), function)(**json.loads(arguments))
    except (MemoryError, RuntimeError) as error:
        if not (float(memory_limit_gb) and is_out_of_memory(error)):
            raise
        result = {"does_not_fit": True}
    print(json.dumps(result))


def limit_memory(gigabytes: float) -> None:
    """Bound this process's address space, where the system can."""
    if gigabytes and sys.platform == "linux":
        size = int(gigabytes * 2**30)
        resource.setrlimit(resource.RLIMIT_AS, (size, size))


def is_out_of_memory(error: Exception) -> bool:
    return isinstance(error, MemoryError) or "allocate memory" in str(error) or "not enough memory" in str(error)


if __name__ == "__main__":
    main(*sys.argv[1:])
