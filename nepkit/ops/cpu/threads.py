"""Running the CPU kernels in threads."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import contextmanager
from contextvars import ContextVar
from queue import SimpleQueue
from threading import Lock, Thread

import numpy as np
import torch
from torch import Tensor

_threads: ContextVar[int | None] = ContextVar("nepkit_cpu_threads", default=None)


@contextmanager
def kernel_threads():
    """Give torch's threads to the kernels for a while: torch itself works on one.

    After a parallel region torch's other threads wait for the next one by turning in circles, on
    the very cores that the kernels would run on.
    """
    count = torch.get_num_threads()
    if _threads.get() is not None or count == 1:
        yield
        return
    token = _threads.set(count)
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(count)
        _threads.reset(token)


def thread_count() -> int:
    """Threads that the kernels run on."""
    return _threads.get() or torch.get_num_threads()


class _Worker:
    """A thread that runs one kernel after the other.

    What a ThreadPoolExecutor keeps of its tasks takes it as long as a small kernel.
    """

    def __init__(self):
        self.tasks = SimpleQueue()
        Thread(target=self._work, name="nepkit", daemon=True).start()

    def _work(self):
        while True:
            kernel, arguments, crowd, ended = self.tasks.get()
            error = None
            try:
                kernel(*arguments)
            except BaseException as raised:  # the caller's to deal with
                error = raised
                _dismiss(crowd)
            del kernel, arguments, crowd  # not kept until the next task
            ended.put(error)


def _dismiss(crowd: np.ndarray | None):
    """Nobody waits any longer for a thread that does not come."""
    if crowd is not None:
        crowd[:] = DISMISSED


# Of one thread, with more arrivals than anybody waits for.
DISMISSED = np.array([1, 2**40])
_workers: list[_Worker] = []
_starting = Lock()


def _after_fork():
    """Threads stay behind, and who holds the lock may too."""
    global _starting
    _workers.clear()
    _starting = Lock()


os.register_at_fork(after_in_child=_after_fork)


def even_ranges(count: int) -> list[tuple[int, int]]:
    """Ranges of ``count`` things, one a thread."""
    n_threads = thread_count()
    ends = [count * k // n_threads for k in range(n_threads + 1)]
    return list(zip(ends[:-1], ends[1:]))


def arrays(tensors: Iterable[Tensor]) -> tuple[np.ndarray, ...]:
    """The tensors as arrays that share their memory."""
    return tuple(tensor.numpy() for tensor in tensors)


def run(kernel, parts: list[tuple[int, int]], *arguments):
    """Run ``kernel(first, last, *arguments)`` on all ranges; torch tensors go in as arrays."""
    _run(kernel, parts, [a.numpy() if isinstance(a, Tensor) else a for a in arguments])


def run_together(kernel, count: int, *arguments):
    """Run ``kernel(part, count, crowd, *arguments)`` on all parts at once: threads that may meet.

    See crowd.py.
    """
    crowd = np.array([count, 0])
    values = [crowd, *(a.numpy() if isinstance(a, Tensor) else a for a in arguments)]
    _run(kernel, [(part, count) for part in range(count)], values, crowd)


def _run(kernel, parts: list[tuple[int, int]], values: list, crowd: np.ndarray | None = None):
    ended, started = SimpleQueue(), 0
    try:
        with _starting:  # one call after the other: all threads of a crowd have to come
            while len(_workers) < len(parts) - 1:
                _workers.append(_Worker())
            for worker, part in zip(_workers, parts[1:]):
                worker.tasks.put((kernel, (*part, *values), crowd, ended))
                started += 1
        kernel(*parts[0], *values)
    finally:
        _dismiss(crowd)  # should this thread be interrupted
        errors = [ended.get() for _ in range(started)]
    for error in errors:
        if error is not None:
            raise error
