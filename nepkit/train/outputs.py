"""Predictions and labels in GPUMD's output files, and errors against labels."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import IO

import numpy as np

from ..config import NepConfig
from ..data.known import Labels
from ..files import write_atomically
from ..model.evaluate import Prediction
from ..model.nep_txt import NepFile
from ..model.nep_txt_write import write_nep_restart, write_nep_txt
from ..units import GPA_PER_EV_PER_CUBIC_ANGSTROM
from .compared import Compared
from .folder import OutputFolder
from .world import ALONE, World

# What GPUMD writes where a label is missing.
MISSING = -1e6
# Files of each data set, named after it.
OUTPUTS = ("energy", "force", "virial", "stress")
# Rows of a table made into text at once.
ROWS_AT_ONCE = 10000


@dataclass(frozen=True, slots=True)
class Errors:
    """Root mean square errors over the labels there are; None without any."""

    energy: float | None  # eV/atom
    force: float | None  # eV/Å, over components
    virial: float | None  # eV/atom, over components


@dataclass(frozen=True, eq=False)
class Targets:
    """Labels of F frames with A atoms in the layout of a Prediction, NaN where missing."""

    energy: np.ndarray  # (F,) eV
    forces: np.ndarray  # (A, 3) eV/Å
    virial: np.ndarray  # (F, 6) eV
    # (F,) on the squared error per atom, as in the loss; 0 says to ignore the energy.
    energy_weight: np.ndarray
    n_atoms: np.ndarray  # (F,)
    volume: np.ndarray  # (F,) Å^3

    @classmethod
    def of(cls, labels: Labels) -> Targets:
        """Those of ``labels``."""
        return cls(
            energy=labels.energy, forces=labels.forces, virial=labels.virial,
            energy_weight=labels.weight**2 * labels.energy_weight,
            n_atoms=labels.n_atoms, volume=labels.volume,
        )  # fmt: skip


def compare(prediction: Prediction, targets: Targets) -> dict[str, Compared]:
    """Labels and predictions by name of kind, energies and virials per atom."""
    n_atoms = targets.n_atoms[:, None]
    counted = np.where(targets.energy_weight > 0, targets.energy, np.nan)
    return {
        "energy": Compared(counted[:, None] / n_atoms, prediction.energy[:, None] / n_atoms),
        "force": Compared(targets.forces, prediction.forces),
        "virial": Compared(targets.virial / n_atoms, prediction.virial / n_atoms),
    }


def errors(prediction: Prediction, targets: Targets, world: World = ALONE) -> Errors:
    """Errors of ``prediction``, together with those of other processes; energies and virials per
    atom."""
    found = compare(prediction, targets).values()
    sums = world.total(np.array([compared.squares() for compared in found]))
    return Errors(*(float(np.sqrt(square / n)) if n else None for square, n in sums))


def mean_energy_error(prediction: Prediction, targets: Targets, world: World = ALONE) -> float:
    """Weighted mean of predicted less true energy per atom over frames that have one, eV; else 0."""
    error = (prediction.energy - targets.energy) / targets.n_atoms
    known = (targets.energy_weight > 0) & ~np.isnan(targets.energy)
    weight = targets.energy_weight[known]
    total, of_all = world.total(np.array([(error[known] * weight).sum(), weight.sum()]))
    return float(total / of_all) if of_all > 0 else 0.0


def joined(parts: Sequence):
    """One dataclass of arrays from several, end to end."""
    kind = type(parts[0])
    values = {field.name: [getattr(part, field.name) for part in parts] for field in fields(kind)}
    return kind(**{k: None if v[0] is None else np.concatenate(v) for k, v in values.items()})


def output_names(stem: str) -> list[str]:
    """The files that ``write_outputs`` makes of any data set."""
    return [f"{name}_{stem}.out" for name in OUTPUTS]


def write_outputs(folder: Path, stem: str, prediction: Prediction, targets: Targets):
    """Write energy_STEM.out, force_, virial_, stress_ (and descriptor.out): predicted, then label.

    GPUMD's columns: energy eV/atom; force eV/Å; virial eV/atom and stress GPa (positive when
    compressed), xx yy zz xy yz zx. Ten significant digits. A missing label, or the stress of a
    frame without volume, is -1e6.
    """
    n_atoms = targets.n_atoms[:, None]
    volume = np.where(targets.volume > 0, targets.volume, np.nan)[:, None]
    to_stress = GPA_PER_EV_PER_CUBIC_ANGSTROM / volume
    stress = prediction.virial * to_stress
    tables = (
        (prediction.energy[:, None] / n_atoms, targets.energy[:, None] / n_atoms),
        (prediction.forces, targets.forces),
        (prediction.virial / n_atoms, targets.virial / n_atoms),
        (np.where(np.isnan(volume), MISSING, stress), targets.virial * to_stress),
    )
    for name, (predicted, label) in zip(output_names(stem), tables, strict=True):
        write_table(folder / name, predicted, np.where(np.isnan(label), MISSING, label))
    if prediction.descriptors is not None:
        write_table(folder / "descriptor.out", prediction.descriptors)


def write_table(path: Path, *columns: np.ndarray):
    """Write arrays (rows, n) side by side with ten significant digits."""
    width = sum(array.shape[1] for array in columns)
    line = " ".join(["%.10g"] * width) + "\n"

    def write(file: IO[bytes]):
        for first in range(0, len(columns[0]), ROWS_AT_ONCE):
            block = np.hstack([array[first : first + ROWS_AT_ONCE] for array in columns])
            file.write("".join(line % tuple(row) for row in block.tolist()).encode())

    write_atomically(path, write)


def kept_at(config: NepConfig, done: int) -> bool:
    """Whether ``save_potential`` asks for the model of step ``done``."""
    interval = config.save_potential[0]
    return interval > 0 and done % interval == 0


def save_potential(folder: OutputFolder, config: NepConfig, done: int, file: NepFile):
    """Keep the model of step ``done``, and its nep.restart if ``save_potential`` asks for it.

    Named as by GPUMD: by the step alone (form 0), or also by the time (form 1).
    """
    _, form, with_restart = config.save_potential
    stamp = "nep_y%Y_m%m_d%d_h%H_m%M_s%S_generation" if form else "nep_gen"
    name = f"{time.strftime(stamp)}{done}"
    folder.claim([f"{name}.txt"] + [f"{name}.restart"] * with_restart)
    write_nep_txt(folder.path / f"{name}.txt", file)
    if with_restart:
        write_nep_restart(folder.path / f"{name}.restart", file)


def error_table(rows: dict[str, Errors]) -> str:
    """Errors by name of data set, in meV, for people."""
    first = max(12, *(len(name) + 1 for name in rows))
    lines = [
        f"{'':{first}s}{'energy':>14s}{'force':>14s}{'virial':>14s}",
        f"{'RMSE':{first}s}{'meV/atom':>14s}{'meV/Å':>14s}{'meV/atom':>14s}",
    ]
    for name, error in rows.items():
        numbers = [
            f"{'-':>14s}" if value is None else f"{1e3 * value:14.2f}"
            for value in (error.energy, error.force, error.virial)
        ]
        lines.append(f"{name:{first}s}" + "".join(numbers))
    return "\n".join(lines)
