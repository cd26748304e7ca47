"""Lemma 1 in numbers: what training through a gradient step does to the gradient.

The lemma models one Rankformer layer as a step of gradient descent, L_R(t) = L(t - tau grad L(t)). The chain rule gives

    grad L_R(t) = (I - tau H) grad L(t - tau grad L(t)),      H the Hessian of L at t          exactly,

and since grad L(t - tau g) = g - tau H g + O(tau^2) with g = grad L(t),

    grad L_R(t) = (I - tau H)(g - tau H g) + O(tau^2) = (I - 2 tau H) g + O(tau^2).

The paper has I - 3 tau H: it takes the gradient of the expansion of L(t - tau g) where the expansion of the gradient
at the moved point is meant, and the gradient of |g|^2 is 2 H g in place of H g. The conclusion (a step like
Levenberg's and Marquardt's, (I + c tau H)^-1 g) stays, with c = 2. All is computed here in float64 on a small random
graph, for BPR with -ln sigmoid and for the quadratic objective that the layer is derived from.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import softplus

OBJECTIVES = ("bpr", "quadratic")
# What grad L_R is compared with, by the words a report uses.
CLAIMS = (
    "(I - tau H) grad L(moved point)",
    "(I - 2 tau H) grad L",
    "(I + 2 tau H)^-1 grad L",
    "(I - 3 tau H) grad L (the paper)",
    "(I + 3 tau H)^-1 grad L (the paper)",
)


def check_lemma(settings: dict[str, Any], seed: int) -> dict[str, Any]:
    """Return, for each step size, how far grad L_R is from each claim, relative to |grad L|.

    Args:
        settings: objective, users, items, embedding_dim, alpha, taus.
        seed: of the graph and of the point.
    """
    loss, point = _problem(settings, seed)
    gradient = torch.func.grad(loss)
    # Reverse over reverse: forward mode loads parts of torch that warn of their own age.
    g, hessian = gradient(point), torch.func.jacrev(gradient)(point)
    errors: dict[str, list[float]] = {claim: [] for claim in CLAIMS}
    factors = []
    for tau in settings["taus"]:
        through_step = torch.func.grad(lambda t, tau=tau: loss(t - tau * gradient(t)))(point)
        for claim, value in _claims(tau, point, gradient, g, hessian).items():
            errors[claim].append(float((through_step - value).norm() / g.norm()))
        # The c for which g - c tau H g comes nearest to grad L_R.
        bend = hessian @ g
        factors.append(float((g - through_step) @ bend / (tau * bend.square().sum())))
    return {"errors": errors, "factors": factors}


def _claims(
    tau: float, point: Tensor, gradient: Callable[[Tensor], Tensor], g: Tensor, hessian: Tensor
) -> dict[str, Tensor]:
    identity = torch.eye(len(g), dtype=g.dtype)
    values = (
        (identity - tau * hessian) @ gradient(point - tau * g),
        (identity - 2 * tau * hessian) @ g,
        torch.linalg.solve(identity + 2 * tau * hessian, g),
        (identity - 3 * tau * hessian) @ g,
        torch.linalg.solve(identity + 3 * tau * hessian, g),
    )
    return dict(zip(CLAIMS, values, strict=True))


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
        # A light penalty keeps the quadratic one, which has no minimum of its own, at this point's scale.
        return -(triples * quality).sum() + 0.1 * z.square().sum()

    return objective, point


def order_of(taus: list[float], errors: list[float]) -> float:
    """Return the slope of log error over log tau by least squares: 2 means that the error falls as tau^2."""
    x: NDArray[np.float64] = np.log(np.asarray(taus))
    y: NDArray[np.float64] = np.log(np.maximum(np.asarray(errors), 1e-300))
    return float(np.polyfit(x, y, 1)[0])
