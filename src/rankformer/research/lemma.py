"""lemma: what holds of the paper's Lemma 1, on what training through a gradient step does to the gradient.

The lemma models one Rankformer layer as a step of gradient descent, L_R(t) = L(t - tau grad L(t)). The chain rule gives

    grad L_R(t) = (I - tau H) grad L(t - tau grad L(t)),      H the Hessian of L at t          exactly,

and since grad L(t - tau g) = g - tau H g + O(tau^2) with g = grad L(t),

    grad L_R(t) = (I - tau H)(g - tau H g) + O(tau^2) = (I - 2 tau H) g + O(tau^2).

The paper has I - 3 tau H: it takes the gradient of the expansion of L(t - tau g) where the expansion of the gradient
at the moved point is meant, and the gradient of |g|^2 is 2 H g in place of H g. The conclusion (a step like
Levenberg's and Marquardt's, (I + c tau H)^-1 g) stays, with c = 2. All is computed here in float64 on a small random
graph, for BPR with -ln sigmoid and for the quadratic objective that the layer is derived from.
"""

import statistics
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import softplus

from rankformer.research.content import Content, Line, Panel, Picture, Table
from rankformer.research.published import notes_of
from rankformer.research.request import Request
from rankformer.research.results import Computation
from rankformer.research.statistics import Plan, Rows

NAMES = {"bpr": "BPR, -ln sigmoid", "quadratic": "quadratic objective"}
OBJECTIVES = tuple(NAMES)
# What grad L_R is compared with, by its name in a report.
CLAIMS = EXACT, SECOND, INVERSE, PAPER, PAPER_INVERSE = (
    "(I - tau H) grad L(moved point)",
    "(I - 2 tau H) grad L",
    "(I + 2 tau H)^-1 grad L",
    "(I - 3 tau H) grad L (the paper)",
    "(I + 3 tau H)^-1 grad L (the paper)",
)
TAUS = tuple(10 ** (-exponent / 4) for exponent in range(6, 19))  # 0.03 down to 3e-5
SMALLEST = 5  # how many of them, a decade, the orders are read off: a claim about small tau shows there


def check_lemma(settings: dict[str, Any], seed: int) -> dict[str, Any]:
    """Return, for each tau, how far grad L_R is from each claim, relative to |grad L|.

    Args:
        settings: objective, users, items, embedding_dim, alpha, taus.
        seed: of the graph and of the point.
    """
    loss, point = _problem(settings, seed)
    gradient = torch.func.grad(loss)
    # Reverse over reverse: forward mode loads parts of torch that raise deprecation warnings.
    g, hessian = gradient(point), torch.func.jacrev(gradient)(point)
    identity, curved = torch.eye(len(g), dtype=g.dtype), hessian @ g
    errors: dict[str, list[float]] = {claim: [] for claim in CLAIMS}
    factors = []
    for tau in settings["taus"]:
        through_step = torch.func.grad(lambda t, tau=tau: loss(t - tau * gradient(t)))(point)
        claimed = (
            (identity - tau * hessian) @ gradient(point - tau * g),
            (identity - 2 * tau * hessian) @ g,
            torch.linalg.solve(identity + 2 * tau * hessian, g),
            (identity - 3 * tau * hessian) @ g,
            torch.linalg.solve(identity + 3 * tau * hessian, g),
        )
        for claim, value in zip(CLAIMS, claimed, strict=True):
            errors[claim].append(float((through_step - value).norm() / g.norm()))
        # The c for which g - c tau H g comes nearest to grad L_R.
        factors.append(float((g - through_step) @ curved / (tau * curved.square().sum())))
    return {"errors": errors, "factors": factors}


def _problem(settings: dict[str, Any], seed: int) -> tuple[Callable[[Tensor], Tensor], Tensor]:
    """Return the objective as a function of all coordinates in one vector, and a random point."""
    generator = torch.Generator().manual_seed(seed)
    n, m, d = settings["users"], settings["items"], settings["embedding_dim"]
    positive = torch.rand(n, m, generator=generator) < 0.4
    positive[:, 0], positive[:, 1] = True, False  # every user has an item and lacks one
    point = 0.5 * torch.randn((n + m) * d, generator=generator, dtype=torch.float64)
    # (n, m, m) weight of each triple: 1 / (d_u (m - d_u)) where i is u's and j is not (Eq. 1)
    triples = (positive[:, :, None] & ~positive[:, None, :]).double()
    triples /= triples.sum((1, 2), keepdim=True)

    def objective(t: Tensor) -> Tensor:
        z = t.reshape(n + m, d)
        scores = z[:n] @ z[n:].T
        margin = scores[:, :, None] - scores[:, None, :]
        quality = -softplus(-margin) if settings["objective"] == "bpr" else margin * (margin + settings["alpha"])
        # A light regularization keeps the quadratic one, which has no minimum of its own, at this point's scale.
        return -(triples * quality).sum() + 0.1 * z.square().sum()

    return objective, point


def order_of(taus: Sequence[float], errors: Sequence[float]) -> float:
    """Return the slope of log error over log tau by least squares: 2 means that the error falls as tau^2."""
    return float(np.polyfit(np.log(taus), np.log(np.maximum(errors, 1e-300)), 1)[0])


def plan_lemma(request: Request) -> Plan:
    """Return the checks by objective, each on a random graph per seed."""
    plan: Plan = {}
    for objective, name in NAMES.items():
        settings = {"objective": objective, "users": 5, "items": 6, "embedding_dim": 2, "alpha": 2.0, "taus": TAUS}
        row = [Computation("lemma", settings, seed, label=f"lemma, {name}, seed {seed}") for seed in request.seeds]
        plan[(objective,)] = row
    return plan


def show_lemma(request: Request, rows: Rows) -> Content:
    """Return the errors of each claim over tau, their orders, and the fitted factor."""
    del request
    panels, table_rows, values = [], [], {}
    for (objective,), row in rows.items():
        if not row.results:
            continue
        errors, orders, lines = {}, {}, []
        for claim in CLAIMS:
            worst = [max(each) for each in zip(*(one["errors"][claim] for one in row.results), strict=True)]
            errors[claim] = worst
            orders[claim] = order_of(TAUS[-SMALLEST:], worst[-SMALLEST:])
            order = "rounding" if claim == EXACT else f"{orders[claim]:.2f}"
            table_rows.append((objective, claim, f"{worst[0]:.1e}", f"{worst[-1]:.1e}", order))
            label = f"{claim}: {'' if claim == EXACT else 'order '}{order}"
            # Rounding can be nothing at all, which a logarithmic axis cannot show.
            lines.append(Line(label, TAUS, tuple(max(each, 1e-17) for each in worst)))
        label = "error relative to |grad L|"
        panels.append(Panel(NAMES[objective], "step tau", label, lines, logarithmic=True))
        factors = [statistics.fmean(each) for each in zip(*(one["factors"] for one in row.results), strict=True)]
        values[objective] = {"taus": TAUS, "errors": errors, "orders": orders, "factors": factors}
    headings = ("objective", "grad L_R against", f"tau = {TAUS[0]:.2g}", f"tau = {TAUS[-1]:.2g}", "order")
    caption = (
        "Relative error of each claim about the gradient through one step of gradient descent, over tau: the "
        "largest over seeds. A line of slope 2 falls as tau^2; the flat lines are rounding."
    )
    picture = Picture(caption, panels, "float64, random graphs of 5 users x 6 items, dimension 2")
    table = Table("Errors relative to |grad L|, the largest over seeds", headings, table_rows, texts=2)
    return Content(_findings(values), (table,), picture if panels else None, notes_of("lemma"), data=values)


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
