"""Selections of arrays whose pieces, one a frame, are of different lengths."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from torch import Tensor


class Members:
    """Where the members of ``frames`` (B,) lie, in arrays cut at ``offsets`` (kinds, F + 2)."""

    def __init__(self, offsets: Tensor, frames: Tensor):
        self.end = offsets[:, -1]  # the ghosts
        # The empty frame comes last: what is in no frame is its.
        frames = torch.nn.functional.pad(frames, (0, 1), value=offsets.shape[1] - 2)
        first = offsets.index_select(1, frames)
        counts = offsets.index_select(1, frames + 1) - first
        start = counts.cumsum(1) - counts
        self.shift = first - start
        self.start = start.to(torch.int32)  # (kinds, B + 1) of each frame in the batch

    def find(self, kind: int, size: int) -> tuple[Tensor, Tensor]:
        """Place in the data and frame of the batch, B for ghosts, of ``size`` slots; int32."""
        slot = torch.arange(size, dtype=torch.int32, device=self.start.device)
        start = self.start[kind].contiguous()
        frame = torch.searchsorted(start, slot, right=True, out_int32=True) - 1
        index = self.shift[kind].index_select(0, frame) + slot
        return torch.minimum(index, self.end[kind]).to(torch.int32), frame


def end_to_end(first: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """The integers from ``first`` on (n,), ``counts`` (n,) of them each, end to end; int64."""
    ends = np.cumsum(counts)
    return np.repeat(first - ends + counts, counts) + np.arange(ends[-1] if len(ends) else 0)


def chunks(sizes: Sequence[int], limit: int) -> Iterator[tuple[int, int]]:
    """Ranges of pieces with at most ``limit`` members together, or one piece."""
    start = total = 0
    for piece, size in enumerate(sizes):
        if piece > start and total + size > limit:
            yield start, piece
            start, total = piece, 0
        total += size
    if len(sizes):
        yield start, len(sizes)


def sums(values: np.ndarray, first: np.ndarray) -> np.ndarray:
    """The sums (n, ...) of the pieces of ``values`` (A, ...) that begin at ``first`` (n + 1,).

    Each is numpy's pairwise sum, which np.add.reduceat is not.
    """
    ends = first.tolist()
    return np.array([values[start:end].sum(0) for start, end in zip(ends, ends[1:])])
