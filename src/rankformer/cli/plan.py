"""`rankformer plan`: what a training would need, measured on samples before it starts."""

from typing import Annotated, Any

from rankformer.cli.data_options import DataArgument, data_source, takes_data_options
from rankformer.cli.model_options import ConfigOption, ModelOption, SetOption, ThreadsOption, build_model
from rankformer.cli.output import JsonFlag, option, show, show_json, show_table
from rankformer.cli.progress import busy


@takes_data_options
def plan(
    data: DataArgument,
    model: ModelOption = None,
    config: ConfigOption = None,
    assignments: SetOption = None,
    memory: Annotated[
        str | None, option("SIZE", "Memory to stay within, such as 8GB. Default: 90% of this machine's.")
    ] = None,
    ranks: Annotated[int | None, option("P", "Also say what each of P ranks would need.", min=1)] = None,
    bandwidth: Annotated[str, option("RATE", "With --ranks: what a rank can send, such as 10Gbit.")] = "10Gbit",
    threads: ThreadsOption = None,
    json: JsonFlag = False,
    *,
    options: dict[str, Any],
) -> None:
    """Say what training on DATA would need: peak memory, seconds, and whether this machine has it.

    Takes the flags of `train`, reads the data, and fits the model for a few epochs on samples of it (on the CPU).
    Nothing is written. If the training would not fit, settings are named with which it does.

    Examples:
        rankformer plan clicks.parquet
        rankformer plan clicks.parquet --set embedding_dim=128 --memory 8GB
        rankformer plan yelp2018 --model lightgcn --json
        rankformer plan shards --model rankformer --ranks 4 --bandwidth 25Gbit
    """
    from rankformer.planning.machine import parse_size
    from rankformer.planning.ranks import Size, parse_bandwidth, plan_ranks, reduced_numbers
    from rankformer.runs.configuration import read_configuration

    configuration = read_configuration(config)
    source = data_source(data, {**configuration.get("data", {}), **options})
    untrained = build_model(configuration, model, assignments or (), device="cpu")
    limit = None if memory is None else parse_size(memory)
    with busy(f"reading {source.source}"):
        parts = source.load()
    from rankformer.planning.plan import make_plan

    if ranks is not None:
        settings, rate = untrained.settings.model_dump(), parse_bandwidth(bandwidth)
        sizes = parts.train.num_users, parts.train.num_items, len(parts.train)
        size = Size(*sizes, settings.get("embedding_dim", 0), settings.get("num_layers", 0))
        reduced_numbers(untrained.name, size)  # refuses a model that it does not know before the samples are fitted
    with busy("fitting samples"):
        found = make_plan(untrained, parts, limit)
    if ranks is not None:
        steps = -(-sizes[2] // (settings.get("batch_size") or sizes[2]))
        found["ranks"] = plan_ranks(untrained.name, size, ranks, rate, found["seconds"]["epoch"] / steps)
    if json:
        show_json({"data": source.name, **found})
        return
    _show(source.name, found, "given" if memory else "(90% of this machine)")
    if ranks is not None:
        _show_ranks(found["ranks"], bandwidth)


def _show_ranks(plan: dict[str, Any], bandwidth: str) -> None:
    from rankformer.planning.machine import show_size

    rows = [(name, show_size(size)) for name, size in plan["memory"].items()]
    heading = f"memory of each of {plan['ranks']} ranks"
    show_table((heading, "size"), [*rows, ("in all", show_size(plan["peak"]))], numbers=("size",))
    seconds = {name: _duration(value) for name, value in plan["seconds"].items()}
    sent = f"each rank sends {show_size(plan['bytes_per_step'])} per step, {seconds['network']} at {bandwidth}"
    show(sent, f"a step takes about {seconds['step']}, {seconds['compute']} of it computing")


def _show(name: str, plan: dict[str, Any], limit_words: str) -> None:
    from rankformer.planning.machine import show_size

    sizes = f"{plan['users']:,} users x {plan['items']:,} items, {plan['interactions']:,} train interactions"
    show(f"{plan['model']} on {name}: {sizes}")
    memory = plan["memory"]
    rows = [(part, show_size(size)) for part, size in memory["parts"].items()]
    show_table(("memory at the peak", "size"), [*rows, ("in all", show_size(memory["peak"]))], numbers=("size",))
    if memory["basis"] == "extrapolated":
        show(f"extrapolated from samples of {', '.join(f'{size:,}' for size in plan['samples'])} interactions")
    show(*_time_lines(plan))
    peak, limit = show_size(memory["peak"]), f"{show_size(plan['limit'])} {limit_words}"
    if plan["fits"]:
        show(f"it fits: {peak} of {limit}")
        return
    show(f"it does not fit: it needs {peak}, more than the {limit}")
    for change in plan["changes"]:
        settings = " ".join(f"--set {name}={value}" for name, value in change["settings"].items())
        show(f"it would fit with {settings}   {show_size(change['peak'])}")
    if not plan["changes"]:
        show("no change of settings is enough; use fewer interactions, such as --k-core 10, or a larger machine")


def _time_lines(plan: dict[str, Any]) -> list[str]:
    seconds = {name: _duration(value) for name, value in plan["seconds"].items()}
    whole = _duration(plan["seconds_in_all"])
    if not plan["epochs"]:
        return [f"{plan['model']} is solved, not trained in epochs: the solution takes about {whole}"]
    lines = [f"before the first epoch it takes about {seconds['setup']}", f"an epoch takes about {seconds['epoch']}"]
    epochs = f"{plan['epochs']} epochs"
    if plan["validations"]:
        lines.append(f"a validation takes about {seconds['validation']}")
        epochs += f" and {plan['validations']} validations"
    return [*lines, f"the whole training, {epochs}, takes at most about {whole}"]


def _duration(seconds: float) -> str:
    if seconds < 1:
        return f"{seconds * 1e3:.0f} ms"
    if seconds < 120:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
