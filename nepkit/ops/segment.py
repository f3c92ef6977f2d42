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
    total = embedding_bag(
        index, flat, start, mode="sum", per_sample_weights=weights, include_last_offset=True
    )
    return total.view(shape)

