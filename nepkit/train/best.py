"""The best model of a run so far, and whether there is still hope for a better one."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass

import numpy as np
from torch import Tensor

from ..config import NepConfig, Stage
from ..data.known import Labels
from .judging import DataSet
from .outputs import Errors
from .report import formula


def judged(names: list[str]) -> str:
    """The data set that the best model is chosen by: valid before test before train.

    With a validation set the test set has no say in the training and measures what it says.
    """
    return next(name for name in ("valid", "test", "train") if name in names)


def judging_set(sets: list[DataSet], stage: Stage) -> str:
    """``judged`` of the sets whose labels the loss of ``stage`` counts."""
    return judged([*(data.name for data in sets if _tells(data.prepared.labels, stage)), "train"])


def _tells(labels: Labels, stage: Stage) -> bool:
    energies = ~np.isnan(labels.energy) & (labels.energy_weight > 0)
    return bool(
        (stage.lambda_e > 0 and energies.any())
        or (stage.lambda_f > 0 and not np.isnan(labels.forces).all())
        or (stage.lambda_v > 0 and not np.isnan(labels.virial).all())
    )


@dataclass
class Best:
    """The model with the lowest loss on the judged set, of all that were reported."""

    step: int = 0
    errors: Errors | None = None  # on the judged set
    average: Tensor | None = None  # (n_parameters,)

    def offer(self, step: int, errors: Errors, average: Tensor, stage: Stage) -> bool:
        """Take this model if it is better by the loss of ``stage``; whether it was taken.

        The best one so far is judged by the same loss, whatever it was taken for.
        """
        before = math.inf if self.errors is None else formula(self.errors, stage)
        if not formula(errors, stage) < before:
            return False
        self.step, self.errors, self.average = step, errors, average.clone()
        return True

    def state(self) -> dict:
        """What a checkpoint keeps."""
        errors = None if self.errors is None else asdict(self.errors)
        return {"step": self.step, "errors": errors, "average": self.average}

    @classmethod
    def of(cls, state: dict) -> Best:
        """The inverse of ``state``."""
        errors = None if state["errors"] is None else Errors(**state["errors"])
        return cls(state["step"], errors, state["average"])


def over(config: NepConfig, done: int, best_step: int) -> bool:
    """Whether a run has no step left to take."""
    total = sum(stage.generation for stage in config.stages)
    return done == total or stalled(config, done, best_step)


def stalled(config: NepConfig, done: int, best_step: int) -> bool:
    """Whether ``early_stop`` ends a run: so many steps of the last stage brought no better model.

    Off by default: the learning rate has yet to fall then. On Si-Ge (three seeds) the best models,
    of step 5,000 or so, have lower errors of the forces than the last, 101 and 111 meV/Å, but
    larger ones of the energy, 29 and 22 meV/atom, and of the virial, 137 and 119.
    """
    if done == 0 or done % config.output_interval:  # only reports look for a better model
        return False
    last_stage = sum(stage.generation for stage in config.stages[:-1])
    return 0 < config.early_stop <= done - max(best_step, last_stage)
