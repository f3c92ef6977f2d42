"""When a run ends before its last step: a signal, the time that it has, and that all agree."""

from __future__ import annotations

import re
import time
from contextlib import contextmanager

import torch
from torch import Tensor

from ..errors import UserError
from .signals import StopRequest
from .world import World

# Steps between looks at what a GPU has added up: reading it at once would wait for the step.
LOOK_EVERY = 16
# Part of the time that is left for the end, and seconds of it at most, besides what writing takes.
MARGIN, MOST_MARGIN = 0.1, 30.0


def check_max_time(text: str | float | None) -> float | None:
    """When time is over, by time.monotonic(), if a run has ``text`` from now on.

    Seconds, or ``23:50:00``, or with days ``1-12:00:00``.
    """
    if text is None:
        return None
    match = re.fullmatch(r"(?:(\d+)-)?(\d+):([0-5]?\d):([0-5]?\d)", str(text))
    if match:
        days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
        found = ((days * 24 + hours) * 60 + minutes) * 60.0 + seconds
    else:
        try:
            found = float(text)
        except ValueError:
            found = 0.0
    if not 0 < found < float("inf"):
        raise UserError(f"max_time {text}: give seconds, or hours as in 23:50:00 or 1-12:00:00")
    return time.monotonic() + found


class Stopping(StopRequest):
    """While active, tells whether the run should end, to all its processes after the same step.

    ``wish`` (1,): what the processes have added up, above 0 if one wants to stop. ``end``: of the time
    that the run has, by time.monotonic().
    """

    def __init__(self, world: World, wish: Tensor, end: float | None):
        # Launchers and batch systems send a signal several times.
        super().__init__(patient=world.size > 1)
        self.world, self.wish = world, wish
        self.end = None
        if end is not None:
            self.end = end - min(MARGIN * (end - time.monotonic()), MOST_MARGIN)
        self.longest = 0.0  # seconds that a report and its checkpoint took
        self._seen: tuple[Tensor, torch.cuda.Event] | None = None

    @contextmanager
    def timed(self, counts: bool):
        """Remember how long the block takes, if it ``counts``."""
        start = time.monotonic()
        yield
        if counts:
            self.longest = max(self.longest, time.monotonic() - start)

    def wanted(self) -> bool:
        """Whether this process wants to stop."""
        return self.asked or (self.end is not None and time.monotonic() > self.end - self.longest)

    def agreed(self, done: int) -> bool:
        """Whether to stop after step ``done``."""
        if self.world.size == 1:
            return self.wanted()
        if not self.wish.is_cuda:
            return bool(self.wish > 0)
        if done % LOOK_EVERY:
            return False
        before, seen = False, self._seen
        if seen is not None:
            seen[1].synchronize()
            before = bool(seen[0] > 0)
        copy = torch.empty(1, dtype=self.wish.dtype, pin_memory=True)
        copy.copy_(self.wish, non_blocking=True)
        event = torch.cuda.Event()
        event.record()
        self._seen = copy, event
        return before
