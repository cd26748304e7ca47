"""How a command runs on several ranks: started by torchrun, or by `--ranks`, which does the same."""

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rankformer.cli.output import option, show_note
from rankformer.cli.progress import Heartbeat
from rankformer.errors import ConfigError, RankError, RankformerError

if TYPE_CHECKING:
    from rankformer.graph.collectives import Ranks

RanksOption = Annotated[
    int | None, option("P", "Train on P processes of this machine, each with a block of users.", min=1)
]
RestartsOption = Annotated[
    int, option("N", "With --ranks: how often a rank that ends is started again from the last checkpoint.", min=0)
]
TimeoutOption = Annotated[float, option("SECONDS", "How long a rank waits for another before it gives up.", min=1)]
WireOption = Annotated[str, option("float32|bfloat16", "What ranks send: numbers as they are, or rounded to half.")]

_PROBLEM = "RANKFORMER_PROBLEM"  # a file for the error that ends all ranks, so that it is shown once and not retried
command_line: list[str] = []  # of this process, without --debug


def is_rank() -> bool:
    """Whether torchrun has started this process as one of several."""
    return "RANK" in os.environ and int(os.environ.get("WORLD_SIZE", "1")) > 1


def is_later_rank() -> bool:
    """Whether this process is one of several, and not the first."""
    return is_rank() and os.environ["RANK"] != "0"


def was_restarted() -> bool:
    """Whether torchrun has started the ranks again after one of them ended."""
    return is_rank() and int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")) > 0


@contextmanager
def on_ranks(timeout: float, wire: str = "float32", device: str = "auto") -> Iterator["Ranks"]:
    """Join the ranks, if there are any; all but the first are silent."""
    from rankformer.graph.collectives import joined_ranks

    if wire not in ("float32", "bfloat16"):
        raise ConfigError(f"--wire {wire}: expected float32 or bfloat16")
    with joined_ranks(timeout, None if wire == "float32" else wire, device) as ranks:
        if ranks.rank == 0:
            yield ranks
            return
        with open(os.devnull, "w") as nothing, redirect_stdout(nothing), redirect_stderr(nothing):
            yield ranks


def start_ranks(count: int, max_restarts: int) -> None:
    """Run this command on `count` ranks by torchrun's agent, and end with its outcome."""
    import logging

    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    logging.getLogger("torch.distributed").setLevel(logging.CRITICAL)  # its lines are not for users
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, (os.cpu_count() or 1) // count)))
    options: dict[str, Any] = {"rdzv_backend": "c10d", "rdzv_endpoint": "localhost:0", "run_id": "rankformer"}
    options |= {"local_addr": "localhost", "monitor_interval": 0.1, "max_restarts": max_restarts}
    config = LaunchConfig(min_nodes=1, max_nodes=1, nproc_per_node=count, **options)
    Heartbeat.leave_to_others()
    with tempfile.TemporaryDirectory() as folder:
        problem = Path(folder, "problem")
        os.environ[_PROBLEM] = str(problem)
        try:
            elastic_launch(config, sys.executable)("-m", "rankformer", *command_line)
        except ChildFailedError as error:
            if problem.exists():
                code, _, line = problem.read_text(encoding="utf-8").partition(" ")
                show_note(line, "error", "bold red")
                raise typer.Exit(int(code)) from None
            rank, failure = error.get_first_failure()
            how = failure.signal_name() if failure.exitcode < 0 else f"exit code {failure.exitcode}"
            raise RankError(
                f"rank {rank} of {count} ended with {how} after {max_restarts} restarts; run again with --resume"
            ) from None
        finally:
            del os.environ[_PROBLEM]


def ended_before() -> int | None:
    """Return the exit code of an error that ended the ranks before they were started again, which would not help."""
    path = Path(os.environ.get(_PROBLEM, ""))
    return int(path.read_text(encoding="utf-8").partition(" ")[0]) if is_rank() and path.is_file() else None


def leave_to_parent(problem: BaseException, line: str, code: int) -> bool:
    """Return whether a rank should not show a problem: another rank or the process that started them does."""
    if not is_rank():
        return False
    path = os.environ.get(_PROBLEM)
    if path is not None and isinstance(problem, RankformerError) and not isinstance(problem, RankError):
        temporary = Path(f"{path}.{os.environ['RANK']}")
        temporary.write_text(f"{code} {line}", encoding="utf-8")
        temporary.replace(path)
        return True
    return is_later_rank() and isinstance(problem, RankformerError)
