"""Sizes that batches are filled up to: few, so that few step graphs serve all batches."""

from __future__ import annotations

import math

import numpy as np
import torch

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
        self.mean = structures.counts.mean(0).tolist() if len(structures) else [1.0] * 4
        self.counts = np.concatenate([structures.counts, np.zeros((1, 4), np.int64)])

    def sizes(self, frames: np.ndarray) -> Sizes:
        """Room for ``frames`` (B,) and a ghost of each kind.

        Of several batches (S, B), filled up with -1, the room that is enough for any.
        """
        needed = np.add.reduce(self.counts[frames], -2)
        needed = (needed if needed.ndim == 1 else needed.max(0)).tolist()
        most = max(n / mean for n, mean in zip(needed, self.mean) if n)
        rung = STEP ** math.ceil(math.log(most) / math.log(STEP))
        room = [max(mean * rung, n) for n, mean in zip(needed, self.mean)]
        # Frames cost next to nothing.
        n_frames = 2 ** math.ceil(math.log2(frames.shape[-1] + 1))
        return Sizes(*map(_blocks, (n_frames, *room), REMAINDERS))

    def frames(self, frames: np.ndarray, sizes: Sizes) -> np.ndarray:
        """``frames`` (B,) and the empty frame as often as ``sizes`` have room: int64."""
        result = np.full(sizes.frames, len(self.structures), np.int64)
        result[: len(frames)] = frames
        return result

    def batch(self, frames: np.ndarray, sizes: Sizes | None = None) -> Batch:
        """The batch of ``frames`` (B,), filled up to their own rung or to ``sizes``."""
        sizes = self.sizes(frames) if sizes is None else sizes
        padded = torch.from_numpy(self.frames(frames, sizes)).to(self.structures.device)
        return self.structures.batch(padded, sizes)


def _blocks(size: float, remainder: int) -> int:
    """The smallest number above ``size``, by 1 at least, that leaves ``remainder`` modulo BLOCK."""
    return BLOCK * max(math.ceil((size + 1 - remainder) / BLOCK), 1) + remainder
