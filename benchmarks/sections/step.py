"""A whole training step: the textbook version against ours."""

from contextlib import nullcontext

import torch

from benchmarks import steps
from benchmarks.measure import (
    Result,
    bare_torch,
    in_fresh_process,
    interleave,
    note,
    paragraph,
    peak_memory_mb,
    show,
    table,
)
from benchmarks.options import Options
from rankformer.training.activations import kept_memory

TITLE = "A whole training step, paper settings, d = 64"
DATASETS = ("ali-display", "epinions", "yelp2018-lightgcn")
OURS_PER_ROUND = 5
MEMORY_STEPS = 3
LOSS_TOLERANCE = 1e-5
LARGE = 10**6  # pairs from which the textbook version gets fewer rounds
MAKERS = {"textbook": steps.textbook_step, "ours": steps.our_step}


def run(options: Options) -> Result:
    names = steps.available(options.datasets or DATASETS)
    bare = in_fresh_process(bare_torch)["peak_mb"]
    rows = [measure_dataset(name, options) for name in names]
    checked = "ali-display" if "ali-display" in names else names[0]
    note(f"  {checked}: losses over {options.loss_steps} steps")
    losses = in_fresh_process(compare_losses, dataset=checked, count=options.loss_steps)
    return {"bare_mb": bare, "rows": rows, "losses": losses}


def measure_dataset(name: str, options: Options) -> Result:
    """Return seconds and peak memory of each version on one dataset; {"does_not_fit": True} in place of either."""
    limit = options.memory_limit_gb
    rounds = min(options.rounds, 2) if len(steps.training_part(name)) >= LARGE else options.rounds
    note(f"  {name}: seconds, {rounds} rounds")
    kinds = list(MAKERS)
    seconds = in_fresh_process(time_steps, memory_limit_gb=limit, dataset=name, kinds=kinds, rounds=rounds)
    if seconds.get("does_not_fit"):
        alone = in_fresh_process(time_steps, dataset=name, kinds=["ours"], rounds=rounds)
        seconds = {"textbook": seconds, **alone}
    note(f"  {name}: memory")
    memory = {kind: in_fresh_process(peak_of_steps, memory_limit_gb=limit, dataset=name, kind=kind) for kind in kinds}
    return {"dataset": name, "rounds": rounds, "seconds": seconds, "memory": memory}


@kept_memory()
def time_steps(dataset: str, kinds: list[str], rounds: int) -> Result:
    train, model = steps.training_part(dataset), steps.paper_rankformer(dataset)
    return interleave({kind: MAKERS[kind](train, model) for kind in kinds}, rounds, {"ours": OURS_PER_ROUND})


def peak_of_steps(dataset: str, kind: str) -> Result:
    step = MAKERS[kind](steps.training_part(dataset), steps.paper_rankformer(dataset))
    with kept_memory() if kind == "ours" else nullcontext():
        for _ in range(MEMORY_STEPS):
            step()
    return {"peak_mb": peak_memory_mb()}


def compare_losses(dataset: str, count: int) -> Result:
    """Return how far losses and gradients of both versions part when initialization and negatives are the same."""
    model = steps.paper_rankformer(dataset)
    ours = steps.training_loop(steps.training_part(dataset), model)
    graph, n = ours.graph, ours.graph.num_users
    pairs = graph.edge_users.long(), graph.edge_items.long() - n
    our_table = next(ours.network.parameters())
    theirs = steps.TextbookLoop(*pairs, (n, graph.num_items), model, our_table.detach())
    losses, gradients = [], []
    for step in range(1, count + 1):
        negatives = ours.sampler.draw(ours.settings.seed, step).long() - n
        losses.append((theirs.one_step(negatives), ours.one_step(None)))
        gradients.append(relative_difference(our_table.grad, theirs.network.table.grad))
    differences = (torch.tensor(losses, dtype=torch.float64).diff(dim=1)).abs().flatten()
    return {
        "dataset": dataset,
        "steps": count,
        "largest_difference": float(differences.max()),
        "at_step": int(differences.argmax()) + 1,
        "first_difference": float(differences[0]),
        "first_gradient": gradients[0],
        "largest_gradient": max(gradients),
        "last_losses": {"textbook": losses[-1][0], "ours": losses[-1][1]},
    }


def relative_difference(ours: torch.Tensor, theirs: torch.Tensor) -> float:
    """Return the largest difference between entries, over the largest entry."""
    return float((ours - theirs).abs().max() / theirs.abs().max())


def report(results: Result) -> list[str]:
    losses = results["losses"]
    verdict = "within" if losses["largest_difference"] <= LOSS_TOLERANCE else "NOT within"
    columns = ["dataset", "rounds", "textbook", "ours", "faster", "peak memory textbook", "ours", "share of peak"]
    return [
        *paragraph(
            "The textbook version (`benchmarks/textbook.py`) is the paper's appendix in autograd, with (E, d) messages",
            "and the sums of outer products built as (n, d, d) arrays. Sampling, forward, backward and optimiser, full",
            f"batch. In turns in one process, each round one textbook step and {OURS_PER_ROUND} of ours, after a",
            "warm-up; medians (fastest to slowest). For both, the allocator keeps freed blocks as in our training",
            f"loop. Memory is the peak of a fresh process over {MEMORY_STEPS} steps; the bare interpreter with torch",
            f"takes {results['bare_mb']:.0f} MB of it, and the last column leaves that out on both sides.",
        ),
        "",
        *table([*columns, "share above bare torch"], [row_cells(row, results["bare_mb"]) for row in results["rows"]]),
        "",
        *paragraph(
            f"Losses on {losses['dataset']} from the same start and negatives: over {losses['steps']} steps the two",
            f"differ by at most **{losses['largest_difference']:.1e}** (at step {losses['at_step']}; at the first step",
            f"{losses['first_difference']:.1e}), {verdict} 1e-5. A mean over all pairs is a mild test, and one in",
            "float32 can agree to the last bit while its terms do not; the gradients tell more: they differ by",
            f"{losses['first_gradient']:.1e} of their largest entry at the first step, where both start from the same",
            f"table, and by at most {losses['largest_gradient']:.1e} over all steps.",
        ),
    ]


def row_cells(row: Result, bare: float) -> list[str]:
    seconds, memory = row["seconds"], row["memory"]
    cells = [row["dataset"], str(row["rounds"])]
    if seconds["textbook"].get("does_not_fit"):
        cells += ["does not fit", show(seconds["ours"]), ""]
    else:
        ratio = seconds["textbook"]["median"] / seconds["ours"]["median"]
        cells += [show(seconds["textbook"]), show(seconds["ours"]), f"**{ratio:.1f} x**"]
    ours = memory["ours"]["peak_mb"]
    if memory["textbook"].get("does_not_fit"):
        return [*cells, "does not fit", f"{ours:.0f} MB", "", ""]
    theirs = memory["textbook"]["peak_mb"]
    shares = [f"{ours / theirs:.2f}", f"{(ours - bare) / (theirs - bare):.2f}"]
    return [*cells, f"{theirs:.0f} MB", f"{ours:.0f} MB", *shares]
