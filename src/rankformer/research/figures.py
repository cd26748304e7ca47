"""figure-random, figure-tau, figure-alpha: the paper's figures, with the numbers behind each line."""

from typing import Any

from rankformer.research.cells import Cell, DataCard, untrained_cell
from rankformer.research.content import Content, Line, Panel, Picture, Table
from rankformer.research.published import NDCG
from rankformer.research.request import PAPER_STEP, Request
from rankformer.research.runner import Results
from rankformer.research.shapes import alpha_shape, random_shape, tau_shape
from rankformer.research.summary import Row, Spread, shown, spread_of
from rankformer.research.untrained import VARIANTS

LAYER_COUNTS = (1, 2, 3, 4, 5)
VARIANT_NAMES = dict(
    zip(
        VARIANTS,
        ("Rankformer", "Rankformer after its warm-up", "LightGCN, mean of its layers", "LightGCN, last layer"),
        strict=True,
    )
)
Curve = dict[float, Spread]  # x -> NDCG@20 over seeds


def random_cells(request: Request) -> list[Cell]:
    """Return the untrained computations of figure-random."""
    return [cell for data in request.datasets for variant in VARIANTS for cell in _random_row(request, data, variant)]


def show_random(request: Request, results: Results) -> Content:
    """Return NDCG@20 of random rows over the number of layers."""
    curves: dict[str, dict[str, Curve]] = {}
    for data in request.datasets:
        curves[data.name] = {}
        for variant in VARIANTS:
            cells = [cell for cell in _random_row(request, data, variant) if cell.key in results]
            values = [results[cell.key][NDCG] for cell in cells]
            name = VARIANT_NAMES[variant]
            curves[data.name][name] = _curve(range(request.layers + 1), zip(*values, strict=True)) if values else {}
    settings = {data.name: _random_settings(request, data, VARIANTS[0]) for data in request.datasets}
    used = "; ".join(f"{name}: tau = {each['tau']:g}, alpha = {each['alpha']:g}" for name, each in settings.items())
    notes = (
        f"Rows drawn from Normal(0, 0.1^2), width {next(iter(settings.values()))['embedding_dim']}; {used}; test part, "
        "training items left out.",
        "The paper's caption leaves open whether Rankformer's warm-up is among the layers and whether LightGCN takes "
        "the mean of its layers, as it does when it scores: both readings of each are drawn. It prints no numbers.",
    )
    return _figure(request, curves, "layers", "number of layers", notes, whole_x=True, shape=random_shape)


