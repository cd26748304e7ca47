"""`rankformer plan`: what a training would need, before it is started."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from rankformer.cli.data_options import DataArgument, data_source, takes_data_options
from rankformer.cli.model_options import ConfigOption, ModelOption, SetOption, ThreadsOption
from rankformer.cli.output import JsonFlag, help_of, show, show_json, show_table
from rankformer.cli.progress import busy
from rankformer.runs.configuration import chosen_model, chosen_settings, read_config

if TYPE_CHECKING:
    from rankformer.models.base import Model
    from rankformer.planning.plan import Plan

EXAMPLES = """Examples:

rankformer plan clicks.parquet

rankformer plan clicks.parquet --set embedding_dim=128 --memory 8GB

rankformer plan yelp2018 --model lightgcn --json
"""


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command(name="plan", help=help_of(plan), epilog=EXAMPLES)(takes_data_options(plan))


def plan(
    data: DataArgument,
    model: ModelOption = None,
    config: ConfigOption = None,
    assignments: SetOption = None,
    memory: Annotated[
        str | None,
        typer.Option(metavar="SIZE", help="What to stay within, such as 8GB. Unsaid: 90% of this machine's memory."),
    ] = None,
    threads: ThreadsOption = None,
    json: JsonFlag = False,
    *,
    options: dict[str, Any],
) -> None:
    """Say what training on DATA would need: peak memory, seconds, and whether this machine has it.

    Takes the flags of `train`, reads the data, and tries a few training steps; nothing is written. It counts on the
    CPU. If the training would not fit, settings are named with which it does.
    """
    content = read_config(config)
    source = data_source(data, {**content.get("data", {}), **options})
    untrained = _model(content, model, assignments or [])
    limit = _limit(memory)
    _use_threads(threads)
    with busy(f"reading {source.source}"):
        parts = source.load()
    from rankformer.planning.plan import make_plan

    with busy("trying a few steps"):
        made = make_plan(untrained, parts, limit)
    if json:
        show_json({"data": source.name, **made.to_dict()})
    else:
        _show(source.name, made, stated=memory is not None)


def _model(content: dict[str, Any], name: str | None, assignments: list[str]) -> "Model":
    from rankformer.models.registry import model_class

    method = model_class(chosen_model(content, name))
    return method(seed=content.get("seed", 0), **chosen_settings(method, content, assignments))


def _limit(memory: str | None) -> int | None:
    from rankformer.planning.machine import parse_size

    return None if memory is None else parse_size(memory)


def _use_threads(count: int | None) -> None:
    if count is not None:
        import torch

        torch.set_num_threads(count)


def _show(name: str, plan: "Plan", stated: bool) -> None:
    from rankformer.planning.machine import show_size

    show(f"{plan.model} on {name}: {plan.users:,} users x {plan.items:,} items, {plan.pairs:,} train pairs")
    rows = [(part, show_size(size)) for part, size in plan.memory.parts.items() if size >= 5e5]
    show_table(("memory at the peak", "size"), [*rows, ("in all", show_size(plan.memory.peak))], numbers=("size",))
    if plan.memory.basis == "measured":
        show(f"no count is written for {plan.model}: its memory is that of a small sample, scaled up")
    show(*_time_lines(plan))
    show(_verdict(plan, stated), *_advice(plan))


def _time_lines(plan: "Plan") -> list[str]:
    seconds = plan.seconds
    timed = "" if seconds.timed_pairs == plan.pairs else f" (timed on {seconds.timed_pairs:,} pairs, continued)"
    lines = [f"an epoch takes about {_duration(seconds.epoch)}{timed}"]
    if plan.validations:
        lines.append(f"a validation takes about {_duration(seconds.validation)}")
    whole = f"{plan.epochs} epochs" + (f" and {plan.validations} validations" if plan.validations else "")
    return [*lines, f"the whole run, {whole}, takes at most about {_duration(plan.seconds_in_all)}"]


def _verdict(plan: "Plan", stated: bool) -> str:
    from rankformer.planning.machine import show_size

    limit = f"{show_size(plan.limit)} {'given' if stated else '(90% of this machine)'}"
    if plan.fits:
        return f"it fits: {show_size(plan.memory.peak)} of {limit}"
    return f"it does not fit: it needs {show_size(plan.memory.peak)}, more than the {limit}"


def _advice(plan: "Plan") -> list[str]:
    from rankformer.planning.machine import show_size

    if plan.fits:
        return []
    if plan.changes:
        return ["it would fit with", *(f"  {change}   {show_size(change.peak)}" for change in plan.changes)]
    if plan.memory.basis == "measured":
        return ["try a smaller --set embedding_dim=..., fewer layers, or fewer pairs, such as --k-core 10"]
    return ["no change of settings is enough; use fewer pairs, such as --k-core 10, or a machine with more memory"]


def _duration(seconds: float) -> str:
    if seconds < 1:
        return f"{seconds * 1e3:.0f} ms"
    if seconds < 120:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
