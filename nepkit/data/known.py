"""What is known of frames besides their pairs: labels, weights and places, as arrays."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cached_property

import numpy as np

from ..errors import at
from .batch import VIRIAL_COLUMNS, VIRIAL_ROWS
from .frame import Frame
from .ragged import end_to_end

# Those that have one entry an atom; the others have one a frame.
OF_ATOMS = ("types", "forces")


@dataclass(frozen=True, eq=False)
class Labels:
    """Labels of F frames with A atoms in all, NaN where one is missing.

    Units: eV, Å, eV/Å; virials in eV, positive when compressed.
    """

    path: str  # file they were read from
    sources: tuple[str, ...]  # each config_type that occurs
    source: np.ndarray  # (F,) int32, which of them
    n_atoms: np.ndarray  # (F,) int64
    energy: np.ndarray  # (F,) total
    virial: np.ndarray  # (F, 6) xx yy zz xy yz zx, total
    weight: np.ndarray  # (F,) on every error of the frame
    energy_weight: np.ndarray  # (F,) on the squared energy error
    volume: np.ndarray  # (F,) Å^3
    periodic: np.ndarray  # (F,) bool, in all directions
    index: np.ndarray  # (F,) int64, place in the file, from 0
    line: np.ndarray  # (F,) int64, first line in the file, from 1
    types: np.ndarray  # (A,) int32
    forces: np.ndarray  # (A, 3)

    @classmethod
    def of(cls, frames: Sequence[Frame], types: Sequence[np.ndarray]) -> Labels:
        """The labels of ``frames``; ``types`` (N,) int32 of the atoms of each."""
        number: dict[str, int] = {}
        source = [number.setdefault(f.source, len(number)) for f in frames]
        none = np.full((3, 3), np.nan)
        virial = np.array([none if f.virial is None else f.virial for f in frames]).reshape(
            -1, 3, 3
        )
        missing = {n: np.full((n, 3), np.nan) for n in {len(f) for f in frames if f.forces is None}}
        forces = [missing[len(f)] if f.forces is None else f.forces for f in frames]
        return cls(
            path=frames[0].path if frames else "",
            sources=tuple(number),
            source=np.array(source, np.int32),
            n_atoms=np.array([len(f) for f in frames], np.int64),
            energy=np.array([np.nan if f.energy is None else f.energy for f in frames]),
            virial=virial[:, VIRIAL_ROWS, VIRIAL_COLUMNS],
            weight=np.array([f.weight for f in frames]),
            energy_weight=np.array([f.energy_weight for f in frames]),
            volume=volumes(np.array([f.cell for f in frames]).reshape(-1, 3, 3)),
            periodic=np.array([f.pbc for f in frames], bool).reshape(-1, 3).all(1),
            index=np.array([f.index for f in frames], np.int64),
            line=np.array([f.line for f in frames], np.int64),
            types=np.concatenate([np.empty(0, np.int32), *types]),
            forces=np.concatenate([np.empty((0, 3)), *forces]),
        )

    def __len__(self) -> int:
        return len(self.n_atoms)

    @cached_property
    def first_atom(self) -> np.ndarray:
        """Where the atoms of each frame begin (F + 1,), the last entry is the number of atoms."""
        return np.concatenate([[0], np.cumsum(self.n_atoms)])

    def take(self, frames: np.ndarray) -> Labels:
        """The labels of ``frames`` (n,), in this order."""
        atoms = end_to_end(self.first_atom[frames], self.n_atoms[frames])
        named = {
            field.name: getattr(self, field.name)[atoms if field.name in OF_ATOMS else frames]
            for field in fields(self)
            if field.name not in ("path", "sources")
        }
        return Labels(path=self.path, sources=self.sources, **named)

    def counts(self, n_types: int) -> np.ndarray:
        """How many atoms of each type every frame has (F, T)."""
        frame = np.repeat(np.arange(len(self)), self.n_atoms)
        flat = np.bincount(frame * n_types + self.types, minlength=len(self) * n_types)
        return flat.reshape(len(self), n_types)

    def place(self, frame: int) -> str:
        """File, line and frame of one of them, for messages."""
        return at(os.fspath(self.path), int(self.line[frame]), int(self.index[frame]))


def volumes(cells: np.ndarray) -> np.ndarray:
    """Volumes (F,) Å^3 of cells (F, 3, 3)."""
    return np.abs(np.linalg.det(cells))
