"""Worker processes that prepare pieces of a file, and hand them back in order.

A worker is a fresh interpreter on two pipes. Nothing of the caller's script runs in it, so that
scripts need no ``if __name__ == "__main__"``.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue
from typing import IO

from ..errors import UserError

_COMMAND = "import sys; sys.path[:] = {!r}; from nepkit.data.workers import serve; serve()"
# More than one process can write the results of.
MOST_WORKERS = 16


def processors() -> int:
    """Processors that this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # macOS, Windows
        return os.cpu_count() or 1


def mapped(function: Callable, tasks: Iterable, number: int) -> Iterator:
    """``function`` (of a module) of all ``tasks``, in their order, by ``number`` processes.

    Two tasks a worker are under way, no more. What a task raises is raised here, in its turn.
    """
    with ThreadPoolExecutor(number, thread_name_prefix="nepkit-worker") as threads:
        team = [_Worker(function) for _ in range(number)]
        free: SimpleQueue[_Worker] = SimpleQueue()
        for worker in team:
            free.put(worker)

        def work(task):
            worker = free.get()
            try:
                return worker(task)
            finally:
                free.put(worker)

        waiting: deque = deque()
        try:
            for task in tasks:
                waiting.append(threads.submit(work, task))
                if len(waiting) >= 2 * number:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            # Threads that wait for a worker meet its end.
            for future in waiting:
                future.cancel()
            for worker in team:
                worker.end()


class _Worker:
    """A process that calls one function."""

    def __init__(self, function: Callable):
        # One thread each: there are as many workers as processors.
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
        self.process = subprocess.Popen(
            [sys.executable, "-c", _COMMAND.format(sys.path)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment,
            start_new_session=True,  # Ctrl-C is for the parent alone
        )  # fmt: skip
        self._send(function)

    def __call__(self, task):
        """What the function gives for ``task``."""
        try:
            self._send(task)
            done, result = pickle.load(self.process.stdout)
        except (EOFError, OSError, pickle.UnpicklingError) as error:
            code = self.process.wait()
            raise RuntimeError(
                f"a process that prepares data ended with code {code}; was its memory used up?"
            ) from error
        if not done:
            raise result
        return result

    def _send(self, what):
        pickle.dump(what, self.process.stdin, protocol=pickle.HIGHEST_PROTOCOL)
        self.process.stdin.flush()

    def end(self):
        """Stop the process, whatever it is doing."""
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            try:
                pipe.close()
            except OSError:  # what was not sent yet
                pass


def serve():
    """Do what comes in by the standard input until it ends; called in the worker."""
    results = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a library prints is no result
    tasks: IO[bytes] = sys.stdin.buffer
    function = pickle.load(tasks)
    while True:
        try:
            task = pickle.load(tasks)
        except EOFError:
            return
        try:
            answer = True, function(task)
        except UserError as error:
            answer = False, error
        try:
            pickle.dump(answer, results, protocol=pickle.HIGHEST_PROTOCOL)
            results.flush()
        except BrokenPipeError:  # the parent was killed
            os._exit(1)
