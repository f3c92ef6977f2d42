"""One structure with its labels."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..errors import at


@dataclass(frozen=True, eq=False, slots=True)
class Frame:
    """One structure and what is known of it; a label that is not known is ``None``.

    Units: eV, Å, eV/Å; ``virial`` in eV, positive when compressed.
    """

    numbers: np.ndarray  # (N,) int16, atomic numbers
    positions: np.ndarray  # (N, 3) float64
    cell: np.ndarray  # (3, 3) float64, rows are the cell vectors; zero rows where there is none
    pbc: np.ndarray  # (3,) bool
    energy: float | None = None  # total
    forces: np.ndarray | None = None  # (N, 3) float64
    virial: np.ndarray | None = None  # (3, 3) float64, symmetric, total
    weight: float = 1.0  # multiplies every error of the frame
    energy_weight: float = 1.0  # multiplies the squared energy error
    source: str = ""  # config_type
    path: str = ""  # file it was read from
    index: int = 0  # position in that file, from 0
    line: int = 1  # first line in that file, from 1

    def __len__(self) -> int:
        return len(self.numbers)

    @property
    def place(self) -> str:
        """Where it came from, for messages."""
        if self.path:
            return at(self.path, self.line, self.index)
        return self.source or "the structure"

    @property
    def volume(self) -> float:
        """Volume of the cell in Å^3; 0 without three independent cell vectors."""
        return float(abs(np.linalg.det(self.cell)))


def origin(source: str) -> str:
    """A config_type up to a slash, which a name of the frame itself follows."""
    return source.split("/")[0].strip()
