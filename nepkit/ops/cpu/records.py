"""What the MD kernels (field.py) are given, in named tuples."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np


class Repulsion(NamedTuple):
    """ZBL of each pair type (T T,), float64; empty without ZBL."""

    inner: np.ndarray  # Å
    outer: np.ndarray  # Å
    inverse_length: np.ndarray  # 1/Å
    strength: np.ndarray  # eV Å
    screening: np.ndarray  # (T T, 8)


class Field(NamedTuple):
    """Constants of a model as the kernels read them; pair type = centre type * T + neighbour type."""

    element_energy: np.ndarray  # (T,) float64 eV
    radial_cutoff: np.ndarray  # (T T,) float64 Å
    angular_cutoff: np.ndarray  # (T T,)
    radial_square: np.ndarray  # (T T,) of the cutoff
    angular_square: np.ndarray  # (T T,)
    radial_c: np.ndarray  # (T T, n, K)
    angular_c: np.ndarray  # (T T, K n)
    scaler: np.ndarray  # (D,)
    weights: tuple[np.ndarray, ...]  # a layer (T, H, in)
    biases: tuple[np.ndarray, ...]  # a layer (T, H)
    output: np.ndarray  # (T, H)
    height: np.ndarray  # (l_max + 1, L) coefficients of z^p in each component
    around: np.ndarray  # (3, L) place in ``circle`` of its other factor, and of that's derivatives
    factor: np.ndarray  # (2, L) of those derivatives
    # The invariants, as in PairData.
    parity: np.ndarray
    square_weight: np.ndarray
    cubic: np.ndarray
    cubic_weight: np.ndarray
    quartic: np.ndarray


class Work(NamedTuple):
    """What a thread keeps of the atom that it works on."""

    neighbor: np.ndarray  # (P,)
    x: np.ndarray  # (P,) vector to the neighbour, Å
    y: np.ndarray
    z: np.ndarray
    square: np.ndarray  # (P,) squared distance
    near: np.ndarray  # (P,) places of the angular pairs
    row_end: np.ndarray  # (R,) kept pairs up to the end of each row
    near_end: np.ndarray  # (R,)
    radial: np.ndarray  # (P,) dU_i/dr / r of the radial part
    chunk: np.ndarray
    sums: np.ndarray  # (K_R,)
    weights: np.ndarray  # (R, K_R) dU/da of each row
    functions: np.ndarray  # (K_A,)
    slopes: np.ndarray  # (K_A,)
    circle: np.ndarray
    g: np.ndarray  # (P, 2 n)
    harmonics: np.ndarray  # (P, 4 L)


class Share(NamedTuple):
    """What one thread adds up, float64."""

    forces: np.ndarray  # (N, 3) eV/Å
    virials: np.ndarray  # (B, 6) eV, xx yy zz xy yz zx
    atom_virials: np.ndarray  # (N, 3, 3) eV, or (0, 3, 3) where they are not wanted


class Layers(NamedTuple):
    """One atom in the network, a batch of one for network.py."""

    type: np.ndarray  # (1,)
    q: np.ndarray  # (1, D) scaled
    values: tuple[np.ndarray, ...]  # a layer (1, H)
    energy: np.ndarray  # (1,)
    slopes: tuple[np.ndarray, ...]  # a layer (1, H)
    q_slope: np.ndarray  # (1, D)
