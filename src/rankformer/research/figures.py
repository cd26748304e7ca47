"""figure-tau and figure-alpha: the paper's figures over two settings, with the numbers behind each line."""

from itertools import pairwise

from rankformer.research.content import Content, Line, Panel, Picture, Table
from rankformer.research.published import NDCG
from rankformer.research.request import PAPER_STEP, Request
from rankformer.research.results import Computation, Dataset, Results
from rankformer.research.statistics import Row, Spread, shown

LAYER_COUNTS = (1, 2, 3, 4, 5)
Curve = dict[float, Spread]  # x -> NDCG@20 over seeds


def tau_computations(request: Request) -> list[Computation]:
    """Return the trainings of figure-tau."""
    return [
        each
        for data in request.datasets
        for layers in LAYER_COUNTS
        for tau in request.taus()
        for each in _tau_row(request, data, layers, tau)
    ]


def show_tau(request: Request, results: Results) -> Content:
    """Return NDCG@20 over tau, a line for each number of layers."""
    curves = {
        data.name: {
            f"L = {layers}": _trained({tau: _tau_row(request, data, layers, tau) for tau in request.taus()}, results)
            for layers in LAYER_COUNTS
        }
        for data in request.datasets
    }
    coarse = "" if request.step <= PAPER_STEP else f" (the paper's: {PAPER_STEP:g})"
    grid = f"grid: tau in steps of {request.step:g}{coarse}"
    notes = (f"{grid}. At tau = 0 the layers do nothing, so that point is one training shared by all lines.",)
    findings = tuple(f"{data}: {each}" for data, named in curves.items() for each in tau_shape(_means(named)))
    return _figure(request, curves, "tau", notes, findings, remark=grid)


def alpha_computations(request: Request) -> list[Computation]:
    """Return the trainings of figure-alpha."""
    return [each for data in request.datasets for alpha in request.alphas for each in _alpha_row(request, data, alpha)]


def show_alpha(request: Request, results: Results) -> Content:
    """Return NDCG@20 over alpha."""
    curves = {
        data.name: {"Rankformer": _trained({a: _alpha_row(request, data, a) for a in request.alphas}, results)}
        for data in request.datasets
    }
    grid = "grid: alpha = " + ", ".join(f"{alpha:g}" for alpha in request.alphas)
    notes = (
        f"{grid}. Below alpha = 2 the normalizer's sums over items without interaction are estimates, as in the "
        "authors' code.",
    )
    findings = tuple(f"{data}: {each}" for data, named in curves.items() for each in alpha_shape(_means(named)))
    marks = ((2.0, "alpha = 2, the paper's setting"),)
    return _figure(request, curves, "alpha", notes, findings, remark=grid, marks=marks)


def tau_shape(curves: dict[str, dict[float, float]]) -> list[str]:
    """Return whether each line rises and then falls and whether the best tau falls with depth, as the paper says."""
    known = {label: curve for label, curve in curves.items() if len(curve) > 2}
    if not known:
        return ["too few values of tau were measured to speak of a shape."]
    found = [f"{label}: {rises_then_falls(curve)} ({curve[best_x(curve)]:.4f})." for label, curve in known.items()]
    if len(known) > 1:
        best = [best_x(curve) for curve in known.values()]
        steps = ", ".join(f"{each:g}" for each in best)
        if all(later <= earlier for earlier, later in pairwise(best)) and best[-1] < best[0]:
            found.append(f"the best tau falls with the number of layers ({steps}), as in the paper.")
        else:
            found.append(f"the best tau over the number of layers is {steps}: not the paper's steady fall.")
    return found


def alpha_shape(curves: dict[str, dict[float, float]]) -> list[str]:
    """Return whether quality rises and then falls with alpha, as the paper says it generally does."""
    found = []
    for label, curve in curves.items():
        if len(curve) < 3:
            return ["too few values of alpha were measured to speak of a shape."]
        words = rises_then_falls(curve)
        agrees = "as in the paper" if words.startswith("rises") else "not the paper's rise and fall"
        found.append(f"{label}: {words} ({curve[best_x(curve)]:.4f}), {agrees}.")
    return found


