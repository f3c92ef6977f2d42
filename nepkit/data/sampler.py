"""The order in which frames are seen: batches of equal work, drawn anew every epoch."""

from __future__ import annotations

import bisect
import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch

from .ragged import end_to_end

# Batches differ by at most this part of their mean work, where the frames allow it.
TOLERANCE = 0.02
# Blocks of frames that a window is made of.
BLOCKS = 128
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

    ``windows``: of data too large for the memory, parts of an epoch whose batches hold frames from
    a few places of the file alone: blocks of neighbouring frames are drawn at random, those of a
    window are mixed.
    """

    work: np.ndarray
    batch: int
    seed: int
    stage: int
    windows: int = 1

    def __post_init__(self):
        self.n_batches = batches_per_epoch(len(self.work), self.batch)
        self.windows = min(self.windows, self.n_batches)
        # Where the windows of an epoch begin, in batches.
        edges = np.arange(self.windows + 1) * self.n_batches // self.windows
        self._edges = edges.tolist()
        self._dealt: dict[int, list[np.ndarray]] = {}  # the batches of the last two epochs

    def frames(self, step: int) -> np.ndarray:
        """Frames (B,) of ``step`` (from 0) of the stage."""
        epoch, place = divmod(step, self.n_batches)
        if epoch not in self._dealt:
            last = list(self._dealt.items())[-1:]
            self._dealt = {**dict(last), epoch: self._deal(epoch)}
        return self._dealt[epoch][place]

    def window(self, step: int) -> range:
        """The steps that share the window of ``step``."""
        epoch, place = divmod(step, self.n_batches)
        number = bisect.bisect_right(self._edges, place) - 1
        first, end = self._edges[number : number + 2]
        return range(epoch * self.n_batches + first, epoch * self.n_batches + end)

    def _deal(self, epoch: int) -> list[np.ndarray]:
        """The batches of an epoch."""
        generator = torch.Generator()
        mixed = (self.seed * 1_000_003 + self.stage) * 1_000_003 + epoch
        generator.manual_seed(mixed % 2**63)
        batches = []
        for frames, n_batches in self._parts(generator):
            members = np.full((math.ceil(len(frames) / n_batches), n_batches), -1)
            members.reshape(-1)[: len(frames)] = frames
            self._level(members)
            batches += [column[column >= 0] for column in members.T]
        return batches

    def _parts(self, generator: torch.Generator) -> Iterator[tuple[np.ndarray, int]]:
        """The frames of each window in random order, and its number of batches."""
        n_frames = len(self.work)
        if self.windows == 1:
            yield torch.randperm(n_frames, generator=generator).numpy(), self.n_batches
            return
        size = max(n_frames // (self.windows * BLOCKS), 1)
        first = size * torch.randperm(math.ceil(n_frames / size), generator=generator).numpy()
        order = end_to_end(first, np.minimum(size, n_frames - first))
        # All batches have as many frames as the last one, or one more.
        least, more = divmod(n_frames, self.n_batches)
        for start, end in zip(self._edges, self._edges[1:]):
            frames = order[start * least + min(start, more) : end * least + min(end, more)]
            mix = torch.randperm(len(frames), generator=generator).numpy()
            yield frames[mix], end - start

    def _level(self, members: np.ndarray):
        """Swap frames between the batch with the most work and the one with the least."""
        work = np.where(members >= 0, self.work[members], 0.0)
        total, mean = work.sum(0), work.sum() / work.shape[1]
        full = min(int((members >= 0).sum()) // work.shape[1], MOST_COMPARED)  # lines without a gap
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
