"""ASE's structures as nepkit's frames."""

from __future__ import annotations

import numpy as np
from ase import Atoms

from ..data.frame import Frame
from ..data.prepared import type_lookup
from ..errors import UserError


def frame_of(atoms: Atoms, elements: tuple[str, ...], index: int | None = None) -> Frame:
    """The frame of ``atoms``, whose arrays it does not share; ``index``: its place in a list.

    Raises:
        UserError: an element that is not among ``elements``, numbers that are not finite, or a
            periodic direction without a cell vector.
    """
    place = "the structure" if index is None else f"structure {index}"
    numbers = atoms.numbers
    known = type_lookup(elements)
    unknown = (
        (numbers < 0) | (numbers >= len(known)) | (known[np.clip(numbers, 0, len(known) - 1)] < 0)
    )
    if unknown.any():
        atom = int(unknown.argmax())
        raise UserError(
            f"{place}: the model has no {atoms[atom].symbol} (atom {atom}, from 0), "
            f"only {' '.join(elements)}"
        )
    cell, pbc = atoms.cell.array.copy(), atoms.pbc.copy()
    if not np.isfinite(cell).all():
        raise UserError(f"{place}: the cell has numbers that are not finite")
    if not np.isfinite(atoms.positions).all():
        atom = int((~np.isfinite(atoms.positions)).any(axis=1).argmax())
        raise UserError(f"{place}: the position of atom {atom} (from 0) is not finite")
    if pbc.any() and np.linalg.matrix_rank(cell[pbc]) < pbc.sum():
        raise UserError(
            f"{place}: is periodic along a direction without a cell vector of its own; "
            "set the cell, or pbc to False there"
        )
    return Frame(numbers.astype(np.int16), atoms.positions.copy(), cell, pbc, source=place)
