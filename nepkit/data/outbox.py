"""Numbers on their way to a tensor on a device, at little cost to the host."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor
from torch.types import Number

# Copies that may be on their way from each half of the memory.
HALF = 16


class Outbox:
    """Fills ``target`` again and again, from host memory that the device reads by itself.

    The memory has places for some copies, used in turn. While those of one half are filled, the
    others are on their way, and are waited for before they are filled again.
    """

    def __init__(self, target: Tensor):
        self.target, on_gpu = target, target.is_cuda
        memory = torch.empty(2 * HALF, *target.shape, dtype=target.dtype, pin_memory=on_gpu)
        self.places = [(place.numpy(), place) for place in memory]
        self.next = 0
        self.sent = [torch.cuda.Event() for _ in range(2)] if on_gpu else []

    def send(self, values: np.ndarray | tuple[Number, ...]):
        """Copy ``values`` to the target, after what the device was told to do before."""
        half, first = divmod(self.next, HALF)
        if first == 0 and self.sent:
            self.sent[half].synchronize()
        array, place = self.places[self.next]
        array[...] = values
        self.target.copy_(place, non_blocking=True)
        if first == HALF - 1 and self.sent:
            self.sent[half].record()
        self.next = (self.next + 1) % len(self.places)
