"""Neighbour lists that stay good while atoms move, until one has moved too far."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from ase.geometry import complete_cell

from ..data.frame import Frame


def covers(frame: Frame, reference: Frame, reach: float, cutoff: float) -> bool:
    """Whether the pairs of ``reference`` within ``reach`` Å hold those of ``frame`` within ``cutoff``.

    With F the change of the cell, a pair not in the list is at least s reach - 2 d long, where s is
    the smallest singular value of F and d the largest distance of an atom from its old place moved
    along with the cell. At constant cell this is the rule that no atom moves more than half the skin.
    """
    old, smallest = reference.positions, 1.0
    if not np.array_equal(frame.cell, reference.cell):
        cells = (complete_cell(f.cell * f.pbc[:, None]) for f in (reference, frame))
        deformation = np.linalg.solve(*cells)
        old = old @ deformation
        smallest = np.linalg.svd(deformation, compute_uv=False)[-1]
    moved = frame.positions - old
    furthest = np.sqrt(np.einsum("ia,ia->i", moved, moved).max(initial=0.0))
    return smallest * reach - 2.0 * furthest >= cutoff


@dataclass(frozen=True, eq=False)
class SkinRule:
    """What pairs within the cutoffs and a skin were found for, and how long they are good."""

    reference: Frame  # the structure that they were found in
    reach: float  # Å, the largest cutoff and the skin
    cutoff: float  # Å, the largest
    images: np.ndarray  # (S, 3) images of the cell by the pairs' ``shift``
    wrapped: np.ndarray | None  # (N, 3) cell vectors that take atoms into the cell

    def good_for(self, frame: Frame) -> bool:
        """Whether the list has every pair of ``frame``."""
        old = self.reference
        return (
            np.array_equal(frame.numbers, old.numbers)
            and np.array_equal(frame.pbc, old.pbc)
            and covers(frame, old, self.reach, self.cutoff)
        )

    def placed(self, frame: Frame) -> tuple[np.ndarray, np.ndarray]:
        """Positions (N, 3) and vectors (S, 3), Å, of the images that the pairs are between."""
        positions = frame.positions
        if self.wrapped is not None:
            positions = positions + self.wrapped @ frame.cell
        return positions, self.images @ frame.cell


def refreshed(
    lists: Sequence[SkinRule], frames: Sequence[Frame], make: Callable[[Frame], SkinRule]
) -> tuple[list[SkinRule], int]:
    """The lists of ``frames``, made anew where one is not good any more, and how many were."""
    if len(lists) != len(frames):
        return [make(_own(frame)) for frame in frames], len(frames)
    found = [of if of.good_for(frame) else make(_own(frame)) for of, frame in zip(lists, frames)]
    return found, sum(one is not other for one, other in zip(found, lists))


def _own(frame: Frame) -> Frame:
    # Whoever gave the positions may change them, and lists remember where atoms were.
    return replace(frame, positions=frame.positions.copy())


def into_cell(frame: Frame) -> tuple[np.ndarray | None, Frame]:
    """By how many cell vectors (N, 3) atoms move into the cell, None for none, and the frame then.

    Atoms that have travelled far would otherwise need images of their own.
    """
    if not frame.pbc.any():
        return None, frame
    cell = complete_cell(frame.cell * frame.pbc[:, None])
    wrapped = -np.floor(np.linalg.solve(cell.T, frame.positions.T).T) * frame.pbc
    if not wrapped.any():
        return None, frame
    return wrapped, replace(frame, positions=frame.positions + wrapped @ frame.cell)
