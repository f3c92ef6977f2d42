"""A run's reports for people: a table, and words beside the bar; and their score."""

from __future__ import annotations

import math

from ..config import Stage
from .outputs import Errors

# Errors of a set that is not there.
UNKNOWN = Errors(None, None, None)
HISTORY = "step,stage,seconds,learning_rate,loss"
ERRORS = ",energy_{0}_eV_per_atom,force_{0}_eV_per_A,virial_{0}_eV_per_atom"
# Rows that a run prints at most, about; loss.out and history.csv have all reports.
ROWS = 25


class ReportTable:
    """Rows under one head, at most 100 columns wide, of one or two data ``sets``."""

    def __init__(self, sets: list[str], total: int, interval: int):
        self.total, self.sets = total, sets
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
            for e in (found[name] for name in self.sets)
        )
        return f"{done:8d}{loss:11.4g}{blocks} |{seconds:8.0f}"


def history_head(sets: list[str]) -> str:
    """The first line of history.csv."""
    return HISTORY + "".join(ERRORS.format(name) for name in sets) + "\n"


def progress(loss: float, name: str, judged: Errors) -> str:
    """What stands beside the bar: the loss, and errors on the data set that the model is judged by."""
    pairs = ((judged.energy, "meV/atom"), (judged.force, "meV/Å"))
    told = [f"{three_digits(1e3 * error)} {unit}" for error, unit in pairs if error is not None]
    return f"loss {loss:.3g}" + (f", {name} {' '.join(told)}" if told else "")


def three_digits(value: float) -> str:
    """Without an exponent as far as it is readable."""
    if 1000 <= abs(value) < 1e6:
        return f"{value:.0f}"
    return f"{value:#.3g}".removesuffix(".")


def milli(value: float | None) -> str:
    """A thousandfold with two digits, at most eight characters; a dash where there is nothing."""
    if value is None:
        return "-"
    text = f"{1e3 * value:.2f}"
    return text if len(text) <= 8 else f"{1e3 * value:.1e}"


def formula(found: Errors, stage: Stage) -> float:
    """The loss without regularisation, of the errors of a whole set."""
    power = 1 if stage.loss_form == "rmse" else 2
    pairs = zip((stage.lambda_e, stage.lambda_f, stage.lambda_v), numbers_of(found))
    return sum(factor * error**power for factor, error in pairs)


def numbers_of(found: Errors) -> tuple[float, float, float]:
    """Energy, force and virial, 0 where there is none."""
    return tuple(value or 0.0 for value in (found.energy, found.force, found.virial))
