"""Log-sum-exp of all inner products with a long list of keys, exact, in bounded memory.

    L = sum_q w_q log sum_k exp(x_q . y_k)
    dL/dx_q = w_q sum_k P_qk y_k,   dL/dy_k = sum_q w_q P_qk x_q,   P_qk = exp(x_q . y_k) / sum_k' exp(x_q . y_k')

A block of queries sees all keys at once, so its softmax P is known as soon as its scores are: the gradient is taken
there and then, and backward only scales it. That is three matrix products in all; scores are neither kept nor computed
twice.
"""

from typing import Any

import torch
from torch import Tensor

_BLOCK = 2**21  # scores held at once: more fall out of the processor's cache between the three products
_SAFE = 60.0  # exp of scores up to here, and the sum of billions of them, are far from overflow in float32


def weighted_log_sum_exp(queries: Tensor, keys: Tensor, weights: Tensor, block: int = _BLOCK) -> Tensor:
    """Return sum_q weights_q log sum_k exp(queries_q . keys_k), differentiable in queries (Q, d) and keys (K, d).

    At most `block` scores are held at once, or those of one query.
    """
    return _WeightedLogSumExp.apply(queries, keys, weights, block)  # type: ignore[no-any-return, no-untyped-call]


class _WeightedLogSumExp(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, queries: Tensor, keys: Tensor, weights: Tensor, block: int) -> Tensor:
        keys = keys.contiguous()
        grad_queries, grad_keys = torch.empty_like(queries), torch.zeros_like(keys)
        size = max(1, block // len(keys))
        buffer = keys.new_empty(min(size, len(queries)), len(keys))
        # No score exceeds the product of the largest lengths; below the safe bound the shift by the row's maximum,
        # two more passes over the scores, is not needed.
        lengths = [torch.linalg.vector_norm(rows, dim=1) for rows in (queries, keys)]
        largest = (lengths[0].max() * lengths[1].max()).item() if len(queries) else 0.0
        total = queries.new_zeros(())
        for start in range(0, len(queries), size):
            part = slice(start, start + size)
            x, w = queries[part], weights[part]
            scores = torch.mm(x, keys.T, out=buffer[: len(x)])
            shift = x.new_zeros(len(x), 1) if largest <= _SAFE else scores.amax(1, keepdim=True)
            raised = (scores if largest <= _SAFE else scores.sub_(shift)).exp_()
            sums = raised.sum(1)
            total += torch.dot(w, sums.log() + shift[:, 0])
            scale = (w / sums)[:, None]
            grad_queries[part] = (raised @ keys).mul_(scale)
            grad_keys.addmm_(raised.T, x * scale)
        ctx.save_for_backward(grad_queries, grad_keys)
        return total

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, None, None]:
        grad_queries, grad_keys = ctx.saved_tensors
        return grad_queries * grads[0], grad_keys * grads[0], None, None
