"""Sums of stretches of numbers: out[place[i] + k] = sum over p of values[source[p] + k].

p runs from start[i] until before start[i + 1], and k from 0 until before length[i]: what rows of
parameters and what they share are to each other (train/shared.py).
"""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from ..gather import Pieces
from .launch import options


@triton.jit
def gather_kernel(
    values, start, source, place, length, out, PLACES: tl.constexpr, COLUMNS: tl.constexpr
):
    """A program makes one piece, of COLUMNS numbers at most, from PLACES stretches at a time."""
    piece = tl.program_id(0)
    first, last = tl.load(start + piece), tl.load(start + piece + 1)
    column = tl.arange(0, COLUMNS)
    inside = column < tl.load(length + piece)
    total = tl.zeros((PLACES, COLUMNS), dtype=values.dtype.element_ty)
    for step in range(first, last, PLACES):
        places = step + tl.arange(0, PLACES)
        there = places < last
        origin = tl.load(source + places, mask=there, other=0)
        cell = origin[:, None] + column[None, :]
        total += tl.load(values + cell, mask=there[:, None] & inside[None, :], other=0.0)
    tl.store(out + tl.load(place + piece) + column, tl.sum(total, 0), mask=inside)


def launch(pieces: Pieces, values: Tensor, out: Tensor):
    """Write the sums of ``values`` (M,) to ``out``; both may be one tensor where nothing overlaps."""
    if len(pieces.place) == 0:
        return
    gather_kernel[(len(pieces.place),)](
        values, pieces.start, pieces.source, pieces.place, pieces.length, out,
        COLUMNS=pieces.COLUMNS, **options("gather_long" if pieces.long else "gather"),
    )  # fmt: skip
