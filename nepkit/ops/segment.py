"""Sums over consecutive segments (CSR) and their adjoint, without scatter or atomics."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import embedding_bag

from .operator import operator
from .policy import kernels_on


@dataclass(frozen=True, eq=False, slots=True)
class Segments:
    """Which of M values belong to which of S segments.

    The values of segment s are ``order[start[s]:start[s+1]]``, or just that range where ``order``
    is None. A value whose place lies beyond ``start[S]`` is in no sum.
    """

    start: Tensor  # (S + 1,) int32, ascending from 0
    owner: Tensor  # (M,) int32, the segment of each value
    order: Tensor | None = None  # (P,) int32
    typical: int = 4  # values of a segment, for the shape of a kernel; the sum's order follows it

    def sum(self, values: Tensor) -> Tensor:
        """Sum of the values (M, ...) of each segment -> (S, ...). The order of the sum is fixed."""
        if torch.is_grad_enabled() and values.requires_grad:
            return Linear.apply(values, self.sum, self.spread)
        # Not len: traced for batches of all sizes, it would be that of the first.
        flat = values.reshape(values.shape[0], math.prod(values.shape[1:])).contiguous()
        sums = segment_sum(flat, self.order, self.start, self.typical)
        return sums.view(self.start.shape[0] - 1, *values.shape[1:])

    def spread(self, values: Tensor) -> Tensor:
        """Give each member the value of its segment, (S, ...) -> (M, ...): the adjoint of sum."""
        if torch.is_grad_enabled() and values.requires_grad:
            return Linear.apply(values, self.spread, self.sum)
        return values.index_select(0, self.owner)


class Linear(torch.autograd.Function):
    """A linear map and its adjoint, each the other's derivative: differentiable to any order."""

    @staticmethod
    def forward(ctx, values, there, back):
        ctx.back = back
        return there(values.detach())

    @staticmethod
    def backward(ctx, gradient):
        return ctx.back(gradient), None, None


@operator("(Tensor values, Tensor? order, Tensor start, int typical) -> Tensor")
def segment_sum(values, order, start, typical):
    """Sum ``values[order[p]]`` (M, W) over each segment of p -> (S, W); see Segments."""
    if kernels_on(values.device):
        from .triton.segment import launch

        return launch(values, order, start, typical)
    return _plain_segment_sum(values, order, start)


@segment_sum.register_fake
def _(values, order, start, typical):
    return values.new_empty(start.shape[0] - 1, values.shape[1])


def _plain_segment_sum(values: Tensor, order: Tensor | None, start: Tensor) -> Tensor:
    """A sparse matrix in CSR form times ``values``: embedding_bag is torch's best at it."""
    if order is None:
        order = torch.arange(len(values), dtype=start.dtype, device=start.device)
    if len(order) == 0 or values.numel() == 0:
        return values.new_zeros(len(start) - 1, values.shape[1])
    # The last segment would take all that follows it.
    closed = torch.cat([start, start.new_full((1,), len(order))])
    sums = embedding_bag(order, values, closed, mode="sum", include_last_offset=True)
    return sums[:-1]
