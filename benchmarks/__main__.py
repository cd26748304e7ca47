"""`make bench`: measure, section by section, and write RESULTS.md from whatever results there are."""

import argparse
import json
import os
import time
from datetime import UTC, datetime
from pathlib import Path
from types import ModuleType

from benchmarks.machine import describe_machine, machine_line, memory_gb
from benchmarks.measure import Unavailable, note, show_seconds
from benchmarks.options import Options
from benchmarks.sections import (
    activations,
    als,
    csv_file,
    ease,
    filters,
    libraries,
    lightgcn,
    minibatch,
    processes,
    quality,
    scaling,
    step,
    top_k,
)
from rankformer.errors import RankformerError

HERE = Path(__file__).parent
SECTIONS: dict[str, ModuleType] = {
    "step": step,
    "activations": activations,
    "lightgcn": lightgcn,
    "scaling": scaling,
    "top_k": top_k,
    "filters": filters,
    "csv": csv_file,
    "als": als,
    "ease": ease,
    "libraries": libraries,
    "quality": quality,
    "minibatch": minibatch,
    "processes": processes,
}


def main() -> int:
    arguments = parser().parse_args()
    options = options_from(arguments)
    names = arguments.only or list(SECTIONS)
    skipped = [] if arguments.report else [name for name in names if not measure(name, options)]
    text = report(options, arguments.out)
    (arguments.out / "RESULTS.md").write_text(text)
    print(text)
    if skipped:
        note(f"not measured: {', '.join(skipped)}; the reasons are above")
    return 1 if skipped else 0


def parser() -> argparse.ArgumentParser:
    result = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    add = result.add_argument
    add("--only", type=section_names, metavar="NAME,...", help=f"sections to measure: {', '.join(SECTIONS)}")
    add("--report", action="store_true", help="measure nothing; write RESULTS.md anew")
    add("--rounds", type=int, default=5, help="turns that each timing takes")
    add("--datasets", type=words, default=(), metavar="NAME,...", help="in place of each section's own choice")
    add("--loss-steps", type=int, default=50, help="steps over which losses are compared")
    add("--sizes", type=sizes, default=sizes("1,4,16,64"), metavar="N,...", help="millions of pairs to scale over")
    add("--memory-limit", type=float, metavar="GB", help="for what may not fit; default: 0.92 of the machine's")
    add("--epochs", type=int, help="bound on whole trainings, and one setting per grid: for trying the suite out")
    add("--budget-seconds", type=float, default=120.0, help="time of each mini-batch training")
    add("--runs", type=Path, nargs="*", default=(), metavar="RUN", help="finished runs with the paper's settings")
    add("--out", type=Path, default=HERE, help="folder of RESULTS.md and results/")
    add("--figures", type=Path, default=HERE.parent / "docs", help="folder of the pictures")
    return result


def options_from(arguments: argparse.Namespace) -> Options:
    return Options(
        rounds=arguments.rounds,
        datasets=arguments.datasets,
        loss_steps=arguments.loss_steps,
        sizes=arguments.sizes,
        memory_limit_gb=arguments.memory_limit or 0.92 * memory_gb(),
        epochs=arguments.epochs,
        budget_seconds=arguments.budget_seconds,
        runs=tuple(arguments.runs),
        results=arguments.out / "results",
        figures=arguments.figures,
    )


def words(text: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in text.split(",") if word.strip())


def section_names(text: str) -> tuple[str, ...]:
    unknown = set(words(text)) - set(SECTIONS)
    if unknown:
        raise argparse.ArgumentTypeError(f"no section {', '.join(sorted(unknown))}; choose of {', '.join(SECTIONS)}")
    return words(text)


def sizes(text: str) -> tuple[int, ...]:
    return tuple(int(float(word) * 10**6) for word in words(text))


def measure(name: str, options: Options) -> bool:
    """Measure one section and keep its results; return whether it could be measured."""
    note(f"{name}:")
    machine, started = describe_machine(), time.perf_counter()
    try:
        results = SECTIONS[name].run(options)
    except (Unavailable, RankformerError) as error:
        note(f"  skipped: {error}")
        return False
    content = {
        "section": name,
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "seconds": round(time.perf_counter() - started, 1),
        "quick": options.epochs is not None,
        "machine": machine,
        "results": results,
    }
    options.results.mkdir(parents=True, exist_ok=True)
    (options.results / f"{name}.json").write_text(json.dumps(content, indent=1) + "\n")
    note(f"  took {show_seconds(content['seconds'])}")
    return True


def report(options: Options, folder: Path) -> str:
    """Return every section that has results as Markdown."""
    lines = [
        "# Measurements",
        "",
        "Written by `make bench` from `benchmarks/results/*.json`, one file per section. Seconds are medians; in",
        "brackets the fastest and slowest repetition. Under each section stands what it was measured on.",
        "",
    ]
    figures = os.path.relpath(options.figures, folder)
    for name, module in SECTIONS.items():
        path = options.results / f"{name}.json"
        if path.exists():
            content = json.loads(path.read_text())
            text = "\n".join(module.report(content["results"])).replace("FIGURES/", f"{figures}/")
            quick = " **A trial run with shortened trainings: not a result.**" if content["quick"] else ""
            lines += [f"## {module.TITLE}", "", text, ""]
            lines += [f"`{name}`, {content['date']}, {machine_line(content['machine'])}.{quick}", ""]
    return "\n".join(lines)


if __name__ == "__main__":
    raise SystemExit(main())
