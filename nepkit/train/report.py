"""The table of a run's reports, for people."""

from __future__ import annotations

import math

from .outputs import Errors

# Rows that a run prints at most, about; loss.out and history.csv have all reports.
ROWS = 25


class ReportTable:
    """Rows under one head, at most 100 columns wide; ``sets`` are train and perhaps test."""

    def __init__(self, sets: list[str], total: int, interval: int):
        self.total = total
        self.every = interval * max(1, math.ceil(total / interval / ROWS))
        blocks = "".join(
            f" |{name + ':':>7}{'energy':>8}{'force':>9}{'virial':>9}" for name in sets
        )
        units = " |" + f"{'meV/atom':>15}{'meV/Å':>9}{'meV/atom':>9}"
        self.head = (
            f"{'step':>8}{'loss':>11}{blocks} |{'time':>8}\n{'':19}{units * len(sets)} |{'s':>8}"
        )

    def shown(self, done: int) -> bool:
        """Whether the report of step ``done`` is printed."""
        return done % self.every == 0 or done == self.total

    def row(self, done: int, loss: float, found: dict[str, Errors], seconds: float) -> str:
        """One report."""
        blocks = "".join(
            f" |{milli(e.energy):>15}{milli(e.force):>9}{milli(e.virial):>9}"
            for e in found.values()
        )
        return f"{done:8d}{loss:11.4g}{blocks} |{seconds:8.0f}"


def milli(value: float | None) -> str:
    """A thousandfold with two digits; a dash where there is nothing."""
    return "-" if value is None else f"{1e3 * value:.2f}"
