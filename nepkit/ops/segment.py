"""Sums over consecutive segments (CSR), without scatter or atomics."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import embedding_bag


def segment_sum(values: Tensor, start: Tensor) -> Tensor:
    """Sum the rows of ``values`` (M, ...) over each segment ``start[s]:start[s+1]`` -> (S, ...).

    ``start`` (S + 1,) int ascends from 0 to M. The order of the sum is fixed.
    """
    order = torch.arange(len(values), dtype=start.dtype, device=values.device)
    return gathered_segment_sum(values, order, start)


def gathered_segment_sum(
    values: Tensor, index: Tensor, start: Tensor, weights: Tensor | None = None
) -> Tensor:
    """Sum ``weights[p] * values[index[p]]`` over each segment of p -> (S, ...).

    ``values`` (M, ...), ``index`` (P,) and ``start`` (S + 1,) of one integer type, ``weights``
    (P,) of the type of ``values``. This is a sparse matrix in CSR form times ``values``; torch's
    embedding_bag is its best implementation on CPUs and deterministic everywhere.
    """
    shape = (len(start) - 1, *values.shape[1:])
    if len(index) == 0 or values.numel() == 0:
        return values.new_zeros(shape)
    flat = values.reshape(len(values), -1)
    if torch.is_grad_enabled() and (flat.requires_grad or _needs_grad(weights)):
        return _DifferentiableSum.apply(flat, index, start, weights).view(shape)
    return _bag(flat, index, start, weights).view(shape)


def _needs_grad(weights: Tensor | None) -> bool:
    return weights is not None and weights.requires_grad


def _bag(flat: Tensor, index: Tensor, start: Tensor, weights: Tensor | None) -> Tensor:
    return embedding_bag(
        index, flat, start, mode="sum", per_sample_weights=weights, include_last_offset=True
    )


class _DifferentiableSum(torch.autograd.Function):
    """The sum for torch's autograd, to any order, which embedding_bag itself is not."""

    @staticmethod
    def forward(ctx, flat, index, start, weights):
        ctx.save_for_backward(flat, index, start, weights)
        return _bag(flat, index, start, weights)

    @staticmethod
    def backward(ctx, gradient):
        flat, index, start, weights = ctx.saved_tensors
        segments = torch.arange(len(start) - 1, device=start.device)
        segments = torch.repeat_interleave(segments, start.diff().long())
        members = gradient.index_select(0, segments)
        to_weights = None
        if weights is not None:
            to_weights = (members * flat.index_select(0, index)).sum(1)
            members = members * weights[:, None]
        to_values = torch.zeros_like(flat).index_add(0, index.long(), members)
        return to_values, None, None, to_weights
