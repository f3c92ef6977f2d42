"""Selections of arrays whose pieces, one a frame, are of different lengths."""

from __future__ import annotations

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
