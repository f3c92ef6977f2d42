"""Screened nuclear repulsion (ZBL): holds no trainable number, so it is evaluated once a frame.

E_ij = K Z_i Z_j / r phi(r / a) fc(r), 1/a = 2.134563 (Z_i^0.23 + Z_j^0.23) / Å, and fc falls from
1 at the inner to 0 at the outer radius as a cosine. J. F. Ziegler, J. P. Biersack, U. Littmark, The
Stopping and Range of Ions in Matter (1985); GPUMD's three forms: universal, typewise (outer radius
from covalent radii) and flexible (radii and phi of each pair of elements).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..config import ModelSettings, Zbl
from ..data.batch import VIRIAL_COLUMNS, VIRIAL_ROWS
from ..data.prepared import Prepared
from ..data.ragged import chunks, sums
from ..data.structures import AngularPairs
from ..units import ATOMIC_NUMBERS, COULOMB, COVALENT_RADII

# Atoms whose pairs are worked on at a time.
ATOMS_AT_ONCE = 2000
# phi(x) = sum of amplitude * exp(-rate x), as amplitude, rate, amplitude, rate, ...
UNIVERSAL = (0.18175, 3.1998, 0.50986, 0.94229, 0.28022, 0.4029, 0.02817, 0.20162)


@dataclass(frozen=True, eq=False, slots=True)
class ZblTerms:
    """ZBL of F frames with A atoms in all, float64."""

    energy: np.ndarray  # (F,) eV
    forces: np.ndarray  # (A, 3) eV/Å
    virial: np.ndarray  # (F, 6) eV, xx yy zz xy yz zx


def zbl_of(prepared: Prepared, settings: ModelSettings) -> ZblTerms:
    """ZBL of all frames, computed once for each setting."""
    if settings.zbl not in prepared.repulsion:
        prepared.repulsion[settings.zbl] = _all_terms(prepared, settings)
    return prepared.repulsion[settings.zbl]


def _all_terms(prepared: Prepared, settings: ModelSettings) -> ZblTerms:
    n_frames, first_atom = len(prepared), prepared.labels.first_atom
    found = ZblTerms(np.zeros(n_frames), np.zeros((first_atom[-1], 3)), np.zeros((n_frames, 6)))
    if settings.zbl is None:
        return found
    for start, stop in chunks(prepared.n_atoms, ATOMS_AT_ONCE):
        pairs = prepared.structures.angular_pairs(start, stop)
        terms = _terms(pairs, first_atom[start : stop + 1] - first_atom[start], settings)
        atoms = slice(first_atom[start], first_atom[stop])
        found.energy[start:stop], found.virial[start:stop] = terms.energy, terms.virial
        found.forces[atoms] = terms.forces
    return found


def _terms(pairs: AngularPairs, first_atom: np.ndarray, settings: ModelSettings) -> ZblTerms:
    """ZBL of B frames, whose atoms begin at ``first_atom`` (B + 1,).

    As in GPUMD only pairs within the angular cutoff take part.
    """
    types, frame, center, neighbor, vectors = pairs
    n_frames, n_atoms = len(first_atom) - 1, len(types)
    distance = np.linalg.norm(vectors, axis=1)
    inner, outer, screening = pair_parameters(settings.elements, settings.zbl)
    pair_type = types[center] * len(settings.elements) + types[neighbor]
    near = distance < outer[pair_type]
    if not near.any():
        return ZblTerms(np.zeros(n_frames), np.zeros((n_atoms, 3)), np.zeros((n_frames, 6)))
    center, neighbor, frame, vectors, distance, pair_type = (
        x[near] for x in (center, neighbor, frame, vectors, distance, pair_type)
    )
    charges = np.array([ATOMIC_NUMBERS[element] for element in settings.elements], dtype=float)
    z_i, z_j = charges[types[center]], charges[types[neighbor]]
    energy, slope = pair_energy(
        distance, z_i, z_j, inner[pair_type], outer[pair_type], screening[pair_type]
    )
    pull = (slope / distance)[:, None] * vectors  # dU/dr_ij
    forces = np.stack(
        [
            np.bincount(center, pull[:, k], n_atoms) - np.bincount(neighbor, pull[:, k], n_atoms)
            for k in range(3)
        ],
        axis=1,
    )
    half = 0.5 * energy
    of_atoms = np.bincount(center, half, n_atoms) + np.bincount(neighbor, half, n_atoms)
    first_pair = np.searchsorted(frame, np.arange(n_frames + 1))
    virial = -sums(vectors[:, VIRIAL_ROWS] * pull[:, VIRIAL_COLUMNS], first_pair)
    return ZblTerms(sums(of_atoms, first_atom), forces, virial)


def pair_parameters(elements: tuple[str, ...], zbl: Zbl):
    """Inner and outer radius (T*T,) Å and screening (T*T, 8) of each pair of types."""
    n_types = len(elements)
    if zbl.flexible is not None:
        table = np.empty((n_types, n_types, 10))
        upper = np.triu_indices(n_types)
        table[upper] = zbl.flexible
        table[upper[::-1]] = zbl.flexible
        table = table.reshape(-1, 10)
        return table[:, 0], table[:, 1], table[:, 2:]
    inner = np.full((n_types, n_types), zbl.inner)
    outer = np.full((n_types, n_types), zbl.outer)
    if zbl.typewise_factor is not None:
        radii = np.array([COVALENT_RADII[ATOMIC_NUMBERS[element] - 1] for element in elements])
        outer = np.minimum(zbl.typewise_factor * (radii[:, None] + radii), zbl.outer)
        inner[:] = 0.0
    return inner.ravel(), outer.ravel(), np.tile(UNIVERSAL, (n_types**2, 1))


def repulsion_tables(settings: ModelSettings) -> tuple[np.ndarray, ...]:
    """ZBL of each pair type: inner and outer radius, Å, 1/a, K Z Z (T T,) and screening (T T, 8)."""
    inner, outer, screening = pair_parameters(settings.elements, settings.zbl)
    charges = np.array([ATOMIC_NUMBERS[element] for element in settings.elements], dtype=float)
    powers = charges**0.23
    tables = (
        inner, outer, 2.134563 * (powers[:, None] + powers).ravel(),
        COULOMB * (charges[:, None] * charges).ravel(), screening,
    )  # fmt: skip
    return tuple(map(np.ascontiguousarray, tables))


def pair_energy(distance, z_i, z_j, inner, outer, screening):
    """Energy (P,) eV and its derivative (P,) eV/Å of pairs closer than ``outer``."""
    inverse_length = 2.134563 * (z_i**0.23 + z_j**0.23)
    x = distance * inverse_length
    amplitude, rate = screening[:, 0::2], screening[:, 1::2]
    waves = amplitude * np.exp(-rate * x[:, None])
    phi, phi_slope = waves.sum(1), -(rate * waves).sum(1) * inverse_length
    strength = COULOMB * z_i * z_j / distance
    bare, bare_slope = strength * phi, strength * (phi_slope - phi / distance)
    beyond = distance > inner
    width = np.where(beyond, outer - inner, 1.0)
    angle = np.where(beyond, np.pi * (distance - inner) / width, 0.0)
    cutoff, cutoff_slope = 0.5 * np.cos(angle) + 0.5, -0.5 * np.pi / width * np.sin(angle)
    return bare * cutoff, bare_slope * cutoff + bare * cutoff_slope