def best_x(curve: dict[float, float]) -> float:
    """Return where a curve is highest, the first such place."""
    return max(curve, key=lambda x: (curve[x], -x))


def rises_then_falls(curve: dict[float, float]) -> str:
    """Return in words whether a curve rises to its maximum and falls after it, or has it at an end."""
    places = sorted(curve)
    best = best_x(curve)
    if best in (places[0], places[-1]):
        return f"highest at {'the first' if best == places[0] else 'the last'} value, {best:g}"
    values = [curve[x] for x in places]
    turn = places.index(best)
    steady = values[: turn + 1] == sorted(values[: turn + 1]) and values[turn:] == sorted(values[turn:], reverse=True)
    return f"rises to its best at {best:g} and falls{'' if steady else ', with ups and downs on the way'}"


def _tau_row(request: Request, data: Dataset, layers: int, tau: float) -> list[Computation]:
    depth = layers if tau else 1  # with tau = 0 every depth is the same function
    return request.row(data, "rankformer", f"L = {depth}, tau = {tau:g}", num_layers=depth, tau=tau)


def _alpha_row(request: Request, data: Dataset, alpha: float) -> list[Computation]:
    return request.row(data, "rankformer", f"alpha = {alpha:g}", alpha=alpha)


def _trained(rows: dict[float, list[Computation]], results: Results) -> Curve:
    spreads = {x: Row.of(computations, results).metric(NDCG) for x, computations in rows.items()}
    return {x: spread for x, spread in spreads.items() if spread is not None}


def _figure(
    request: Request,
    curves: dict[str, dict[str, Curve]],
    name: str,
    notes: tuple[str, ...],
    findings: tuple[str, ...],
    *,
    remark: str,
    marks: tuple[tuple[float, str], ...] = (),
) -> Content:
    """Return a panel and a table for each dataset's curves."""
    panels = []
    for dataset, named in curves.items():
        lines = tuple(line_of(label, curve) for label, curve in named.items() if curve)
        if lines:
            panels.append(Panel(dataset, name, "test NDCG@20", lines, marks=marks))
    tables = tuple(curve_table(f"{dataset}: test NDCG@20", name, named) for dataset, named in curves.items())
    bars = " Bars: standard deviation over seeds." if len(request.seeds) > 1 else ""
    caption = f"Test NDCG@20 over {name}, {seed_words(request)}.{bars} The table below has every value."
    data = {
        dataset: {label: {f"{x:g}": spread.to_dict() for x, spread in curve.items()} for label, curve in named.items()}
        for dataset, named in curves.items()
    }
    if request.epochs is not None:
        remark += f"; trial: trainings cut off after {request.epochs} epochs"
    settings = (
        f"Other settings: {request.origins('rankformer')}. Test part at the best validation; seeds: "
        f"{', '.join(map(str, request.seeds))}. The paper prints no numbers for this figure."
    )
    picture = Picture(caption, tuple(panels), remark) if panels else None
    return Content(findings, tables, picture, (*notes, settings), data=data)


def curve_table(title: str, column: str, curves: dict[str, Curve]) -> Table:
    """Return the values of curves, a column each."""
    places = sorted({x for curve in curves.values() for x in curve})
    rows = tuple((f"{x:g}", *(shown(curve.get(x)) for curve in curves.values())) for x in places)
    return Table(title, (column, *curves), rows)


def _means(curves: dict[str, Curve]) -> dict[str, dict[float, float]]:
    return {label: {x: spread.mean for x, spread in curve.items()} for label, curve in curves.items()}


def line_of(label: str, curve: Curve) -> Line:
    """Return a curve as a line with error bars, where there are several seeds."""
    known = tuple(each.deviation for each in curve.values() if each.deviation is not None)
    means = tuple(each.mean for each in curve.values())
    return Line(label, tuple(curve), means, known if len(known) == len(curve) else None)


def seed_words(request: Request) -> str:
    """Return the seeds in words, for captions."""
    return f"{len(request.seeds)} seeds" if len(request.seeds) > 1 else f"seed {request.seeds[0]}"
