"""Run the campaigns and write docs/reliability.md: `make attack`, or `python -m attack [CAMPAIGN ...] [--scale S]`.

The scale multiplies the counts: 1 is what the page promises, the default a part of it that takes minutes. With
ATTACK_HOURS the soak takes that long and the counts grow with it. Ends with 1 when anything was lost, mixed or broken.
"""

import argparse
import logging
import os
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from attack import damage, events, hostile, inputs, limits, numerics, report, service, soak, values, writers
from attack.regressions import Findings

TOKEN = "admin-token-0123456789"
ROOT = Path(__file__).parents[1]


class Attack:
    """One run of the campaigns: how much of them, from which seed, in which folder."""

    def __init__(self, scale: float, seed: int, folder: Path) -> None:
        self.scale, self.seed, self.folder = scale, seed, folder

    def many(self, count: int) -> int:
        """Return the part of a full campaign's count that is due."""
        return max(1, round(count * self.scale))

    def place(self, name: str) -> Path:
        """Return a fresh folder."""
        (self.folder / name).mkdir()
        return self.folder / name

    def kills(self) -> dict[str, Any]:
        """Trainings killed at random moments and at file calls, then resumed."""
        return writers.killed_trainings(self.place("kills"), self.many(200), self.seed)

    def replacements(self) -> dict[str, Any]:
        """Writers killed while they replace a run."""
        return writers.killed_replacements(self.place("replacements"), self.many(200), self.seed)

    def faults(self) -> dict[str, Any]:
        """Full and failing disks."""
        return damage.failing_disk(self.place("faults"), self.many(100), self.seed)

    def writers(self) -> dict[str, Any]:
        """Two writers in one folder."""
        return writers.two_writers(self.place("writers"), self.many(500))

    def bytes(self) -> dict[str, Any]:
        """Flipped bits and truncated files."""
        return damage.changed_bytes(self.place("bytes"), self.many(1000), self.many(200), self.seed)

    def journal(self) -> dict[str, Any]:
        """Journals of events whose writers die or fail, whose bytes change, and that are pruned meanwhile."""
        counts = (self.many(200), self.many(100), self.many(1000), self.many(20))
        return events.journal(self.place("journal"), *counts, self.seed)

    def updates(self) -> dict[str, Any]:
        """Updates of a run killed at random moments and at file calls, then made again."""
        return events.killed_updates(self.place("updates"), self.many(100), self.seed)

    def folders(self) -> dict[str, Any]:
        """Hostile folders with right checksums."""
        place, outcomes, slowest, memory = self.place("folders"), Counter[str](), 0.0, 0.0
        rest = max(0, self.many(500) - len(hostile.BY_HAND) - len(hostile.TO_A_BLEND))
        by_name: list[dict[str, Any]] = [{"name": name} for name in (*hostile.BY_HAND, *hostile.TO_A_BLEND)]
        # Of what was loaded the value stays: a smaller one may be meant, and is then loaded rightly.
        loaded, failed = (
            Findings("folders", lambda case: hostile.measured(case, place)[0], fewer=("within",), smaller=smaller)
            for smaller in ((), ("value",))
        )
        for case in (*by_name, *hostile.at_random(rest, self.seed)):
            got, seconds, megabytes = hostile.measured(case, place)
            outcomes[got] += 1
            slowest, memory = max(slowest, seconds), max(memory, megabytes)
            (loaded if got == "loaded" else failed).add(case, got)
        others = {name: count for name, count in outcomes.items() if name != "refused"}
        counts = {"folders": outcomes.total(), "refused": outcomes["refused"], "others": others}
        return {**counts, "slowest s": slowest, "memory MB": memory}

    def settings(self) -> dict[str, Any]:
        """Settings at random, and fits with extreme ones."""
        return values.settings(self.many(20_000), self.many(500), self.seed)

    def inputs(self) -> dict[str, Any]:
        """Changed input files of every format."""
        return inputs.inputs(self.place("inputs"), self.many(100_000), self.seed)

    def numerics(self) -> dict[str, Any]:
        """Every method on extreme logs, and with each hyperparameter at its extremes."""
        return numerics.numerics(self.scale)

    def memory(self) -> dict[str, Any]:
        """Memory limits while reading, training, saving, loading and serving."""
        return limits.memory(self.place("memory"), self.many(20), self.seed)

    def clock(self) -> dict[str, Any]:
        """A clock that jumps by years, and files of the past and the future."""
        return limits.clock(self.place("clock"), self.many(20), self.seed)

    def bodies(self) -> dict[str, Any]:
        """Request bodies made to be dear."""
        with self._serving("bodies") as (found, _):
            return service.dear_bodies(found, self.seed, self.many(400))

    def requests(self) -> dict[str, Any]:
        """Malformed requests."""
        with self._serving("requests") as (found, _):
            return service.malformed(found, self.many(20_000), self.seed)

    def connections(self) -> dict[str, Any]:
        """Idle, slow and deaf connections."""
        with self._serving("connections") as (found, _):
            return service.bad_connections(found, self.many(1000))

    def swaps(self) -> dict[str, Any]:
        """Reloads under load."""
        with self._serving("swaps") as (found, folder):
            return service.swaps(found, folder, self.many(100), TOKEN)

    def processes(self) -> dict[str, Any]:
        """Processes of a service killed under load."""
        return events.killed_processes(self.place("processes"), self.many(60), self.seed)

    def soak(self) -> dict[str, Any]:
        """All of it against the service, for long."""
        with self._serving("soak") as (found, folder):
            return soak.soak(found, folder, 3600 * self.scale, TOKEN, self.seed, report.PICTURE)

    @contextmanager
    def _serving(self, name: str) -> Any:
        from tests.serving.clients import serving
        from tests.serving.runs import write_run

        folder = self.place(name)
        for seed, run in enumerate(("one", "two")):
            write_run(folder / run, seed)
        (folder / "current").symlink_to(folder / "one")
        environment = {"RANKFORMER_ADMIN_TOKEN": TOKEN, "OMP_NUM_THREADS": "1"}
        flags = ("--no-access-log", "--journal", str(folder / "journal"))
        with serving(folder / "current", *flags, log=folder / "log", **environment) as found:
            yield found, folder


