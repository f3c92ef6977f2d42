"""The order in which frames are seen: batches of equal work, drawn anew every epoch."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch

# Batches differ by at most this part of their mean work, where the frames allow it.
TOLERANCE = 0.02
# Frames of a batch that are tried in a swap.
MOST_COMPARED = 128


def batches_per_epoch(n_frames: int, batch: int) -> int:
    """Batches that hold every frame once; their sizes differ by one frame at most."""
    return max(1, math.ceil(n_frames / batch))


@dataclass
class Sampler:
    """The frames of each step of a stage, from the seed, the stage and the epoch.

    ``work`` (F,) is what each frame costs, its pairs. An epoch has every frame once, in batches
    drawn at random, which then swap frames until all have about the same work.
    """

    work: np.ndarray
    batch: int
    seed: int
    stage: int
    _epoch: int = -1

    def frames(self, step: int) -> np.ndarray:
        """Frames (B,) of ``step`` (from 0) of the stage."""
        epoch, place = divmod(step, batches_per_epoch(len(self.work), self.batch))
        if epoch != self._epoch:
            self._batches, self._epoch = self._deal(epoch), epoch
        members = self._batches[:, place]
        return members[members >= 0]

    def _deal(self, epoch: int) -> np.ndarray:
        """The batches of an epoch, a column each; -1 where the last line has no frame."""
        n_batches = batches_per_epoch(len(self.work), self.batch)
        generator = torch.Generator()
        mixed = (self.seed * 1_000_003 + self.stage) * 1_000_003 + epoch
        generator.manual_seed(mixed % 2**63)
        order = torch.randperm(len(self.work), generator=generator).numpy()
        members = np.full((math.ceil(len(order) / n_batches), n_batches), -1)
        members.reshape(-1)[: len(order)] = order
        self._level(members)
        return members

    def _level(self, members: np.ndarray):
        """Swap frames between the batch with the most work and the one with the least."""
        work = np.where(members >= 0, self.work[members], 0.0)
        total, mean = work.sum(0), work.sum() / work.shape[1]
        full = min(len(self.work) // work.shape[1], MOST_COMPARED)  # lines without a gap
        for _ in range(8 * work.shape[1]):
            most, least = total.argmax(), total.argmin()
            surplus = total[most] - total[least]
            if surplus <= TOLERANCE * mean:
                return
            gain = work[:full, most, None] - work[None, :full, least]
            here, there = np.unravel_index(np.abs(gain - 0.5 * surplus).argmin(), gain.shape)
            if not 0.0 < gain[here, there] < surplus:
                return
            total[[most, least]] += gain[here, there] * np.array([-1.0, 1.0])
            for table in (members, work):
                table[here, most], table[there, least] = table[there, least], table[here, most]


def dealt(frames: np.ndarray, work: np.ndarray, n_shares: int) -> np.ndarray:
    """``frames`` (B,) in shares of about equal work, a line each; -1 where a share has fewer.

    ``work`` (F,) is what each frame costs. The heaviest frames go to the shares one by one, the next
    to the same shares backwards, and so on.
    """
    if n_shares == 1:
        return frames[None]
    shares = np.full((math.ceil(len(frames) / n_shares), n_shares), -1)
    shares.reshape(-1)[: len(frames)] = frames[np.argsort(-work[frames], kind="stable")]
    shares[1::2] = shares[1::2, ::-1]
    return shares.T


def ranges(work: np.ndarray, n_shares: int) -> np.ndarray:
    """Where ranges of frames of about equal work begin and the last one ends (n_shares + 1,)."""
    ends = np.cumsum(work)
    goals = np.arange(1, n_shares) * (ends[-1] / n_shares if len(ends) else 0.0)
    return np.array([0, *np.searchsorted(ends - 0.5 * work, goals), len(work)])
