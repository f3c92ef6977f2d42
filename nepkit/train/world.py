"""The processes that train together: how many there are, and what they tell each other."""

from __future__ import annotations

import atexit
import gc
import hashlib
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from datetime import timedelta
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

from ..errors import UserError
from .place import RESTARTS, Place, place

Result = TypeVar("Result")
# How long processes wait for each other: the slowest to import torch, to read or to write.
PATIENCE = timedelta(minutes=30)
# Seconds between looks whether the first process has done something that takes its time.
LOOK = 0.05
# Seconds that the first process stays where it has had a last word, so that no other has the same.
LINGER = 1.0


class LostContact(Exception):
    """Another process of the run has ended, or has not come."""


@dataclass(frozen=True)
class World:
    """The processes of a run, and the place of this one. One process alone is the plain case."""

    rank: int = 0
    size: int = 1

    @property
    def first(self) -> bool:
        """Whether this process writes, logs and shows."""
        return self.rank == 0

    def sum(self, tensor: Tensor):
        """Add up ``tensor`` over the processes, in place; the same bits for all."""
        if self.size > 1:
            self._do(torch.distributed.all_reduce, tensor)

    def total(self, values: np.ndarray) -> np.ndarray:
        """Sum of ``values``, float64, over the processes."""
        if self.size == 1:
            return values
        tensor = torch.from_numpy(np.array(values, dtype=np.float64))
        self.sum(tensor)
        return tensor.numpy()

    def take_from_first(self, *tensors: Tensor):
        """Fill ``tensors`` with what those of the first process hold."""
        for tensor in tensors if self.size > 1 else ():
            self._do(torch.distributed.broadcast, tensor, src=0)

    def gather(self, value: Result) -> list[Result]:
        """What each process gives, by rank."""
        found = [value]
        if self.size > 1:
            found = [None] * self.size
            self._do(torch.distributed.all_gather_object, found, value)
        return found

    def to_first(self, value: Result) -> list[Result]:
        """What each process gives, by rank, on the first; nothing on the others."""
        found = [value]
        if self.size > 1:
            found = [None] * self.size if self.first else None
            self._do(torch.distributed.gather_object, value, found, dst=0)
        return found or []

    def from_first(self, function: Callable[[], Result]) -> Result:
        """What ``function`` returns, or the mistake that it raises, where the first process calls it.

        The others wait as long as it takes.
        """
        if self.size == 1:
            return function()
        outcome = [None, None]
        if self.first:
            try:
                outcome[0] = function()
            except UserError as error:
                outcome[1] = str(error)
        self._wait_for_first()
        self._do(torch.distributed.broadcast_object_list, outcome, src=0)
        if outcome[1] is not None:
            error = UserError(outcome[1])
            error.told = not self.first
            raise error
        return outcome[0]

    @contextmanager
    def held(self, resource: AbstractContextManager) -> Iterator[None]:
        """Enter ``resource`` on the first process, for all of them."""
        with ExitStack() as stack:
            self.from_first(lambda: bool(stack.enter_context(resource)))
            yield

    def _wait_for_first(self):
        """No collective operation waits for hours."""
        store = _store()
        number = self._do(store.add, f"nepkit/turns/{self.rank}", 1)
        key = f"nepkit/first/{number}"
        if self.first:
            self._do(store.set, key, "done")
        while not self._do(store.check, [key]):
            time.sleep(LOOK)

    def _do(self, act: Callable, *arguments, **options):
        try:
            return act(*arguments, **options)
        except RuntimeError as error:  # what torch.distributed raises, of whatever backend
            raise LostContact(str(error)) from error


ALONE = World()


@contextmanager
def joined(device: torch.device) -> Iterator[World]:
    """The world of this process, which computes on ``device``, for the time of the block.

    NCCL (RCCL on ROCm) connects GPUs, gloo CPUs, and the hosts of GPUs.
    """
    found = place()
    if found is None or found.size == 1:
        yield ALONE
        return
    distributed, on_gpu = torch.distributed, device.type == "cuda"
    if not distributed.is_initialized():
        try:
            _start(found, device if on_gpu else None)
        except RuntimeError as error:  # of whatever kind, where others do not come
            raise LostContact(str(error)) from error
    with torch.cuda.device(device) if on_gpu else nullcontext():
        world = World(found.rank, found.size)
        # Connections are made before a graph is captured or a clock starts.
        world.sum(torch.zeros(1, device=device))
        yield world
    # A second group could mistake what the first one left for its own: there is one a process.
    atexit.register(_leave)


def _start(found: Place, device: torch.device | None):
    distributed = torch.distributed
    address = {"MASTER_ADDR": found.master, "MASTER_PORT": str(found.port)}
    if address.items() <= os.environ.items():
        places = distributed.rendezvous("env://", found.rank, found.size, timeout=PATIENCE)
        store = next(places)[0]
    else:
        store = distributed.TCPStore(
            found.master, found.port, found.size, found.rank == 0, timeout=PATIENCE
        )
    # torchrun's store outlives its processes: those that it starts again must not find what the
    # earlier ones wrote.
    attempt = f"{os.environ.get(RESTARTS, 0)} {found.size}"
    distributed.init_process_group(
        "gloo" if device is None else "cpu:gloo,cuda:nccl",
        store=distributed.PrefixStore(f"nepkit {attempt}", store), rank=found.rank,
        world_size=found.size, timeout=PATIENCE, device_id=device,
    )  # fmt: skip


def _leave():
    """End the process group, where nothing has gone wrong."""
    if torch.distributed.is_initialized():
        gc.collect()  # NCCL does not let go of a group that captured graphs belong to
        torch.distributed.destroy_process_group()


def says(text: str) -> bool:
    """Whether this process is the first of its run to come with ``text``: then it prints it.

    Before they have met, all come upon the same, and rank 0 says it.
    """
    store, found = _store(), place()
    rank = 0 if found is None else found.rank
    if store is None:
        return rank == 0
    key = f"nepkit/said/{hashlib.sha256(text.encode()).hexdigest()}"
    try:
        first = store.add(key, 1) == 1
    except RuntimeError:  # the first process kept the store and has ended
        return rank == 1
    if first and rank == 0:
        atexit.register(time.sleep, LINGER)
    return first


def _store():
    """What all processes of a run can write into; None where there is one alone."""
    distributed = sys.modules.get("torch.distributed")
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return None
    return distributed.distributed_c10d._get_default_store()
