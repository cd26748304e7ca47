"""figure-tau, figure-alpha and figure-random: the paper's figures, with the numbers behind each line.

figure-random shows how far the architecture alone gets, over the number of layers and over tau, which the paper does
not print.
"""

from collections.abc import Callable
from itertools import pairwise
from typing import Any

from rankformer.research.content import Content, Line, Panel, Picture, Table
from rankformer.research.published import AUTHORS_SEED, NDCG, UNTRAINED, notes_of
from rankformer.research.request import PAPER_STEP, Request
from rankformer.research.results import Computation, Dataset
from rankformer.research.statistics import Plan, Row, Rows, Spread, shown, spread_of
from rankformer.research.untrained import LIGHT_LAST, LIGHT_MEAN, NAMES, PLAIN, WARM

LAYER_COUNTS = (1, 2, 3, 4, 5)
AUTHORS_LAYERS = 10
Curve = dict[float, Spread]  # x -> NDCG@20 over seeds
Means = dict[float, float]
Y_LABEL = "test NDCG@20"


def plan_tau(request: Request) -> Plan:
    """Return the trainings of figure-tau by dataset, line and tau."""
    plan: Plan = {}
    for data in request.datasets:
        for layers in LAYER_COUNTS:
            for tau in request.taus():
                depth = layers if tau else 1  # with tau = 0 every depth is the same function
                row = request.row(data, "rankformer", f"L = {depth}, tau = {tau:g}", num_layers=depth, tau=tau)
                plan[data.name, f"L = {layers}", tau] = row
    return plan


def show_tau(request: Request, rows: Rows) -> Content:
    """Return NDCG@20 over tau, a line for each number of layers."""
    coarse = "" if request.step <= PAPER_STEP else f" (the paper's: {PAPER_STEP:g})"
    grid = f"grid: tau in steps of {request.step:g}{coarse}"
    return _figure(request, rows, "tau", grid, tau_shape)


def plan_alpha(request: Request) -> Plan:
    """Return the trainings of figure-alpha by dataset, line and alpha."""
    return {
        (data.name, "Rankformer", alpha): request.row(data, "rankformer", f"alpha = {alpha:g}", alpha=alpha)
        for data in request.datasets
        for alpha in request.alphas
    }


def show_alpha(request: Request, rows: Rows) -> Content:
    """Return NDCG@20 over alpha."""
    grid = "grid: alpha = " + ", ".join(f"{alpha:g}" for alpha in request.alphas)
    return _figure(request, rows, "alpha", grid, alpha_shape, ((2.0, "alpha = 2, the paper's setting"),))


def _figure(
    request: Request,
    rows: Rows,
    name: str,
    grid: str,
    shape: Callable[[dict[str, Means]], list[str]],
    marks: tuple[tuple[float, str], ...] = (),
) -> Content:
    """Return a panel, a table and the shape in words for each dataset's curves."""
    panels, tables, findings, values = [], [], [], {}
    for data in request.datasets:
        curves: dict[str, Curve] = {key[1]: {} for key in rows if key[0] == data.name}
        for (dataset, label, x), row in rows.items():
            score = row.metric(NDCG)
            if dataset == data.name and score is not None:
                curves[label][x] = score
        if any(curves.values()):
            panels.append(Panel(data.name, name, Y_LABEL, _lines(curves), marks=marks))
        tables.append(_curve_table(f"{data.name}: {Y_LABEL}", name, curves))
        means = {label: {x: spread.mean for x, spread in curve.items()} for label, curve in curves.items()}
        findings += [f"{data.name}: {sentence}" for sentence in shape(means)]
        values[data.name] = _as_data(curves)
    bars = " Bars: standard deviation over seeds." if len(request.seeds) > 1 else ""
    caption = f"Test NDCG@20 over {name}, {_seed_words(request)}.{bars} The table below has every value."
    trial = "" if request.epochs is None else f"; trial: trainings cut off after {request.epochs} epochs"
    words = {"grid": grid, "origins": request.origins("rankformer"), "seeds": ", ".join(map(str, request.seeds))}
    picture = Picture(caption, panels, grid + trial) if panels else None
    return Content(tuple(findings), tables, picture, notes_of(f"figure-{name}", **words), data=values)


def tau_shape(curves: dict[str, Means]) -> list[str]:
    """Return whether each line rises and then falls and whether the best tau falls with depth, as the paper says."""
    known = {label: curve for label, curve in curves.items() if len(curve) > 2}
    if not known:
        return ["too few values of tau were measured to show a shape."]
    found = [f"{label}: {rises_then_falls(curve)} ({curve[best_x(curve)]:.4f})." for label, curve in known.items()]
    if len(known) > 1:
        best = [best_x(curve) for curve in known.values()]
        steps = ", ".join(f"{each:g}" for each in best)
        if all(later <= earlier for earlier, later in pairwise(best)) and best[-1] < best[0]:
            found.append(f"the best tau falls with the number of layers ({steps}), as in the paper.")
        else:
            found.append(f"the best tau over the number of layers is {steps}: not the paper's steady fall.")
    return found


