"""Ending a run between two steps when somebody asks for it."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable

# Ctrl-C, the end of a job, and a batch system's word that the end is near; Windows has no third.
SIGNALS = [
    getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGUSR1") if hasattr(signal, name)
]


class Interrupted(Exception):
    """The run was asked to end; its checkpoint is written and the same command goes on.

    ``release`` has signals handled as before the run, where that is still to be done.
    """

    release: Callable[[], None] = staticmethod(lambda: None)


class _Handlers:
    """While active, ``_take`` handles SIGNALS; afterwards who did before does.

    Only the main thread can take signals: elsewhere this does nothing.
    """

    def __init__(self):
        self._before = {}

    def __enter__(self):
        if threading.current_thread() is threading.main_thread():
            for number in SIGNALS:
                self._before[number] = signal.signal(number, self._take)
        return self

    def __exit__(self, *_):
        for number, handler in self._before.items():
            # None: a handler that was not set from Python, which cannot be put back.
            signal.signal(number, signal.SIG_DFL if handler is None else handler)

    def _take(self, number, _frame):
        raise NotImplementedError


class StopRequest(_Handlers):
    """While active, SIGNALS set ``asked``; a second one acts as usual, unless ``patient``."""

    def __init__(self, patient: bool = False):
        super().__init__()
        self.asked, self.patient = False, patient

    def __exit__(self, kind, error, traceback):
        if self.patient and isinstance(error, Interrupted):
            # The signal may come again while other processes end.
            error.release = super().__exit__
        else:
            super().__exit__(kind, error, traceback)

    def _take(self, number, _frame):
        self.asked = True
        if not self.patient:
            signal.signal(number, self._before[number])


class RaiseKeyboardInterrupt(_Handlers):
    """While active, all SIGNALS raise KeyboardInterrupt.

    Where that is swallowed, as in a callback of the compiler, the error that follows from it leaves
    as a KeyboardInterrupt too.
    """

    def __init__(self):
        super().__init__()
        self.asked = False

    def ignore(self):
        """Ignore SIGNALS from now on, to the end of the process."""
        for number in self._before:
            self._before[number] = signal.SIG_IGN
        super().__exit__()

    def __exit__(self, kind, error, traceback):
        super().__exit__(kind, error, traceback)
        if self.asked and kind is not None and issubclass(kind, Exception):
            raise KeyboardInterrupt from error

    def _take(self, number, _frame):
        self.asked = True
        raise KeyboardInterrupt
