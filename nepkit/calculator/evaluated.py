"""What an evaluation of moving atoms gives."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, eq=False)
class Evaluated:
    """B structures of N atoms in all, one after another."""

    energies: np.ndarray  # (N,) float64 eV
    forces: np.ndarray  # (N, 3) float64 eV/Å
    virials: np.ndarray  # (B, 6) float64 eV, xx yy zz xy yz zx
    descriptors: np.ndarray | None = None  # (N, D), scaled
    atom_virials: np.ndarray | None = None  # (N, 3, 3) float64 eV
