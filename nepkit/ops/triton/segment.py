"""Segment sums: out[s] = sum over p in start[s]..start[s+1] of values[order[p]]."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor


@triton.jit
def sum_kernel(
    values, order, start, out, n_segments, width,
    ORDERED: tl.constexpr, SEGMENTS: tl.constexpr, PLACES: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """A program sums SEGMENTS segments in COLUMNS columns, PLACES places of each at a time."""
    segment = tl.program_id(0) * SEGMENTS + tl.arange(0, SEGMENTS)
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    real = segment < n_segments
    first = tl.load(start + segment, mask=real, other=0)
    last = tl.load(start + segment + 1, mask=real, other=0)
    inside = (column < width)[None, None, :]
    total = tl.zeros((SEGMENTS, PLACES, COLUMNS), dtype=values.dtype.element_ty)
    for step in range(0, tl.max(last - first, 0), PLACES):
        place = first[:, None] + step + tl.arange(0, PLACES)[None, :]
        member = place < last[:, None]
        if ORDERED:
            place = tl.load(order + place, mask=member, other=0)
        cell = place.to(tl.int64)[:, :, None] * width + column[None, None, :]
        total += tl.load(values + cell, mask=member[:, :, None] & inside, other=0.0)
    cell = segment.to(tl.int64)[:, None] * width + column[None, :]
    tl.store(out + cell, tl.sum(total, 1), mask=real[:, None] & (column < width)[None, :])


def tile(typical: int, width: int) -> tuple[int, int, int]:
    """SEGMENTS, PLACES and COLUMNS of a program, about 1,024 numbers in all.

    Long segments get many places, so that their loads are in flight together; short ones share
    a program. Nothing here depends on a batch, nor does the order of a sum.
    """
    columns = min(triton.next_power_of_2(width), 256)
    places = max(1, min(triton.next_power_of_2(typical) // 4, 128))
    if places > 8:
        columns = min(columns, max(1024 // places, 8))
    return max(1, 1024 // (places * columns)), places, columns


def launch(values: Tensor, order: Tensor | None, start: Tensor, typical: int) -> Tensor:
    """Sums (S, W) of ``values`` (M, W) by ``start`` (S + 1,) and ``order`` (P,) or None."""
    values = values.contiguous()
    n_segments, width = len(start) - 1, values.shape[1]
    out = torch.empty(n_segments, width, dtype=values.dtype, device=values.device)
    if out.numel() == 0:
        return out
    segments, places, columns = tile(typical, width)
    grid = (triton.cdiv(n_segments, segments), triton.cdiv(width, columns))
    sum_kernel[grid](
        values, values if order is None else order, start, out, n_segments, width,
        order is not None, segments, places, columns, num_warps=4, enable_fp_fusion=True,
    )  # fmt: skip
    return out
