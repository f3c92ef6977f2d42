"""Batches of a data set for a GPU: cut out there, or out of host memory and sent ahead of time."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import fields
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from .batch import Batch, Sizes
from .buckets import Ladder
from .structures import Structures

_NAMES = tuple(field.name for field in fields(Batch) if field.name != "tables")


class Part(NamedTuple):
    """Frames (B,) of a batch that are worked on at once, and the room that they get."""

    frames: np.ndarray
    sizes: Sizes


class Resident:
    """The whole set lies on the device: a batch is named by its frames and cut out there.

    A feed turns frames into the tensors that a step starts from, ``inputs``, and those into the
    batch, ``batch``, without work on the host, so that a captured graph may hold it.

    ``cut``: what cuts a batch out of the structures, as ``Structures.batch`` does.
    """

    ahead = False  # nothing has to be sent ahead of time

    def __init__(self, structures: Structures, cut: Callable[[Tensor, Sizes], Batch]):
        self.cut, self.ladder = cut, Ladder(structures)

    def inputs(self, parts: list[Part]) -> list[list[np.ndarray]]:
        """What ``batch`` needs of each part of a batch, on the host."""
        return [[self.ladder.frames(*part)] for part in parts]

    def batch(self, inputs: list[Tensor], sizes: Sizes) -> Batch:
        """The batch, filled up to ``sizes``."""
        return self.cut(inputs[0], sizes)


class Streamed:
    """The set lies in host memory: a thread cuts out the next batch and copies it to ``device``."""

    ahead = True

    def __init__(self, structures: Structures, device: torch.device):
        self.structures, self.ladder, self.device = structures, Ladder(structures), device
        self._ahead: tuple[list[Part], Future] | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="nepkit-feed")
        self._stream = torch.cuda.Stream(device)
        everything = structures.batch(torch.arange(0))
        self._tables = list(everything.tables)

    def prepare(self, parts: list[Part]):
        """Begin to send what the next call of ``inputs`` will ask for."""
        self._ahead = parts, self._thread.submit(self._sent, parts)

    def inputs(self, parts: list[Part]) -> list[list[Tensor]]:
        """The tensors of the batch of each part, on the device."""
        ahead, self._ahead = self._ahead, None
        if ahead is not None and _same(ahead[0], parts):
            sent, ready = ahead[1].result()
        else:
            sent, ready = self._sent(parts)
        now = torch.cuda.current_stream(self.device)
        now.wait_event(ready)
        for tensor in (t for tensors in sent for t in tensors):
            tensor.record_stream(now)
        return sent

    def _sent(self, parts: list[Part]) -> tuple[list[list[Tensor]], torch.cuda.Event]:
        with torch.cuda.stream(self._stream):
            sent = [
                [t.pin_memory().to(self.device, non_blocking=True) for t in tensors(batch)]
                for batch in (self.ladder.batch(*part) for part in parts)
            ]
            return sent, self._stream.record_event()

    def batch(self, inputs: list[Tensor], sizes: Sizes) -> Batch:
        """The batch that ``inputs`` are the tensors of."""
        return of_tensors(inputs, self._tables)


def moved(batch: Batch, device: torch.device) -> Batch:
    """The batch on ``device``."""
    if batch.types.device == device:
        return batch
    return of_tensors([t.to(device) for t in tensors(batch)], list(batch.tables))


def tensors(batch: Batch) -> list[Tensor]:
    """All tensors of a batch, in a fixed order."""
    return [*(getattr(batch, name) for name in _NAMES), *batch.tables.values()]


def of_tensors(values: list[Tensor], tables: list[str]) -> Batch:
    """The batch of what ``tensors`` gave."""
    named = dict(zip(_NAMES, values))
    return Batch(**named, tables=dict(zip(tables, values[len(_NAMES) :], strict=True)))


def _same(one: list[Part], other: list[Part]) -> bool:
    pairs = zip(one, other)
    return len(one) == len(other) and all(
        a.sizes == b.sizes and np.array_equal(a.frames, b.frames) for a, b in pairs
    )
