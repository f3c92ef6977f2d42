"""The pairs of a list that are within the cutoff now (ops/moving.py)."""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from ..moving import ClosePairs, Neighborhood
from .launch import options
from .moving_sums import listed_pairs


@triton.jit
def close_kernel(
    positions, shifts, types, start, neighbor, shift, cutoff, end, close, vectors, stride, n_types,
    PAIRS: tl.constexpr,
):  # fmt: skip
    """Moves up the pairs within the cutoff of the atom of this program, and says where they end."""
    atom = tl.program_id(0)
    free = tl.load(start + atom)
    last = tl.load(start + atom + 1)
    for step in range(free, last, PAIRS):
        place = step + tl.arange(0, PAIRS)
        x, y, z, _, u, _, j, _, _ = listed_pairs(
            positions, shifts, types, neighbor, shift, cutoff, atom, place, last, n_types
        )
        keep = u != 0.0  # and NaN
        kept = keep.to(tl.int32)
        to = free + tl.cumsum(kept, 0) - 1
        tl.store(close + to, j.to(tl.int32), mask=keep)
        tl.store(vectors + to, x, mask=keep)
        tl.store(vectors + (to + stride), y, mask=keep)
        tl.store(vectors + (to + stride + stride), z, mask=keep)
        free += tl.sum(kept, 0)
    tl.store(end + atom, free)


def launch(
    positions: Tensor, shifts: Tensor, types: Tensor, listed: Neighborhood, cutoff: Tensor,
    n_types: int,
) -> ClosePairs:  # fmt: skip
    """The pairs of ``listed`` within their ``cutoff`` (T T,), with the places of the list."""
    n_atoms, n_pairs = len(types), len(listed.neighbor)
    end = listed.start.new_empty(n_atoms)
    neighbor, vectors = listed.neighbor.new_empty(n_pairs), cutoff.new_empty(3, n_pairs)
    if n_atoms:
        close_kernel[(n_atoms,)](
            positions, shifts, types, *listed, cutoff, end, neighbor, vectors, n_pairs, n_types,
            **options("moving_close"),
        )  # fmt: skip
    return ClosePairs(listed.start[:n_atoms], end, neighbor, vectors)
