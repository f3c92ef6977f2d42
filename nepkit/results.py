"""What a run has written, read back: predictions against labels, errors and their history."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import numpy as np

from .config import Stage, read_nep_in
from .data.frame import Frame
from .data.xyz import read_xyz
from .errors import UserError
from .train.folder import read_manifest
from .train.outputs import MISSING, Errors
from .train.report import formula
from .train.start import data_file
from .units import ELEMENTS

SETS = ("train", "test")


class Kind(NamedTuple):
    """A quantity that predictions and labels are compared in."""

    name: str  # of its file
    title: str
    unit: str  # of its file; errors are told in a thousandth of it
    components: tuple[str, ...]


KINDS = (
    Kind("energy", "Energy", "eV/atom", ("",)),
    Kind("force", "Force", "eV/Å", ("x", "y", "z")),
    Kind("virial", "Virial", "eV/atom", ("xx", "yy", "zz", "xy", "yz", "zx")),
)


class Scores(NamedTuple):
    """How far predictions are from n labels, in the unit of the labels."""

    rmse: float
    mae: float
    r2: float  # 1 less the squared errors over the variance; NaN for equal labels
    n: int


class Compared(NamedTuple):
    """Labels and predictions (n, components), NaN where there is none; n frames or atoms."""

    label: np.ndarray
    predicted: np.ndarray

    @property
    def error(self) -> np.ndarray:
        """Predicted less label, (n, components)."""
        return self.predicted - self.label

    def known(self) -> tuple[np.ndarray, np.ndarray]:
        """Labels and predictions (m,), component by component, where there are both."""
        known = ~np.isnan(self.error)
        return self.label[known], self.predicted[known]

    def scores(self, rows: np.ndarray | slice = slice(None)) -> Scores | None:
        """Of some rows; None without a label among them."""
        label, predicted = Compared(self.label[rows], self.predicted[rows]).known()
        if not len(label):
            return None
        square = np.mean((predicted - label) ** 2)
        variance = np.var(label)
        r2 = 1 - square / variance if variance > 0 else np.nan
        mae = np.mean(abs(predicted - label))
        return Scores(float(np.sqrt(square)), float(mae), float(r2), len(label))


@dataclass(frozen=True, eq=False)
class DataSet:
    """The results on one data set; ``frames`` is None where its file is not found."""

    name: str  # train or test
    compared: dict[str, Compared]  # by name of kind; without those that have no label
    frames: list[Frame] | None

    @cached_property
    def atom_frame(self) -> np.ndarray:
        """(atoms,) number of the frame of each atom."""
        return np.repeat(np.arange(len(self.frames)), [len(frame) for frame in self.frames])

    def by_source(self) -> dict[str, dict[str, Scores]]:
        """Errors by source and kind; nothing without frames.

        The source is the config_type, without a number of the frame as in ``liquid/17``.
        """
        sources = np.array([re.sub(r"/\d+$", "", frame.source) for frame in self.frames or ()])
        groups = {}
        for source in sorted(set(sources.tolist())):
            frames = sources == source
            rows = {"energy": frames, "virial": frames, "force": frames[self.atom_frame]}
            found = {kind: c.scores(rows[kind]) for kind, c in self.compared.items()}
            groups[source or "(no config_type)"] = {k: s for k, s in found.items() if s}
        return {source: found for source, found in groups.items() if found}

    def by_element(self) -> dict[str, dict[str, Scores]]:
        """Errors of the forces by element, in the order of atomic numbers."""
        if not self.frames or "force" not in self.compared:
            return {}
        numbers = np.concatenate([frame.numbers for frame in self.frames])
        present = np.unique(numbers).tolist()
        scores = {ELEMENTS[z - 1]: self.compared["force"].scores(numbers == z) for z in present}
        return {element: {"force": found} for element, found in scores.items() if found}


@dataclass(frozen=True, eq=False)
class History:
    """The reports of a run, R of them."""

    step: np.ndarray  # (R,)
    loss: np.ndarray  # (R,) of the whole training set
    learning_rate: np.ndarray | None  # (R,)
    errors: dict[tuple[str, str], np.ndarray]  # (R,) RMSE by set and kind; only what there is
    best: int  # row of the lowest loss on the test set, on the training set without one


@dataclass(frozen=True, eq=False)
class Results:
    """Everything that figures and reports are made of."""

    folder: Path
    sets: list[DataSet]
    history: History | None
    about: dict  # data and versions, as in nepkit_run.json


def read_results(folder: str | os.PathLike) -> Results:
    """The results of the run in ``folder``, nepkit's or GPUMD's, as far as they are there.

    Raises:
        UserError: there are none, a file is damaged, or the data are not those of the run.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise UserError(f"{folder}: no such folder; give the one that a run wrote to")
    about = read_manifest(folder)[1]
    sets = [_read_set(folder, name, about.get("data", {}).get(name)) for name in SETS]
    found = Results(folder, [data for data in sets if data], _read_history(folder), about)
    if not found.sets and not found.history:
        raise UserError(
            f"{folder}: no loss.out and no energy_train.out; give the folder that a run wrote to"
        )
    return found


