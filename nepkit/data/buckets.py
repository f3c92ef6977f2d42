"""Sizes that batches are filled up to: few, so that few step graphs serve all batches."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from .batch import Batch, Sizes
from .structures import Structures

# Rungs of the ladder grow by this factor.
STEP = 1.04
BLOCK = 16
# Modulo BLOCK, sizes of different kinds, their numbers of segment starts (one more) and of
# directed pairs (twice as many) all differ: a compiler that sees two equal sizes in the first
# batch takes them for one, and compiles again when they part.
REMAINDERS = Sizes(frames=0, atoms=2, rows=4, halves=7, angulars=11)


class Ladder:
    """Rungs of room for the batches of a data set.

    On a rung all kinds of members have the proportions of the whole set. So a batch takes the rung
    of the kind that it has most of, and batches of equal work share a few rungs.
    """

    def __init__(self, structures: Structures):
        self.structures = structures
        self.mean = structures.counts.mean(0) if len(structures) else np.ones(4)
        self.counts = np.concatenate([structures.counts, np.zeros((1, 4), np.int64)])

    def sizes(self, frames: np.ndarray) -> Sizes:
        """Room for ``frames`` (B,) and a ghost of each kind.

        Of several batches (S, B), filled up with -1, the room that is enough for any.
        """
        needed = self.counts[frames].sum(-2).reshape(-1, 4).max(0)
        most = max(n / mean for n, mean in zip(needed, self.mean) if n)
        room = self.mean * STEP ** math.ceil(math.log(most) / math.log(STEP))
        room = [max(size, n) for size, n in zip(room.tolist(), needed.tolist())]
        # Frames cost next to nothing.
        n_frames = 2 ** math.ceil(math.log2(frames.shape[-1] + 1))
        return Sizes(*(_blocks(size + 1, r) for size, r in zip((n_frames, *room), REMAINDERS)))

    def frames(self, frames: np.ndarray, sizes: Sizes) -> Tensor:
        """``frames`` (B,) and the empty frame as often as ``sizes`` have room: int64, on the host."""
        result = torch.full((sizes.frames,), len(self.structures))
        result[: len(frames)] = torch.as_tensor(frames)
        return result

    def batch(self, frames: np.ndarray, sizes: Sizes | None = None) -> Batch:
        """The batch of ``frames`` (B,), filled up to their own rung or to ``sizes``."""
        sizes = self.sizes(frames) if sizes is None else sizes
        padded = self.frames(frames, sizes).to(self.structures.device)
        return self.structures.batch(padded, sizes)


def _blocks(size: float, remainder: int) -> int:
    """The smallest number of at least ``size`` that leaves ``remainder`` modulo BLOCK."""
    return BLOCK * max(math.ceil((size - remainder) / BLOCK), 1) + remainder