def tau_cells(request: Request) -> list[Cell]:
    """Return the trainings of figure-tau."""
    return [
        cell
        for data in request.datasets
        for layers in LAYER_COUNTS
        for tau in request.taus()
        for cell in _tau_row(request, data, layers, tau)
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
    coarse = f"grid: tau in steps of {request.step:g}" + (
        "" if request.step <= PAPER_STEP else f" (the paper's: {PAPER_STEP:g})"
    )
    notes = (
        f"{coarse}. At tau = 0 the layers do nothing, so that point is one training shared by all lines.",
        _settings_note(request),
    )
    return _figure(request, curves, "tau", "step size tau", notes, shape=tau_shape, remark=coarse)


def alpha_cells(request: Request) -> list[Cell]:
    """Return the trainings of figure-alpha."""
    return [cell for data in request.datasets for alpha in request.alphas for cell in _alpha_row(request, data, alpha)]


def show_alpha(request: Request, results: Results) -> Content:
    """Return NDCG@20 over alpha."""
    curves = {
        data.name: {"Rankformer": _trained({a: _alpha_row(request, data, a) for a in request.alphas}, results)}
        for data in request.datasets
    }
    grid = "grid: alpha = " + ", ".join(f"{alpha:g}" for alpha in request.alphas)
    notes = (
        f"{grid}. Below alpha = 2 the normaliser's sums over untouched items are estimates, as in the authors' code.",
        _settings_note(request),
    )
    marks = (("x", 2.0, "alpha = 2, the paper's setting"),)
    return _figure(request, curves, "alpha", "offset alpha", notes, shape=alpha_shape, remark=grid, marks=marks)


def _random_settings(request: Request, data: DataCard, variant: str) -> dict[str, Any]:
    row = request.settings_of(data.name, "rankformer").settings
    own = {name: row[name] for name in ("tau", "alpha", "embedding_dim")}
    return {"variant": variant, "layers": request.layers, "scale": 0.1, **own}


def _random_row(request: Request, data: DataCard, variant: str) -> list[Cell]:
    return [untrained_cell(data, _random_settings(request, data, variant), seed) for seed in request.seeds]


def _tau_row(request: Request, data: DataCard, layers: int, tau: float) -> list[Cell]:
    depth = layers if tau else 1  # with tau = 0 every depth is the same function
    return request.row(data, "rankformer", f"L = {depth}, tau = {tau:g}", num_layers=depth, tau=tau)


def _alpha_row(request: Request, data: DataCard, alpha: float) -> list[Cell]:
    return request.row(data, "rankformer", f"alpha = {alpha:g}", alpha=alpha)


def _settings_note(request: Request) -> str:
    origins = (f"{data.name}: {request.settings_of(data.name, 'rankformer').origin}" for data in request.datasets)
    return (
        f"Other settings: {'; '.join(origins)}. Test part at the best validation; seeds: "
        f"{', '.join(map(str, request.seeds))}. The paper prints no numbers for this figure."
    )


def _curve(places: Any, values: Any) -> Curve:
    spreads = {float(x): spread_of(list(each)) for x, each in zip(places, values, strict=True)}
    return {x: spread for x, spread in spreads.items() if spread is not None}


def _trained(rows: dict[float, list[Cell]], results: Results) -> Curve:
    spreads = {x: Row.of(cells, results).metric(NDCG) for x, cells in rows.items()}
    return {x: spread for x, spread in spreads.items() if spread is not None}


def _figure(
    request: Request,
    curves: dict[str, dict[str, Curve]],
    column: str,
    x_label: str,
    notes: tuple[str, ...],
    *,
    shape: Any,
    remark: str = "",
    whole_x: bool = False,
    marks: tuple[tuple[str, float, str], ...] = (),
) -> Content:
    """Return a panel and a table for each dataset's curves, and what their shape says."""
    panels, tables, findings = [], [], []
    for dataset, named in curves.items():
        lines = tuple(_line(label, curve) for label, curve in named.items() if curve)
        if lines:
            panels.append(Panel(dataset, x_label, "test NDCG@20", lines, whole_x=whole_x, marks=marks))
        places = sorted({x for curve in named.values() for x in curve})
        rows = tuple((f"{x:g}", *(shown(curve.get(x)) for curve in named.values())) for x in places)
        tables.append(Table(f"{dataset}: test NDCG@20", (column, *named), rows))
        findings += [f"{dataset}: {sentence}" for sentence in shape({k: _means(v) for k, v in named.items()})]
    bars = " Bars: standard deviation over seeds." if len(request.seeds) > 1 else ""
    caption = f"Test NDCG@20 over {x_label}, {_seed_words(request)}.{bars} The table below has every value."
    data = {
        dataset: {label: {f"{x:g}": spread.to_dict() for x, spread in curve.items()} for label, curve in named.items()}
        for dataset, named in curves.items()
    }
    trial = f"trial: trainings cut off after {request.epochs} epochs" if request.epochs is not None else ""
    words = "; ".join(each for each in (remark, trial) if each)
    picture = Picture(caption, tuple(panels), words) if panels else None
    return Content(tuple(findings), tuple(tables), picture, notes, data)


def _means(curve: Curve) -> dict[float, float]:
    return {x: spread.mean for x, spread in curve.items()}


def _line(label: str, curve: Curve) -> Line:
    deviations = [spread.deviation for spread in curve.values()]
    known = tuple(each for each in deviations if each is not None)
    spread = known if len(known) == len(curve) else None
    return Line(label, tuple(curve), tuple(each.mean for each in curve.values()), spread)


def _seed_words(request: Request) -> str:
    return f"{len(request.seeds)} seeds" if len(request.seeds) > 1 else f"seed {request.seeds[0]}"