CAMPAIGNS: tuple[str, ...] = (
    *("kills", "replacements", "faults", "writers", "bytes", "journal", "updates", "folders", "settings", "inputs"),
    *("numerics", "memory", "clock", "bodies", "requests", "connections", "swaps", "processes", "soak"),
)


# How a kept case of a campaign is repeated, in a folder or, for the last two, against a service and with its client.
REPLAYS: dict[str, Callable[..., str]] = {
    "kills": lambda case, folder: writers.in_a_fresh_process("writers.trained", case, str(folder)),
    "replacements": lambda case, folder: writers.in_a_fresh_process("writers.replaced", case, str(folder)),
    "faults": damage.failed,
    "bytes": damage.changed,
    "journal": events.journaled,
    "updates": lambda case, folder: writers.in_a_fresh_process("events.updated", case, str(folder)),
    "folders": lambda case, folder: hostile.measured(case, folder)[0],
    "settings": lambda case, folder: values.outcome(case),
    "inputs": lambda case, folder: inputs.outcome(inputs.Case(**case), folder),
    "numerics": lambda case, folder: numerics.outcome(case),
    "requests": lambda case, served, client: service.answered(case, served, client)[1],
    "bodies": service.dear,
}


def main() -> int:
    """Run what the command line asks for; return the exit code."""
    hours = float(os.environ.get("ATTACK_HOURS", 0))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("campaigns", nargs="*", metavar="CAMPAIGN", help=f"of {', '.join(CAMPAIGNS)}; all by default")
    parser.add_argument("--scale", type=float, default=max(hours, 0.05), help="part of the full counts; default 0.05")
    parser.add_argument("--add", action="store_true", help="add to what the results hold of a campaign: a further part")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6), help="of every draw")
    options = parser.parse_args()
    unknown = set(options.campaigns) - set(CAMPAIGNS)
    if unknown:
        parser.error(f"unknown campaign {min(unknown)}; known are {', '.join(CAMPAIGNS)}")
    logging.getLogger("rankformer.data").setLevel(logging.ERROR)  # skipped rows are many, and no finding
    failed = []
    for name in options.campaigns or CAMPAIGNS:
        with tempfile.TemporaryDirectory() as folder:
            attack = Attack(options.scale, options.seed, Path(folder))
            campaign: Callable[[], dict[str, Any]] = getattr(attack, name)
            started = time.perf_counter()
            result = {**campaign(), "seed": options.seed, "took s": time.perf_counter() - started}
        earlier = report.kept(name) if options.add else None
        result = result if earlier is None else report.together(earlier, result)
        bad = report.violations(name, result)
        failed += bad
        print(f"{name}: {report.line(name, result)}" + "".join(f"\n  FAILED: {each}" for each in bad), flush=True)
        report.keep(name, (campaign.__doc__ or "").strip(), result, bad)
    report.write_page()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