def read_compared(folder: Path, name: str) -> dict[str, Compared]:
    """The predictions of one data set by kind, from GPUMD's files; without kinds without labels."""
    compared = {}
    for kind in KINDS:
        path, width = folder / f"{kind.name}_{name}.out", len(kind.components)
        if not path.exists() or path.stat().st_size == 0:
            continue
        numbers = _read_table(path, 2 * width)
        label = np.where(numbers[:, width:] == MISSING, np.nan, numbers[:, width:])
        predicted = np.where(np.isfinite(numbers[:, :width]), numbers[:, :width], np.nan)
        compared[kind.name] = Compared(label, predicted)
    return {kind: c for kind, c in compared.items() if not np.isnan(c.error).all()}


def _read_table(path: Path, width: int, **options) -> np.ndarray:
    try:
        table = np.loadtxt(path, ndmin=2, **options)
    except (OSError, ValueError) as error:
        raise UserError(f"{path}: damaged, cannot be read as a table of numbers") from error
    if table.shape[1] != width:
        raise UserError(
            f"{path}: {table.shape[1]} columns, expected {width}; is it of another GPUMD?"
        )
    return table


def _read_set(folder: Path, name: str, recorded: str | None) -> DataSet | None:
    compared = read_compared(folder, name)
    if not compared:
        return None
    path = data_file(folder, name)
    if not path.exists() and recorded:
        path = folder / recorded
    frames = read_xyz(path, progress=True) if path.exists() else None
    if frames is not None:
        _check_frames(compared, frames, path, folder)
        ignored = [not frame.weight * frame.energy_weight for frame in frames]
        if "energy" in compared:  # as in the errors that the run tells
            compared["energy"].label[ignored] = np.nan
            if np.isnan(compared["energy"].error).all():
                del compared["energy"]
    return DataSet(name, compared, frames)


def _check_frames(compared: dict[str, Compared], frames: list[Frame], path: Path, folder: Path):
    """Refuse frames that are not, in this order, those of the *.out files."""
    n_atoms = sum(map(len, frames))
    for kind, values in compared.items():
        rows = n_atoms if kind == "force" else len(frames)
        same = len(values.label) == rows
        if same and kind == "energy":
            labels = [np.nan if f.energy is None else f.energy / len(f) for f in frames]
            same = np.allclose(values.label[:, 0], labels, rtol=1e-4, atol=1e-4, equal_nan=True)
        if not same:
            raise UserError(
                f"{path}: not the data that {folder} holds the {kind} of;\n"
                f"put back the file of the run as {folder / path.name}"
            )


def _read_history(folder: Path) -> History | None:
    """From loss.out, which GPUMD writes too, and the learning rate of history.csv."""
    path = folder / "loss.out"
    if not path.exists() or path.stat().st_size == 0:
        return None
    table = _read_table(path, 10)
    path, rate = folder / "history.csv", None
    if path.exists():
        rows = _read_table(path, 11, delimiter=",", skiprows=1)
        # A run at work may be between the two.
        table, rate = table[: len(rows)], rows[: len(table), 3]
    sound = np.isfinite(table).all(1)
    table, rate = table[sound], None if rate is None else rate[sound]
    if not len(table):
        return None
    names = [(name, kind.name) for name in SETS for kind in KINDS]
    errors = {key: table[:, 4 + k] for k, key in enumerate(names) if table[:, 4 + k].any()}
    judged = SETS[1] if any(name == SETS[1] for name, _ in errors) else SETS[0]
    resolved = folder / "nepkit_resolved.in"
    stage = read_nep_in(resolved).stages[-1] if resolved.exists() else Stage()
    columns = [errors.get((judged, kind.name), np.zeros(len(table))) for kind in KINDS]
    scores = [formula(Errors(*row), stage) for row in np.transpose(columns)]
    # GPUMD counts from zero again where it goes on with a run.
    step = table[:, 0].astype(int)
    again = np.concatenate([[0], np.where(np.diff(step) <= 0, step[:-1], 0)])
    step = step + np.cumsum(again)
    return History(step, table[:, 1], rate, errors, int(np.argmin(scores)))
