"""Predictions and labels in GPUMD's output files, and errors against labels."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ..data.batch import VIRIAL_COLUMNS, VIRIAL_ROWS
from ..data.frame import Frame
from ..files import write_atomically
from ..model.evaluate import Prediction
from ..units import GPA_PER_EV_PER_CUBIC_ANGSTROM

# What GPUMD writes where a label is missing.
MISSING = -1e6


@dataclass(frozen=True, slots=True)
class Errors:
    """Root mean square errors over the labels there are; None without any."""

    energy: float | None  # eV/atom
    force: float | None  # eV/Å, over components
    virial: float | None  # eV/atom, over components


@dataclass(frozen=True, eq=False)
class Targets:
    """Labels of frames in the layout of a Prediction, NaN where missing."""

    energy: np.ndarray  # (F,) eV
    forces: np.ndarray  # (A, 3) eV/Å
    virial: np.ndarray  # (F, 6) eV
    n_atoms: np.ndarray  # (F,)
    volume: np.ndarray  # (F,) Å^3

    @classmethod
    def of(cls, frames: list[Frame]) -> Targets:
        """The labels of ``frames``. An energy with energy_weight 0 counts as missing."""
        forces = [
            np.full((len(f), 3), np.nan) if f.forces is None else f.forces for f in frames
        ]
        return cls(
            energy=np.array(
                [np.nan if f.energy is None or f.energy_weight == 0 else f.energy for f in frames]
            ),
            forces=np.concatenate(forces),
            virial=np.array(
                [
                    np.full(6, np.nan) if f.virial is None else f.virial[VIRIAL_ROWS, VIRIAL_COLUMNS]
                    for f in frames
                ]
            ),
            n_atoms=np.array([len(f) for f in frames]),
            volume=np.array([f.volume for f in frames]),
        )


def errors(prediction: Prediction, targets: Targets) -> Errors:
    """Errors of ``prediction``; energies and virials per atom."""
    n_atoms = targets.n_atoms
    return Errors(
        _rms((prediction.energy - targets.energy) / n_atoms),
        _rms(prediction.forces - targets.forces),
        _rms((prediction.virial - targets.virial) / n_atoms[:, None]),
    )


def _rms(values: np.ndarray) -> float | None:
    known = values[~np.isnan(values)]
    return float(np.sqrt(np.mean(known**2))) if known.size else None


def write_outputs(folder: Path, stem: str, prediction: Prediction, targets: Targets) -> list[str]:
    """Write energy_STEM.out, force_, virial_, stress_ (and descriptor.out): predicted, then label.

    GPUMD's columns: energy eV/atom; force eV/Å; virial eV/atom and stress GPa (positive when
    compressed), xx yy zz xy yz zx. Ten significant digits. A missing label, or the stress of a
    frame without volume, is -1e6. Returns the names written.
    """
    n_atoms = targets.n_atoms[:, None]
    with np.errstate(divide="ignore"):
        to_stress = GPA_PER_EV_PER_CUBIC_ANGSTROM / targets.volume[:, None]
    to_stress[targets.volume == 0] = np.nan
    columns = {
        "energy": (prediction.energy[:, None] / n_atoms, targets.energy[:, None] / n_atoms),
        "force": (prediction.forces, targets.forces),
        "virial": (prediction.virial / n_atoms, targets.virial / n_atoms),
        "stress": (prediction.virial * to_stress, targets.virial * to_stress),
    }
    files = {f"{name}_{stem}.out": np.hstack(both) for name, both in columns.items()}
    if prediction.descriptors is not None:
        files["descriptor.out"] = prediction.descriptors
    for name, table in files.items():
        write_atomically(folder / name, table_text(table))
    return list(files)


def table_text(table: np.ndarray) -> str:
    """Rows of numbers with ten significant digits; NaN as -1e6."""
    known = np.where(np.isnan(table), MISSING, table)
    line = " ".join(["%.10g"] * known.shape[1]) + "\n"
    return "".join(line % tuple(row) for row in known.tolist())


def error_table(rows: dict[str, Errors]) -> str:
    """Errors by name of data set, in meV, for people."""
    head = f"{'':12s}{'energy':>14s}{'force':>14s}{'virial':>14s}"
    units = f"{'RMSE':12s}{'meV/atom':>14s}{'meV/Å':>14s}{'meV/atom':>14s}"
    lines = [head, units]
    for name, error in rows.items():
        numbers = [
            f"{'-':>14s}" if value is None else f"{1e3 * value:14.2f}"
            for value in (error.energy, error.force, error.virial)
        ]
        lines.append(f"{name:12s}" + "".join(numbers))
    return "\n".join(lines)
