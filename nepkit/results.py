"""What a run has written, read back: predictions against labels, errors and their history."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from .config import Stage, read_nep_in
from .data.frame import Frame
from .data.xyz import read_xyz
from .errors import UserError
from .train.best import judged as judged_set
from .train.compared import KINDS, Compared, Comparison
from .train.folder import read_manifest
from .train.outputs import MISSING, Errors
from .train.reading import VALID_FRAMES
from .train.report import formula
from .train.start import data_file

# Columns of history.csv without a validation set.
HISTORY_COLUMNS = 11
SETS = ("train", "valid", "test")


@dataclass(frozen=True, eq=False)
class History:
    """The reports of a run, R of them."""

    step: np.ndarray  # (R,)
    loss: np.ndarray  # (R,) of the whole training set
    learning_rate: np.ndarray | None  # (R,)
    errors: dict[tuple[str, str], np.ndarray]  # (R,) RMSE by set and kind; only what there is
    best: int  # row of the lowest loss on the set that the best model is chosen by


@dataclass(frozen=True, eq=False)
class Results:
    """Everything that figures and reports are made of."""

    folder: Path
    sets: list[Comparison]
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
    sets = [_read_set(folder, name, about.get("data", {})) for name in SETS]
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


def _read_set(folder: Path, name: str, recorded: dict[str, str]) -> Comparison | None:
    compared = read_compared(folder, name)
    if not compared:
        return None
    file = "train" if name == "valid" else name
    path = data_file(folder, file)
    if not path.exists() and file in recorded:
        path = folder / recorded[file]
    frames = read_xyz(path, progress=True) if path.exists() else None
    if frames is not None:
        if name != "test" and (folder / VALID_FRAMES).exists():
            valid = set(np.loadtxt(folder / VALID_FRAMES, dtype=int, ndmin=1).tolist())
            frames = [frame for frame in frames if (frame.index in valid) == (name == "valid")]
        _check_frames(compared, frames, path, folder)
        ignored = [not frame.weight * frame.energy_weight for frame in frames]
        if "energy" in compared:  # as in the errors that the run tells
            compared["energy"].label[ignored] = np.nan
            if np.isnan(compared["energy"].error).all():
                del compared["energy"]
    return Comparison(name, compared, frames)


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
    columns = [(name, kind.name) for name in ("train", "test") for kind in KINDS]
    if path.exists():
        names = path.read_text(encoding="utf-8").partition("\n")[0].split(",")
        rows = _read_table(path, len(names), delimiter=",", skiprows=1)
        # A run at work may be between the two.
        table, rows = table[: len(rows)], rows[: len(table)]
        rate = rows[:, 3]
        # The errors of a validation set, which GPUMD does not have, are here alone.
        table = np.hstack([table, rows[:, HISTORY_COLUMNS:]])
        columns += [("valid", kind.name) for kind in KINDS if len(names) > HISTORY_COLUMNS]
    sound = np.isfinite(table).all(1)
    table, rate = table[sound], None if rate is None else rate[sound]
    if not len(table):
        return None
    errors = {key: table[:, 4 + k] for k, key in enumerate(columns) if table[:, 4 + k].any()}
    judged = judged_set([name for name, _ in errors])
    resolved = folder / "nepkit_resolved.in"
    stage = read_nep_in(resolved).stages[-1] if resolved.exists() else Stage()
    columns = [errors.get((judged, kind.name), np.zeros(len(table))) for kind in KINDS]
    scores = [formula(Errors(*row), stage) for row in np.transpose(columns)]
    # GPUMD counts from zero again where it goes on with a run.
    step = table[:, 0].astype(int)
    again = np.concatenate([[0], np.where(np.diff(step) <= 0, step[:-1], 0)])
    step = step + np.cumsum(again)
    return History(step, table[:, 1], rate, errors, int(np.argmin(scores)))
