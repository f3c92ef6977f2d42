"""Data larger than the memory: structures of which a part is held at a time."""

from __future__ import annotations

import math
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from .batch import Batch, Sizes
from .prepared import Prepared
from .sampler import Sampler
from .store import Store
from .structures import AngularPairs, Structures


class Window(NamedTuple):
    """Some frames of a store in memory."""

    steps: range  # that they are held for
    structures: Structures
    place: np.ndarray  # (F + 1,) of each frame in ``structures``, -1 where it is not there

    def holds(self, frames: np.ndarray) -> bool:
        """Whether all ``frames`` (B,) are there."""
        return bool((self.place[frames] >= 0).all())


class Windows:
    """The frames of a store, numbered as there, as a source of batches like Structures.

    Training goes through an epoch in windows of steps (see Sampler): the frames of one are in
    memory, and a thread reads those of the next. All other frames are read when a batch asks for
    them, which is fast for frames side by side.

    ``size``: bytes of a window. ``finish(prepared)`` gives what was read its targets.
    ``share(frames)``: those of the frames of a step that this process works on.
    """

    def __init__(
        self,
        store: Store,
        dtype: torch.dtype,
        size: float,
        share: Callable[[np.ndarray], np.ndarray] = lambda frames: frames,
    ):
        self.store, self.dtype, self.share = store, dtype, share
        self.number = math.ceil(store.bytes() / size)  # of windows in an epoch
        self.counts, self.n_types = store.counts, store.n_types
        self.device = torch.device("cpu")
        self.finish: Callable[[Prepared], None] = lambda prepared: None
        self.kept = None
        self._sampler: Sampler | None = None
        self._window: Window | None = None
        self._next: tuple[range, Future[Window]] | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="nepkit-window")

    def __len__(self) -> int:
        return len(self.counts)

    def bytes(self) -> int:
        """Memory that all frames would take, without targets."""
        return self.store.bytes()

    def pair_types(self) -> Tensor:
        """The pair types that occur, ascending."""
        return torch.from_numpy(self.store.pair_types)

    def angular_pairs(self, start: int, stop: int) -> AngularPairs:
        """See Structures."""
        some = self.store.structures(np.arange(start, stop), dtype=self.dtype)
        return some.angular_pairs(0, stop - start)

    def sizes(self, frames: np.ndarray) -> Sizes:
        """What ``frames`` (B,) need."""
        return Sizes(len(frames), *self.counts[frames].sum(0).tolist())

    def follow(self, sampler: Sampler, step: int):
        """Have the frames of ``step`` and of the steps that share its window in memory.

        Those of the next window are read meanwhile.
        """
        if sampler is not self._sampler:
            self._sampler, self._window, self._next = sampler, None, None
        if self._window is not None and step in self._window.steps:
            return
        steps = sampler.window(step)
        self._window = None  # before the next one but one is read
        if self._next is not None and self._next[0] == steps:
            self._window = self._next[1].result()
        else:
            self._window = self._read(steps, self._frames(sampler, steps))
        steps = sampler.window(steps.stop)
        self._next = steps, self._thread.submit(self._read, steps, self._frames(sampler, steps))

    def _frames(self, sampler: Sampler, steps: range) -> np.ndarray:
        """Frames that this process needs for ``steps``, ascending."""
        return np.unique(np.concatenate([self.share(sampler.frames(step)) for step in steps]))

    def _read(self, steps: range, frames: np.ndarray) -> Window:
        place = np.full(len(self) + 1, -1, np.int32)
        place[frames] = np.arange(len(frames))
        place[-1] = len(frames)  # the empty frame
        prepared = self.store.prepared(frames, dtype=self.dtype)
        self.finish(prepared)
        return Window(steps, prepared.structures, place)

    def batch(self, frames: Tensor, sizes: Sizes | None = None) -> Batch:
        """The batch of ``frames`` (B,), as by Structures.batch."""
        numbers, window = frames.numpy(), self._window
        if window is None or not window.holds(numbers):
            window = self._read(range(0), np.unique(numbers[numbers < len(self)]))
        local = torch.from_numpy(window.place[numbers].astype(np.int64))
        return replace(window.structures.batch(local, sizes), frames=frames)


def sampler_of(structures: Structures | Windows, batch: int, seed: int, stage: int) -> Sampler:
    """The order in which a stage sees the frames of ``structures``, ``batch`` at a time."""
    pairs = structures.counts[:, 2:].sum(1).astype(float)
    windows = structures.number if isinstance(structures, Windows) else 1
    return Sampler(pairs, batch, seed, stage, windows)


def at_hand(structures: Structures | Windows, sampler: Sampler, step: int) -> np.ndarray:
    """The frames (B,) of ``step``, which are in memory afterwards."""
    if isinstance(structures, Windows):
        structures.follow(sampler, step)
    return sampler.frames(step)