def alpha_shape(curves: dict[str, Means]) -> list[str]:
    """Return whether quality rises and then falls with alpha, as the paper says it generally does."""
    [(label, curve)] = curves.items()
    if len(curve) < 3:
        return ["too few values of alpha were measured to show a shape."]
    words = rises_then_falls(curve)
    agrees = "as in the paper" if words.startswith("rises") else "not the paper's rise and fall"
    return [f"{label}: {words} ({curve[best_x(curve)]:.4f}), {agrees}."]


def best_x(curve: Means) -> float:
    """Return where a curve is highest, the first such x."""
    return max(curve, key=lambda x: (curve[x], -x))


def rises_then_falls(curve: Means) -> str:
    """Return in words whether a curve rises to its maximum and falls after it, or has it at an end."""
    xs = sorted(curve)
    best = best_x(curve)
    if best in (xs[0], xs[-1]):
        return f"highest at {'the first' if best == xs[0] else 'the last'} value, {best:g}"
    values = [curve[x] for x in xs]
    turn = xs.index(best)
    steady = values[: turn + 1] == sorted(values[: turn + 1]) and values[turn:] == sorted(values[turn:], reverse=True)
    return f"rises to its best at {best:g} and falls{'' if steady else ', with ups and downs on the way'}"


def plan_random(request: Request) -> Plan:
    """Return what figure-random computes, by dataset, variant and tau, and last that of the authors' draws."""
    plan: Plan = {}
    for data in request.datasets:
        lines: list[tuple[str, float | None]] = [(LIGHT_MEAN, None), (LIGHT_LAST, None)]
        lines += [(variant, tau) for tau in request.taus()[1:-1] for variant in (WARM, PLAIN)]  # 1 ignores the input
        for variant, tau in lines:
            row = [_untrained(request, data, variant, tau, seed, f"seed {seed}") for seed in request.seeds]
            plan[data.name, variant, tau] = row
        for number, known in enumerate(UNTRAINED.get(data.name, ())):
            variant, changes = _variant(known), {"draws": "authors", "layers": AUTHORS_LAYERS}
            same = _untrained(request, data, variant, known["tau"], AUTHORS_SEED, "the authors' draws", **changes)
            plan[data.name, "authors", number] = [same]
    return plan


def _untrained(
    request: Request, data: Dataset, variant: str, tau: float | None, seed: int, which: str, **changes: Any
) -> Computation:
    row = request.settings(data, "rankformer")
    settings = {"variant": variant, "tau": tau, "layers": request.layers, "scale": 0.1, "draws": "own"}
    settings |= {"alpha": row["alpha"], "embedding_dim": row["embedding_dim"], **changes}
    label = f"untrained {variant}{'' if tau is None else f', tau = {tau:g}'} on {data.name}, {which}"
    return Computation("untrained", settings, seed, None, data, label)


def _variant(known: dict[str, Any]) -> str:
    return WARM if known["warm_up"] else PLAIN


def show_random(request: Request, rows: Rows) -> Content:
    """Return NDCG@20 of random embeddings over the number of layers and over tau."""
    panels: list[Panel] = []
    tables: list[Table] = []
    findings: list[str] = []
    values: dict[str, Any] = {}
    taus, layers = request.taus()[1:-1], request.layers
    for data in request.datasets:
        light = {variant: _by_depth(rows[data.name, variant, None]) for variant in (LIGHT_MEAN, LIGHT_LAST)}
        ours = {variant: {tau: _by_depth(rows[data.name, variant, tau]) for tau in taus} for variant in (WARM, PLAIN)}
        named = {NAMES[variant]: curve for variant, curve in light.items()}
        named |= {_at(variant, tau): curve for variant, curves in ours.items() for tau, curve in curves.items()}
        if not all(named.values()):
            continue
        values[data.name] = _as_data(named)
        over_tau = {NAMES[v]: {tau: curves[tau][layers] for tau in taus} for v, curves in ours.items()}
        over_tau |= {NAMES[variant]: dict.fromkeys(taus, curve[layers]) for variant, curve in light.items()}
        best = [_at(v, max(taus, key=lambda tau, c=curves: c[tau][layers].mean)) for v, curves in ours.items()]  # type: ignore[misc]
        over_depth = {label: named[label] for label in (*best, *(NAMES[variant] for variant in light))}
        panels.append(Panel(f"{data.name}, {layers} layers", "tau", Y_LABEL, _lines(over_tau)))
        panels.append(Panel(data.name, "number of layers", Y_LABEL, _lines(over_depth), whole_x=True))
        tables.append(_curve_table(f"{data.name}: {Y_LABEL} after {layers} layers, over tau", "tau", over_tau))
        tables.append(_curve_table(f"{data.name}: {Y_LABEL} over the number of layers", "layers", over_depth))
        findings += [f"{data.name}: {_random_shape(NAMES[v], curves, light)}" for v, curves in ours.items()]
        authors = [(known, rows[data.name, "authors", at]) for at, known in enumerate(UNTRAINED.get(data.name, ()))]
        if any(row.seeds for _, row in authors):
            table, sentence = _authors_table(data.name, authors, ours)
            tables.append(table)
            findings.append(sentence)
    caption = (
        f"Test NDCG@20 of random embeddings over tau and over the number of layers, {_seed_words(request)}. "
        "The tables have the values."
    )
    picture = Picture(caption, panels) if panels else None
    notes = notes_of("figure-random", origins=request.origins("rankformer"))
    return Content(tuple(findings), tables, picture, notes, data=values)


