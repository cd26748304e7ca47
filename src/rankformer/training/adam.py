"""Adam (Kingma and Ba, ICLR 2015) by torch's fused kernel, and nothing else.

The same kernel, and so the same bits, as `torch.optim.Adam(fused=True)`. Building that class imports torch's compiler,
about a second and 80 MB in every process that trains; the kernel needs neither.
"""

import math
from typing import Any

import torch
from torch import Tensor, nn

from rankformer.graph.bipartite import BipartiteGraph

_COEFFICIENTS: dict[str, Any] = {"beta1": 0.9, "beta2": 0.999, "eps": 1e-8}
_UNUSED: dict[str, Any] = {"weight_decay": 0.0, "amsgrad": False, "maximize": False}


class Adam:
    """The moments of some parameters, and the step that uses them.

    Of several ranks each has the moments of its own rows of a table and moves these alone: `BipartiteGraph.own_rows`.
    """

    def __init__(self, parameters: list[nn.Parameter], graph: BipartiteGraph | None = None) -> None:
        self.parameters = parameters
        self.graph = None if graph is None or graph.ranks.alone else graph
        self._state: list[dict[str, Tensor]] = [{} for _ in self.parameters]

    def reduce(self, loss: float) -> list[float]:
        """Sum the gradients over the ranks, in place; return the sum of their losses and of each gradient."""
        gradients, graph = [p.grad for p in self.parameters if p.grad is not None], self.graph
        if graph is None:
            return [loss, *(gradient.sum().item() for gradient in gradients)]
        for gradient in gradients:
            graph.ranks.reduce_(gradient[graph.num_users :])
        return graph.ranks.total(loss, *(graph.own_rows(gradient).sum().item() for gradient in gradients))

    def clip(self, most: float) -> None:
        """Scale the gradients down to a norm of at most so much, over all parameters and ranks."""
        if self.graph is None:
            nn.utils.clip_grad_norm_(self.parameters, most)
            return
        gradients = [p.grad for p in self.parameters if p.grad is not None]
        squares = sum(float(self.graph.own_rows(gradient).square().sum()) for gradient in gradients)
        norm = math.sqrt(self.graph.ranks.total(squares)[0])
        for gradient in gradients:
            gradient.mul_(min(1.0, most / (norm + 1e-6)))

    @torch.no_grad()
    def step(self, learning_rate: float) -> None:
        """Move every parameter that has a gradient, in place."""
        moved: list[tuple[Tensor, Tensor, dict[str, Tensor]]] = [
            (p, p.grad, state) for p, state in zip(self.parameters, self._state, strict=True) if p.grad is not None
        ]
        for parameter, _, state in moved:
            if not state:
                state["step"] = torch.zeros((), device=parameter.device)
                own = parameter if self.graph is None else self.graph.own_rows(parameter)
                state |= {name: torch.zeros_like(own) for name in ("exp_avg", "exp_avg_sq")}
            state["step"] += 1
        if self.graph is not None:
            moved = [part for each in moved for part in _own_parts(self.graph, *each)]
        parameters, gradients = tuple(p for p, _, _ in moved), tuple(gradient for _, gradient, _ in moved)
        means, squares, steps = ([state[name] for *_, state in moved] for name in ("exp_avg", "exp_avg_sq", "step"))
        options = {"lr": learning_rate, **_COEFFICIENTS, **_UNUSED}
        torch._fused_adam_(parameters, gradients, means, squares, [], steps, **options)
        for parameter in self.parameters if self.graph is not None else ():
            self.graph.ranks.gather_(parameter[self.graph.num_users :])  # type: ignore[union-attr]

    def tensors(self) -> dict[str, Tensor]:
        """Return the state, as NUMBER.step, NUMBER.exp_avg and NUMBER.exp_avg_sq of each parameter that has moved."""
        return {f"{number}.{name}": value for number, state in enumerate(self._state) for name, value in state.items()}

    def restore(self, tensors: dict[str, Tensor]) -> None:
        """Take back what `tensors` returned."""
        self._state = [{} for _ in self.parameters]
        for name, value in tensors.items():
            number, _, part = name.partition(".")
            self._state[int(number)][part] = value.to(self.parameters[int(number)].device).clone()


def _own_parts(
    graph: BipartiteGraph, parameter: Tensor, gradient: Tensor, state: dict[str, Tensor]
) -> list[tuple[Tensor, Tensor, dict[str, Tensor]]]:
    """Return what is moved of a table on this rank, as two parts: its users, and the items it owns."""
    n = graph.num_users
    return [
        (parameter[rows], gradient[rows], {name: value[kept] if value.ndim else value for name, value in state.items()})
        for rows, kept in ((slice(0, n), slice(0, n)), (graph.own_items, slice(n, None)))
    ]
