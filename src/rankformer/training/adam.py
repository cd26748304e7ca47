"""Adam (Kingma and Ba, ICLR 2015) by torch's fused kernel, and nothing else.

The same kernel, and so the same bits, as `torch.optim.Adam(fused=True)`. Building that class imports torch's compiler,
about a second and 80 MB in every process that trains; the kernel needs neither.
"""

from collections.abc import Iterable

import torch
from torch import Tensor, nn

_BETA1, _BETA2, _EPSILON = 0.9, 0.999, 1e-8


class Adam:
    """The moments of some parameters, and the step that uses them."""

    def __init__(self, parameters: Iterable[nn.Parameter]) -> None:
        self.parameters = list(parameters)
        self._state: list[dict[str, Tensor]] = [{} for _ in self.parameters]

    def clear_gradients(self) -> None:
        """Drop the gradients of all parameters."""
        for parameter in self.parameters:
            parameter.grad = None

    def step(self, learning_rate: float) -> None:
        """Move every parameter that has a gradient, in place."""
        chosen = [number for number, parameter in enumerate(self.parameters) if parameter.grad is not None]
        for number in chosen:
            if not self._state[number]:
                parameter = self.parameters[number]
                moments = {name: torch.zeros_like(parameter) for name in ("exp_avg", "exp_avg_sq")}
                self._state[number] = {"step": torch.zeros((), device=parameter.device), **moments}
        states = [self._state[number] for number in chosen]
        with torch.no_grad():
            for state in states:
                state["step"] += 1
            torch._fused_adam_(
                [self.parameters[number] for number in chosen],
                [gradient for number in chosen if (gradient := self.parameters[number].grad) is not None],
                [state["exp_avg"] for state in states],
                [state["exp_avg_sq"] for state in states],
                [],
                [state["step"] for state in states],
                lr=learning_rate,
                beta1=_BETA1,
                beta2=_BETA2,
                weight_decay=0.0,
                eps=_EPSILON,
                amsgrad=False,
                maximize=False,
            )

    def tensors(self) -> dict[str, Tensor]:
        """Return the state, as NUMBER.step, NUMBER.exp_avg and NUMBER.exp_avg_sq of each parameter that has moved."""
        return {f"{number}.{name}": value for number, state in enumerate(self._state) for name, value in state.items()}

    def restore(self, tensors: dict[str, Tensor]) -> None:
        """Take back what `tensors` returned."""
        self._state = [{} for _ in self.parameters]
        for name, value in tensors.items():
            number, _, part = name.partition(".")
            self._state[int(number)][part] = value.to(self.parameters[int(number)].device).clone()
