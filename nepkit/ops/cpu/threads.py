"""Running the CPU kernels in threads."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from threading import Lock

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


_starting = Lock()


@cache
def _pool(n_threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(n_threads - 1, thread_name_prefix="nepkit")


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
    values = [a.numpy() if isinstance(a, Tensor) else a for a in arguments]
    others = _start(kernel, parts[1:], values)
    kernel(*parts[0], *values)
    for other in others:
        other.result()


def run_together(kernel, count: int, *arguments):
    """Run ``kernel(part, count, crowd, *arguments)`` on all parts at once: threads that may meet.

    See crowd.py.
    """
    crowd, others = np.array([count, 0]), []
    values = [crowd, *(a.numpy() if isinstance(a, Tensor) else a for a in arguments)]
    try:
        others = _start(kernel, [(part, count) for part in range(1, count)], values)
        kernel(0, count, *values)
    finally:
        # Should this thread be interrupted, nobody waits for it.
        crowd[0] = 1
        crowd[1] += 2**40
        for other in others:
            other.result()


def _start(kernel, parts: list[tuple[int, int]], values: list) -> list[Future]:
    """Start all ranges before those of anybody else: who waits to be met must find a thread."""
    if not parts:
        return []
    with _starting:
        return [_pool(len(parts) + 1).submit(kernel, *part, *values) for part in parts]
