"""What training keeps in memory: freed blocks for the next step and, of a stack of layers, for its backward pass:

    float32      every layer's output, as it is
    bfloat16     every layer's output, rounded to half the bytes; the backward pass reads the rounded values
    recompute    some of the outputs; the others are computed a second time, to the same bits, when they are needed

Let a stack have K functions whose outputs are of one size, one unit each; its own input is held elsewhere in any case.
The backward pass of the last function comes first and finds all that was kept, which is where the peak lies: K units
in float32. In `recompute` the stack is cut into segments c_1..c_s. Of each but the last only the input is kept; when
the backward pass reaches segment j it holds the inputs of segments 2..j and the c_j outputs computed again, that is
j - 1 + c_j units. No segment exceeds P units if c_j <= P - (j - 1), so that P units carry up to P (P + 1) / 2
functions: a peak that grows with the root of the depth for less than one more forward pass. The last segment is needed
at once and is therefore kept, not computed again.
"""

import ctypes
import math
import platform
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import Literal

import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks
from torch.utils.checkpoint import checkpoint

Activations = Literal["float32", "bfloat16", "recompute"]
Layer = Callable[[Tensor], Tensor]

_M_TRIM_THRESHOLD, _M_MMAP_MAX = -1, -4  # glibc's names for mallopt's first argument


def apply_layers(layers: Sequence[Layer], x: Tensor, keep: Activations = "float32") -> Tensor:
    """Return the last output of functions applied one after the other, with what `keep` says for the backward pass.

    No function may draw random numbers or change its input.
    """
    if not torch.is_grad_enabled() or keep == "float32":
        return _in_turn(layers, x)
    return _rounded(layers, x) if keep == "bfloat16" else _recomputed(layers, x)


def segment_sizes(count: int) -> list[int]:
    """Return how `recompute` cuts a stack of `count` functions: the fewest segments among those of least peak."""
    peak = least_units(count)
    sizes: list[int] = []
    segments = next(s for s in range(1, count + 1) if sum(range(peak - s + 1, peak + 1)) >= count)
    for position in range(segments - 1, -1, -1):  # from the end, whose functions run only once
        sizes.insert(0, min(peak - position, count - sum(sizes)))
    return sizes


def least_units(count: int) -> int:
    """Return the outputs held at the peak of `recompute`: the least P with P (P + 1) / 2 >= count."""
    return (math.isqrt(8 * count - 7) + 1) // 2


def _in_turn(layers: Sequence[Layer], x: Tensor) -> Tensor:
    for layer in layers:
        x = layer(x)
    return x


def _recomputed(layers: Sequence[Layer], x: Tensor) -> Tensor:
    left = iter(layers)
    for size in segment_sizes(len(layers))[:-1]:
        x = checkpoint(_in_turn, list(islice(left, size)), x, use_reentrant=False, preserve_rng_state=False)
    return _in_turn(list(left), x)


def _rounded(layers: Sequence[Layer], x: Tensor) -> Tensor:
    """Apply the layers; autograd keeps a bfloat16 copy of each float32 tensor of one shape, made once however often.

    A layer keeps its input and its output, and the output is the next layer's input: copies are known by the address
    of what they were made from. An address means something only while its tensor is alive, so after each layer all
    are forgotten but that of the output, which the next layer holds on to.
    """
    shape = x.shape
    copies: dict[int, Tensor] = {}

    def pack(tensor: Tensor) -> Tensor:
        if tensor.dtype != torch.float32 or tensor.shape != shape or (tensor.is_leaf and tensor.requires_grad):
            return tensor
        address = tensor.data_ptr()
        if address not in copies:
            copies[address] = tensor.detach().to(torch.bfloat16)
        return copies[address]

    def unpack(kept: Tensor) -> Tensor:
        return kept.float() if kept.dtype == torch.bfloat16 else kept

    for layer in layers:
        with saved_tensors_hooks(pack, unpack):
            x = layer(x)
        copies = {address: copy for address, copy in copies.items() if address == x.data_ptr()}
    return x


@contextmanager
def kept_memory() -> Iterator[None]:
    """Within this context glibc reuses freed blocks of any size; elsewhere than on glibc it does nothing.

    A training step allocates the same (n+m) x d arrays every time. By default glibc returns such blocks to the system
    when they are freed, and the next step pays a page fault for every 4 KiB: an eighth of a step on Epinions, a third
    at 16 million interactions. So large blocks too come from the heap, and the heap is returned at the end.
    """
    if platform.libc_ver()[0] != "glibc":
        yield
        return
    library = ctypes.CDLL(None)
    library.mallopt(_M_MMAP_MAX, 0)
    library.mallopt(_M_TRIM_THRESHOLD, -1)  # never
    try:
        yield
    finally:
        for name, default in ((_M_MMAP_MAX, 65536), (_M_TRIM_THRESHOLD, 128 * 2**10)):
            library.mallopt(name, default)
        library.malloc_trim(0)
