"""figure-random: random embeddings through layers, without training (the paper's first figure).

It shows how far the architecture alone gets, over the number of layers and over tau, which the paper does not print.
"""

from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import Tensor

from rankformer.data.interactions import Parts
from rankformer.evaluation.validator import make_validator
from rankformer.graph.bipartite import BipartiteGraph
from rankformer.graph.sparse_ops import spmm
from rankformer.layers.light_propagation import light_propagation, neighbour_means, symmetric_weights
from rankformer.layers.rank_attention import rank_attention
from rankformer.layers.rank_weights import RankWeights
from rankformer.research.content import Content, Panel, Picture, Table
from rankformer.research.figures import Curve, curve_table, line_of, seed_words
from rankformer.research.published import AUTHORS_SEED, NDCG, UNTRAINED
from rankformer.research.request import Request
from rankformer.research.results import Computation, Dataset, Results
from rankformer.research.statistics import MISSING, shown, spread_of
from rankformer.scoring.embeddings import Embeddings

# The caption leaves open whether Rankformer's warm-up is among the layers and whether LightGCN averages its layers
# as it does when it scores, so both readings of each are computed.
WARM, PLAIN, LIGHT_MEAN, LIGHT_LAST = (
    "rankformer after its warm-up",
    "rankformer",
    "lightgcn",
    "lightgcn, last layer",
)
NAMES = {
    WARM: "Rankformer after its warm-up",
    PLAIN: "Rankformer",
    LIGHT_MEAN: "LightGCN, mean of its layers",
    LIGHT_LAST: "LightGCN, last layer",
}
AUTHORS_LAYERS = 10


def untrained_quality(parts: Parts, settings: dict[str, Any], seed: int) -> dict[str, Any]:
    """Return the NDCG@20 on the test part of Normal(0, scale^2) embeddings after 0, 1, ..., `layers` layers.

    Args:
        parts: train gives the graph and is left out of the lists, test is to be found.
        settings: variant, layers, tau, alpha, embedding_dim, scale, and draws: "own", or "authors" for the numbers that
            the authors' program draws from the same seed.
        seed: of the embeddings.
    """
    graph = BipartiteGraph.from_interactions(parts.train)
    table = _drawn(graph, settings, seed)
    measure = make_validator(parts.train, parts.test, "ndcg@20")
    values = []
    with torch.no_grad():
        for z in _states(graph, table, settings):
            values.append(measure(Embeddings(z[: graph.num_users], z[graph.num_users :]))["ndcg@20"])
    return {"ndcg@20": values}


def _drawn(graph: BipartiteGraph, settings: dict[str, Any], seed: int) -> Tensor:
    dim: int = settings["embedding_dim"]
    scale: float = settings["scale"]
    generator = torch.Generator().manual_seed(seed)
    if settings["draws"] == "own":
        return torch.randn(graph.num_nodes, dim, generator=generator) * scale
    # The authors draw two embedding modules, which fill themselves once, and then fill each again with std 0.1.
    counts = (graph.num_users, graph.num_items)
    for count in counts:
        torch.empty(count, dim).normal_(generator=generator)
    return torch.cat([torch.empty(count, dim).normal_(0, scale, generator=generator) for count in counts])


def _states(graph: BipartiteGraph, table: Tensor, settings: dict[str, Any]) -> Iterator[Tensor]:
    """Yield the embeddings after 0, 1, ... layers."""
    variant, depths = settings["variant"], range(1, settings["layers"] + 1)
    if variant == LIGHT_MEAN:
        yield from (light_propagation(graph, table, depth) for depth in (0, *depths))
        return
    if variant == LIGHT_LAST:
        yield table
        for _ in depths:
            table = spmm(graph, symmetric_weights(graph, table.dtype), table)
            yield table
        return
    z = neighbour_means(graph, table) if variant == WARM else table
    yield z
    weights = RankWeights(alpha=settings["alpha"])
    for _ in depths:
        z = rank_attention(graph, z, weights, settings["tau"])
        yield z


def random_computations(request: Request) -> list[Computation]:
    """Return the computations of figure-random: none of them is a training."""
    found = []
    for data in request.datasets:
        found += [each for variant in (LIGHT_MEAN, LIGHT_LAST) for each in _random_row(request, data, variant, None)]
        for tau in _random_taus(request):
            found += [each for variant in (WARM, PLAIN) for each in _random_row(request, data, variant, tau)]
        found += [_authors_draws(request, data, each.tau, each.warm_up) for each in UNTRAINED.get(data.name, ())]
    return found