def _at(variant: str, tau: float) -> str:
    return f"{NAMES[variant]}, tau = {tau:g}"


def _by_depth(row: Row) -> Curve:
    depths = enumerate(zip(*(result[NDCG] for result in row.results), strict=True))
    return {float(depth): spread for depth, values in depths if (spread := spread_of(values))}


def _random_shape(label: str, by_tau: dict[float, Curve], light: dict[str, Curve]) -> str:
    """Return at which values of tau the curves have the paper's shape: above LightGCN at every depth."""
    found = []
    for variant, rival in light.items():
        above = [tau for tau, curve in by_tau.items() if all(curve[x].mean > rival[x].mean for x in curve if x > 0)]
        taus = f"tau = {', '.join(f'{tau:g}' for tau in above)}" if above else "no tau"
        top = max(rival, key=lambda x, curve=rival: curve[x].mean)  # type: ignore[misc]
        found.append(f"{taus} ({NAMES[variant]}; its best is {rival[top].mean:.4f} at {top:g} layers)")
    tau, depth = max(((t, x) for t, curve in by_tau.items() for x in curve), key=lambda at: by_tau[at[0]][at[1]].mean)
    return (
        f"{label} is above LightGCN at every depth, the paper's shape, at {' and at '.join(found)}. "
        f"Its best is {by_tau[tau][depth].mean:.4f} (tau = {tau:g}, {depth:g} layers)."
    )


def _authors_table(
    dataset: str, authors: list[tuple[dict[str, Any], Row]], ours: dict[str, dict[float, Curve]]
) -> tuple[Table, str]:
    """Return our layers beside the authors' program, and whether they agree from the same random numbers."""
    rows, gaps = [], []
    for known, row in authors:
        tau, mine = known["tau"], _by_depth(row).get(AUTHORS_LAYERS)
        own = ours[_variant(known)].get(tau, {}).get(AUTHORS_LAYERS)
        if mine is not None:
            gaps.append(abs(mine.mean - known["ndcg"]))
        rows.append((f"{tau:g}", "yes" if known["warm_up"] else "no", *map(shown, (known["ndcg"], mine, own))))
    headings = ("tau", "warm-up", "authors' code", f"ours, its draws (seed {AUTHORS_SEED})", "ours, own seeds")
    agree = "agrees with" if max(gaps) < 2e-4 else "DIFFERS from"
    sentence = (
        f"{dataset}: from the same random numbers our layer {agree} the authors' code, {AUTHORS_LAYERS} layers deep "
        f"(largest difference {max(gaps):.4f})."
    )
    return Table(f"{dataset}: beside the authors' code, {AUTHORS_LAYERS} layers", headings, rows), sentence


def _curve_table(title: str, column: str, curves: dict[str, Curve]) -> Table:
    xs = sorted({x for curve in curves.values() for x in curve})
    rows = tuple((f"{x:g}", *(shown(curve.get(x)) for curve in curves.values())) for x in xs)
    return Table(title, (column, *curves), rows)


def _lines(curves: dict[str, Curve]) -> tuple[Line, ...]:
    """Return the curves that have points as lines, with error bars where there are several seeds."""
    lines = []
    for label, curve in curves.items():
        bars = tuple(each.standard_deviation for each in curve.values() if each.standard_deviation is not None)
        means = tuple(each.mean for each in curve.values())
        if curve:
            lines.append(Line(label, tuple(curve), means, bars if len(bars) == len(curve) else None))
    return tuple(lines)


def _as_data(curves: dict[str, Curve]) -> dict[str, Any]:
    return {label: {f"{x:g}": spread._asdict() for x, spread in curve.items()} for label, curve in curves.items()}


def _seed_words(request: Request) -> str:
    return f"{len(request.seeds)} seeds" if len(request.seeds) > 1 else f"seed {request.seeds[0]}"
