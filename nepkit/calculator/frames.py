"""Structures of ASE and torch-sim as nepkit's frames."""

from __future__ import annotations

import numpy as np
from ase import Atoms

from ..data.frame import Frame
from ..data.prepared import type_lookup
from ..errors import UserError
from ..units import ELEMENTS


def frame_of(atoms: Atoms, elements: tuple[str, ...], place: str = "the structure") -> Frame:
    """The frame of ``atoms``, whose positions it shares; raises as ``checked`` does."""
    seen = unchecked(atoms)
    return checked(seen.numbers, seen.positions, seen.cell, seen.pbc, elements, place)


def unchecked(atoms: Atoms) -> Frame:
    """The frame of ``atoms``, whose numbers and positions it shares, whatever they are."""
    return Frame(atoms.numbers, atoms.positions, atoms.cell.array.copy(), atoms.pbc.copy())


def checked(
    numbers: np.ndarray,
    positions: np.ndarray,
    cell: np.ndarray,
    pbc: np.ndarray,
    elements: tuple[str, ...],
    place: str,
) -> Frame:
    """The frame of these arrays, as in Frame; ``place`` names it in messages.

    Raises:
        UserError: an element that is not among ``elements``, numbers that are not finite, or a
            periodic direction without a cell vector.
    """
    known = type_lookup(elements)
    inside = (numbers >= 0) & (numbers < len(known))
    unknown = ~inside | (known[np.where(inside, numbers, 0)] < 0)
    if unknown.any():
        atom = int(unknown.argmax())
        symbol = ELEMENTS[numbers[atom] - 1] if 1 <= numbers[atom] <= len(ELEMENTS) else "X"
        raise UserError(
            f"{place}: the model has no {symbol} (atom {atom}, from 0), only {' '.join(elements)}"
        )
    if not np.isfinite(cell).all():
        raise UserError(f"{place}: the cell has numbers that are not finite")
    if not np.isfinite(positions).all():
        atom = int((~np.isfinite(positions)).any(axis=1).argmax())
        raise UserError(f"{place}: the position of atom {atom} (from 0) is not finite")
    vectors = cell[pbc]
    gram = vectors @ vectors.T
    if not np.linalg.det(gram) > 1e-18 * gram.diagonal().prod():
        raise UserError(
            f"{place}: is periodic along a direction without a cell vector of its own; "
            "set the cell, or pbc to False there"
        )
    return Frame(numbers.astype(np.int16), positions, cell, pbc, source=place)