def show_random(request: Request, results: Results) -> Content:
    """Return NDCG@20 of random embeddings over the number of layers and over tau."""
    panels: list[Panel] = []
    tables: list[Table] = []
    findings: list[str] = []
    values: dict[str, Any] = {}
    for data in request.datasets:
        light = {variant: _depths(request, data, variant, None, results) for variant in (LIGHT_MEAN, LIGHT_LAST)}
        ours = {
            variant: {tau: _depths(request, data, variant, tau, results) for tau in _random_taus(request)}
            for variant in (WARM, PLAIN)
        }
        found = _random_figure(data.name, light, ours, request.layers)
        if found is None:
            continue
        panels += found[0]
        tables += found[1]
        findings += [f"{data.name}: {sentence}" for sentence in found[2]]
        authors = [
            (each, results.get(_authors_draws(request, data, each.tau, each.warm_up).key))
            for each in UNTRAINED.get(data.name, ())
        ]
        if any(result for _, result in authors):
            table, sentence = _authors_table(data.name, authors, ours, request.layers)
            tables.append(table)
            findings.append(sentence)
        values[data.name] = {
            NAMES[variant]: {f"{x:g}": spread.to_dict() for x, spread in curve.items()}
            for variant, curve in light.items()
        } | {
            f"{NAMES[variant]}, tau = {tau:g}": {f"{x:g}": spread.to_dict() for x, spread in curve.items()}
            for variant, curves in ours.items()
            for tau, curve in curves.items()
        }
    notes = (
        "Embeddings drawn from Normal(0, 0.1^2), not trained; alpha and dimension as in Rankformer's row "
        f"({request.origins('rankformer')}); test part, training items left out.",
        "The paper's caption leaves open tau, whether Rankformer's warm-up is among the layers, and whether LightGCN "
        "takes the mean of its layers, as it does when it scores: all readings are shown. It prints no numbers.",
    )
    caption = (
        f"Test NDCG@20 of random embeddings over tau and over the number of layers, {seed_words(request)}. "
        "The tables have the values."
    )
    picture = Picture(caption, tuple(panels)) if panels else None
    return Content(tuple(findings), tuple(tables), picture, notes, data=values)


def _random_figure(
    dataset: str, light: dict[str, Curve], ours: dict[str, dict[float, Curve]], layers: int
) -> tuple[list[Panel], list[Table], list[str]] | None:
    """Return two panels, two tables and the findings of one dataset; None where a curve is missing."""
    if not all(light.values()) or not all(curve for curves in ours.values() for curve in curves.values()):
        return None
    taus, last = list(ours[WARM]), float(layers)
    over_tau = {variant: {tau: curves[tau][last] for tau in taus} for variant, curves in ours.items()}
    constant = {variant: dict.fromkeys(taus, curve[last]) for variant, curve in light.items()}
    best = {variant: max(taus, key=lambda tau, v=variant: over_tau[v][tau].mean) for variant in ours}  # type: ignore[misc]
    by_depth = {f"{NAMES[variant]}, tau = {tau:g}": ours[variant][tau] for variant, tau in best.items()}
    by_depth |= {NAMES[variant]: curve for variant, curve in light.items()}
    lines = {NAMES[variant]: curve for variant, curve in (over_tau | constant).items()}
    y_label = "test NDCG@20"
    panels = [
        Panel(f"{dataset}, {layers} layers", "tau", y_label, tuple(line_of(*each) for each in lines.items())),
        Panel(dataset, "number of layers", y_label, tuple(line_of(*each) for each in by_depth.items()), whole_x=True),
    ]
    tables = [
        curve_table(f"{dataset}: test NDCG@20 after {layers} layers, over tau", "tau", lines),
        curve_table(f"{dataset}: test NDCG@20 over the number of layers", "layers", by_depth),
    ]
    return panels, tables, [random_shape(NAMES[variant], ours[variant], light) for variant in ours]


