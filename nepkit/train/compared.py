"""Predictions held against labels: errors by element, source and size, and the largest ones."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from ..data.frame import Frame, origin
from ..data.known import Sample
from ..units import ELEMENTS

# Numbers of atoms in a frame that each have a group of their own; more are grouped by powers of 2.
MOST_SIZES = 8


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


Groups = dict[str, dict[str, Scores]]  # by name of the group, then of the kind


class Compared(NamedTuple):
    """Labels and predictions (n, components), NaN where there is none; n frames or atoms."""

    label: np.ndarray
    predicted: np.ndarray

    @property
    def error(self) -> np.ndarray:
        """Predicted less label, (n, components)."""
        return self.predicted - self.label

    def squares(self) -> tuple[float, int]:
        """Sum of the squared errors of all components that have a label, and their number."""
        error = self.error[~np.isnan(self.label)]
        return float((error**2).sum()), error.size

    def known(self) -> tuple[np.ndarray, np.ndarray]:
        """Labels and predictions (m,), component by component, where there are both."""
        known = ~np.isnan(self.label) & ~np.isnan(self.predicted)
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


class Largest(NamedTuple):
    """The component with the largest error of a frame, in the unit of its kind."""

    kind: Kind
    frame: Frame | Sample
    atom: int | None  # from 0 in its frame; None for what belongs to the frame
    component: str
    label: float
    predicted: float

    @property
    def element(self) -> str:
        """Of the atom; empty without one."""
        return "" if self.atom is None else ELEMENTS[self.frame.numbers[self.atom] - 1]


@dataclass(frozen=True, eq=False)
class Comparison:
    """The results on one data set; ``frames`` is None where its file is not found."""

    name: str  # train, valid or test
    compared: dict[str, Compared]  # by name of kind; without those that have no label
    frames: list[Frame] | list[Sample] | None

    @cached_property
    def atom_frame(self) -> np.ndarray:
        """(atoms,) number of the frame of each atom."""
        return np.repeat(np.arange(len(self.frames)), [len(frame) for frame in self.frames])

    def by_source(self) -> Groups:
        """Errors by source and kind; nothing without frames.

        The source is the config_type up to a slash, ``liquid`` of ``liquid/17``.
        """
        return self._by_frame(
            [origin(frame.source) or "(no config_type)" for frame in self.frames or ()]
        )

    def by_size(self) -> Groups:
        """Errors by the number of atoms in a frame, in rising order; nothing without frames."""
        sizes = np.array([len(frame) for frame in self.frames or ()], dtype=int)
        if len(np.unique(sizes)) > MOST_SIZES:
            high = 2 ** np.ceil(np.log2(sizes)).astype(int)
            low = high // 2 + 1
        else:
            low = high = sizes
        pairs = sorted(set(zip(low.tolist(), high.tolist())))
        names = {pair: _size(*pair) for pair in pairs}
        found = self._by_frame([names[pair] for pair in zip(low.tolist(), high.tolist())])
        return {names[pair]: found[names[pair]] for pair in pairs if names[pair] in found}

    def by_element(self) -> Groups:
        """Errors of the forces by element, in the order of atomic numbers."""
        if not self.frames or "force" not in self.compared:
            return {}
        numbers = np.concatenate([frame.numbers for frame in self.frames])
        present = np.unique(numbers).tolist()
        scores = {ELEMENTS[z - 1]: self.compared["force"].scores(numbers == z) for z in present}
        return {element: {"force": found} for element, found in scores.items() if found}

    def _by_frame(self, names: list[str]) -> Groups:
        """Errors of groups of frames; ``names`` (F,) says which group a frame is in."""
        groups, of_frame = {}, np.array(names)
        for name in sorted(set(names)):
            frames = of_frame == name
            rows = {"energy": frames, "virial": frames, "force": frames[self.atom_frame]}
            found = {kind: c.scores(rows[kind]) for kind, c in self.compared.items()}
            groups[name] = {kind: scores for kind, scores in found.items() if scores}
        return {name: found for name, found in groups.items() if found}

    def largest(self, kind: Kind, most: int) -> Iterator[Largest]:
        """The largest errors of a kind, one a frame, the largest first; nothing without frames."""
        if not self.frames or kind.name not in self.compared:
            return
        compared = self.compared[kind.name]
        size = np.nan_to_num(np.abs(compared.error), nan=-1.0)  # (rows, components)
        of = self.atom_frame if kind.name == "force" else np.arange(len(self.frames))
        order, seen = np.argsort(-size.max(axis=1), kind="stable"), set()
        for row in order.tolist():
            frame = int(of[row])
            if size[row].max() < 0 or len(seen) == most:
                return
            if frame in seen:
                continue
            seen.add(frame)
            component = int(size[row].argmax())
            atom = row - int(np.searchsorted(of, frame)) if kind.name == "force" else None
            yield Largest(
                kind, self.frames[frame], atom, kind.components[component],
                float(compared.label[row, component]), float(compared.predicted[row, component]),
            )  # fmt: skip


def _size(low: int, high: int) -> str:
    if low == high:
        return f"{low} atom" + "s" * (low > 1)
    return f"{low} to {high} atoms"
