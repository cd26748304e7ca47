"""lemma: what holds of the paper's Lemma 1, shown by how fast errors fall with the step size."""

import statistics
from typing import Any

from rankformer.research.cells import Cell, lemma_cell
from rankformer.research.content import Content, Line, Panel, Picture, Table
from rankformer.research.lemma import CLAIMS, OBJECTIVES, order_of
from rankformer.research.request import Request
from rankformer.research.runner import Results

TAUS = tuple(10 ** (-exponent / 4) for exponent in range(6, 19))  # 0.03 down to 3e-5
SMALLEST = 5  # how many of them, a decade, the orders are read off: a claim about small tau shows there
NAMES = {"bpr": "BPR, -ln sigmoid", "quadratic": "quadratic objective"}
EXACT, SECOND, INVERSE, PAPER, PAPER_INVERSE = CLAIMS


def lemma_cells(request: Request) -> list[Cell]:
    """Return the checks: each objective on a random graph per seed."""
    return [cell for objective in OBJECTIVES for cell in _cells(request, objective)]


def show_lemma(request: Request, results: Results) -> Content:
    """Return the errors of each claim over tau, their orders, and the fitted factor."""
    panels, rows, values = [], [], {}
    for objective in OBJECTIVES:
        found = [results[cell.key] for cell in _cells(request, objective) if cell.key in results]
        if not found:
            continue
        worst = {
            claim: [max(each) for each in zip(*(one["errors"][claim] for one in found), strict=True)]
            for claim in CLAIMS
        }
        orders = {claim: order_of(list(TAUS[-SMALLEST:]), worst[claim][-SMALLEST:]) for claim in CLAIMS}
        factors = [statistics.fmean(each) for each in zip(*(one["factors"] for one in found), strict=True)]
        rows += [_row(objective, claim, worst[claim], orders[claim]) for claim in CLAIMS]
        panels.append(_panel(objective, worst, orders))
        values[objective] = {"taus": list(TAUS), "errors": worst, "orders": orders, "factors": factors}
    headings = ("objective", "grad L_R against", f"error at tau = {TAUS[0]:.2g}", f"at tau = {TAUS[-1]:.2g}", "order")
    caption = (
        "Relative error of each claim about the gradient through one step of gradient descent, over the step size: the "
        "largest over seeds. A line of slope 2 falls as tau^2; the flat lines are rounding."
    )
    picture = (
        Picture(caption, tuple(panels), "float64, random graphs of 5 users x 6 items, width 2") if panels else None
    )
    table = Table("Errors relative to |grad L|, the largest over seeds", headings, tuple(rows), texts=2)
    return Content(_findings(values), (table,), picture, _NOTES, values)


_NOTES = (
    "L_R(t) = L(t - tau grad L(t)) is the lemma's model of a layer; H is the Hessian of L at t, computed in full.",
    "Where the paper's 3 comes from: it expands L(t - tau g) and differentiates, so that the gradient of |g|^2, which "
    "is 2 H g, stands where the expansion of the gradient at the moved point has H g. With (I - tau H) in front the "
    "sum is 3 in place of 2. The lemma's conclusion, a step like Levenberg's and Marquardt's, stays: (I + 2 tau H)^-1.",
)


def _settings(objective: str) -> dict[str, Any]:
    return {"objective": objective, "users": 5, "items": 6, "embedding_dim": 2, "alpha": 2.0, "taus": list(TAUS)}


def _cells(request: Request, objective: str) -> list[Cell]:
    return [lemma_cell(_settings(objective), seed) for seed in request.seeds]


def _row(objective: str, claim: str, errors: list[float], order: float) -> tuple[str, ...]:
    exact = claim == EXACT
    words = "rounding" if exact else f"{order:.2f}"
    return (NAMES[objective], claim, f"{errors[0]:.1e}", f"{errors[-1]:.1e}", words)


def _panel(objective: str, worst: dict[str, list[float]], orders: dict[str, float]) -> Panel:
    def words(claim: str) -> str:
        return f"{claim}: {'rounding' if claim == EXACT else f'order {orders[claim]:.2f}'}"

    # Rounding can be nothing at all, for which a logarithmic axis has no place.
    lines = tuple(Line(words(claim), TAUS, tuple(max(each, 1e-17) for each in worst[claim])) for claim in CLAIMS)
    return Panel(NAMES[objective], "step size tau", "error relative to |grad L|", lines, logarithmic=True)


def _findings(values: dict[str, Any]) -> tuple[str, ...]:
    if not values:
        return ()
    exact = max(max(each["errors"][EXACT]) for each in values.values())
    orders = {claim: [each["orders"][claim] for each in values.values()] for claim in CLAIMS}
    factors = ", ".join(f"{each['factors'][-1]:.4f} ({NAMES[name]})" for name, each in values.items())
    holds = exact < 1e-12
    second = all(abs(order - 2) < 0.2 for claim in (SECOND, INVERSE) for order in orders[claim])
    first = all(abs(order - 1) < 0.2 for claim in (PAPER, PAPER_INVERSE) for order in orders[claim])
    return (
        f"The chain rule {'holds' if holds else 'FAILS'} exactly: grad L_R = {EXACT}, to {exact:.0e}.",
        f"To first order grad L_R = {SECOND} {'holds' if second else 'FAILS'}: errors fall as tau to the power "
        f"{_span(orders[SECOND])}, and those of {INVERSE} as {_span(orders[INVERSE])}.",
        f"The paper's factor 3 {'does not hold' if first else 'is not refuted here'}: errors of (I - 3 tau H) grad L "
        f"fall only as tau to the power {_span(orders[PAPER])}, so the term in tau itself is wrong.",
        f"The factor that fits best at tau = {TAUS[-1]:.1e} is {factors}: it should be 2.",
    )


def _span(orders: list[float]) -> str:
    return " and ".join(f"{order:.2f}" for order in orders)