def random_shape(label: str, by_tau: dict[float, Curve], light: dict[str, Curve]) -> str:
    """Return at which values of tau the curves have the paper's shape: above LightGCN at every depth."""
    found = []
    for variant, rival in light.items():
        above = [tau for tau, curve in by_tau.items() if all(curve[x].mean > rival[x].mean for x in curve if x > 0)]
        taus = f"tau = {', '.join(f'{tau:g}' for tau in above)}" if above else "no tau"
        found.append(f"{taus} ({NAMES[variant]}; its best is {_top(rival)})")
    tau, depth = max(((t, x) for t, curve in by_tau.items() for x in curve), key=lambda at: by_tau[at[0]][at[1]].mean)
    return (
        f"{label} is above LightGCN at every depth, the paper's shape, at {' and at '.join(found)}. "
        f"Its best is {by_tau[tau][depth].mean:.4f} (tau = {tau:g}, {depth:g} layers)."
    )


def _authors_table(
    dataset: str, authors: list[Any], ours: dict[str, dict[float, Curve]], layers: int
) -> tuple[Table, str]:
    """Return our layers beside the authors' program, and whether they agree from the same random numbers."""
    rows, gaps = [], []
    for known, result in authors:
        variant = WARM if known.warm_up else PLAIN
        mine = result[NDCG][AUTHORS_LAYERS] if result else None
        curve = ours[variant].get(known.tau, {}) if layers >= AUTHORS_LAYERS else {}
        if mine is not None:
            gaps.append(abs(mine - known.ndcg))
        same = MISSING if mine is None else f"{mine:.4f}"
        warm_up = "yes" if known.warm_up else "no"
        rows.append((f"{known.tau:g}", warm_up, f"{known.ndcg:.4f}", same, shown(curve.get(float(AUTHORS_LAYERS)))))
    headings = ("tau", "warm-up", "authors' code", f"ours, its draws (seed {AUTHORS_SEED})", "ours, own seeds")
    agree = "agrees with" if max(gaps) < 2e-4 else "DIFFERS from"
    sentence = (
        f"{dataset}: from the same random numbers our layer {agree} the authors' code, {AUTHORS_LAYERS} layers deep "
        f"(largest difference {max(gaps):.4f})."
    )
    return Table(f"{dataset}: beside the authors' code, {AUTHORS_LAYERS} layers", headings, tuple(rows)), sentence


def _random_taus(request: Request) -> tuple[float, ...]:
    return request.taus()[1:-1]  # 0 does nothing, 1 forgets the input


def _random_settings(request: Request, data: Dataset, variant: str, tau: float | None) -> dict[str, Any]:
    row = request.settings(data, "rankformer")
    own = {name: row[name] for name in ("alpha", "embedding_dim")}
    return {"variant": variant, "tau": tau, "layers": request.layers, "scale": 0.1, "draws": "own", **own}


def _random_row(request: Request, data: Dataset, variant: str, tau: float | None) -> list[Computation]:
    settings = _random_settings(request, data, variant, tau)
    label = f"untrained {variant}{'' if tau is None else f', tau = {tau:g}'} on {data.name}"
    return [Computation("untrained", settings, seed, None, data, f"{label}, seed {seed}") for seed in request.seeds]


def _authors_draws(request: Request, data: Dataset, tau: float, warm_up: bool) -> Computation:
    settings = _random_settings(request, data, WARM if warm_up else PLAIN, tau)
    settings |= {"draws": "authors", "layers": AUTHORS_LAYERS}
    label = f"untrained {settings['variant']}, tau = {tau:g} on {data.name}, the authors' draws"
    return Computation("untrained", settings, AUTHORS_SEED, None, data, label)


def _depths(request: Request, data: Dataset, variant: str, tau: float | None, results: Results) -> Curve:
    keys = [each.key for each in _random_row(request, data, variant, tau)]
    values = [results[key][NDCG] for key in keys if key in results]
    return _curve(range(request.layers + 1), zip(*values, strict=True)) if values else {}


def _curve(places: Iterable[float], values: Iterable[Iterable[float]]) -> Curve:
    spreads = {float(x): spread_of(list(each)) for x, each in zip(places, values, strict=True)}
    return {x: spread for x, spread in spreads.items() if spread is not None}


def _top(curve: Curve) -> str:
    depth = max(curve, key=lambda x: curve[x].mean)
    return f"{curve[depth].mean:.4f} at {depth:g} layers"
