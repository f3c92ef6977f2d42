"""Ending a run between two steps when somebody asks for it."""

from __future__ import annotations

import signal
import threading


class Interrupted(Exception):
    """The run was asked to end; its checkpoint is written and the same command goes on."""


class StopRequest:
    """While active, SIGINT and SIGTERM set ``asked``; a second one acts as usual.

    Only the main thread can take signals: elsewhere this does nothing.
    """

    def __init__(self):
        self.asked = False
        self._before = {}

    def __enter__(self) -> StopRequest:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._before[number] = signal.signal(number, self._take)
        return self

    def __exit__(self, *_):
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _take(self, number, _frame):
        self.asked = True
        signal.signal(number, self._before[number])
