"""Adam without torch's optimiser classes: the same bits, and none of their imports."""

import subprocess
import sys

import torch
from torch import nn

from rankformer.training.adam import Adam


def make_parameters():
    generator = torch.Generator().manual_seed(0)
    return [nn.Parameter(torch.randn(shape, generator=generator)) for shape in ((5, 3), (4,), (2, 2))]


def gradients_of(step, parameters):
    generator = torch.Generator().manual_seed(step)
    for number, parameter in enumerate(parameters):
        # The second parameter has no gradient in every other step, the third never.
        skipped = number == 2 or (number == 1 and step % 2)
        parameter.grad = None if skipped else torch.randn(parameter.shape, generator=generator)


def test_it_takes_the_same_steps_as_torch():
    ours, theirs = make_parameters(), make_parameters()
    adam, reference = Adam(ours), torch.optim.Adam(theirs, fused=True)
    for step in range(1, 8):
        rate = 0.3 / step
        gradients_of(step, ours)
        gradients_of(step, theirs)
        adam.step(rate)
        for group in reference.param_groups:
            group["lr"] = rate
        reference.step()
        for mine, other in zip(ours, theirs, strict=True):
            assert torch.equal(mine, other)
    assert torch.equal(ours[2], make_parameters()[2])


def test_a_restored_optimiser_continues_to_the_same_bits():
    first, second = make_parameters(), make_parameters()
    adam, copy = Adam(first), Adam(second)
    for step in range(1, 4):
        gradients_of(step, first)
        adam.step(0.1)
    with torch.no_grad():
        for mine, other in zip(second, first, strict=True):
            mine.copy_(other)
    copy.restore(adam.tensors())
    assert set(adam.tensors()) == {f"{n}.{name}" for n in (0, 1) for name in ("step", "exp_avg", "exp_avg_sq")}
    for step in range(4, 7):
        for parameters, optimizer in ((first, adam), (second, copy)):
            gradients_of(step, parameters)
            optimizer.step(0.1)
    for mine, other in zip(second, first, strict=True):
        assert torch.equal(mine, other)


def test_a_training_step_does_not_import_the_compiler():
    code = (
        "import sys, numpy as np\n"
        "from rankformer import Interactions, Rankformer\n"
        "for kept in ('float32', 'bfloat16'):\n"
        "    Rankformer(epochs=1, activations=kept).fit(Interactions.from_indices([0, 1, 1], [0, 0, 1]))\n"
        "print(*[name for name in sys.modules if name.startswith('torch._dynamo')])"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == ""
