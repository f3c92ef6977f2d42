"""Neighbour lists that stay good while atoms move, until one has moved too far."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from ase.geometry import complete_cell

from ..config import ModelSettings
from ..data.frame import Frame
from ..data.neighbors import pair_cutoffs, search
from ..ops.cpu.skin import PairList, furthest, sorted_pairs


def covers(frame: Frame, reference: Frame, reach: float, cutoff: float) -> bool:
    """Whether the pairs of ``reference`` within ``reach`` Å hold those of ``frame`` within ``cutoff``.

    With F the change of the cell, a pair not in the list is at least s reach - 2 d long, where s is
    the smallest singular value of F and d the largest distance of an atom from its old place moved
    along with the cell. At constant cell this is the rule that no atom moves more than half the skin.
    """
    deformation, smallest = np.eye(3), 1.0
    if not np.array_equal(frame.cell, reference.cell):
        old, new = (complete_cell(f.cell * f.pbc[:, None]) for f in (reference, frame))
        deformation = np.linalg.solve(old, new)
        smallest = np.linalg.svd(deformation, compute_uv=False)[-1]
    moved = furthest(frame.positions, reference.positions, deformation)
    return smallest * reach - 2.0 * np.sqrt(moved) >= cutoff


@dataclass(frozen=True, eq=False)
class SkinList:
    """The pairs of a structure within the cutoffs and a skin."""

    reference: Frame  # the structure that they were found in
    reach: float  # Å, the largest cutoff and the skin
    cutoff: float  # Å, the largest
    pairs: PairList
    images: np.ndarray  # (S, 3) images of the cell by the pairs' ``shift``
    wrapped: np.ndarray | None  # (N, 3) cell vectors that take atoms into the cell

    @staticmethod
    def of(frame: Frame, types: np.ndarray, settings: ModelSettings, skin: float) -> SkinList:
        """Find the pairs of ``frame``; raises UserError as ``search`` does."""
        cutoffs = pair_cutoffs(settings.radial_cutoff)
        cutoff = float(cutoffs.max())
        wrapped, inside = into_cell(frame)
        center, neighbor, distance, image = search(inside, cutoff + skin, "S")
        if cutoffs.min() < cutoff:
            keep = distance < cutoffs[types[center], types[neighbor]] + skin
            center, neighbor, image = center[keep], neighbor[keep], image[keep]
        images, place = numbered(image)
        n_types = len(settings.elements)
        pairs = sorted_pairs(center, neighbor, place, types, n_types, len(images))
        return SkinList(frame, cutoff + skin, cutoff, PairList(*pairs), images, wrapped)

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


def numbered(image: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """All images (S, 3) up to the furthest of ``image`` (H, 3), and the place of each among them.

    They are in an order that a turn of all signs reverses.
    """
    most = np.abs(image).max(0, initial=0)
    _, b, c = 2 * most + 1
    grid = np.stack(np.meshgrid(*(np.arange(-m, m + 1) for m in most), indexing="ij"), -1)
    return grid.reshape(-1, 3).astype(np.float64), (image + most) @ np.array([b * c, c, 1])


def joined(lists: Sequence[SkinList]) -> PairList:
    """The pairs of structures side by side, atoms and images counted through."""
    if len(lists) == 1:
        return lists[0].pairs
    columns = {name: [getattr(one.pairs, name) for one in lists] for name in PairList._fields}
    atoms = before([len(one.reference) for one in lists])
    images = before([len(one.images) for one in lists])
    rows = before([len(types) for types in columns["row_type"]])
    pairs = before([len(neighbors) for neighbors in columns["neighbor"]])
    zero = [np.zeros(1, np.int64)]
    return PairList(
        np.concatenate(zero + [s[1:] + n for s, n in zip(columns["row_start"], rows)]),
        np.concatenate(columns["row_type"]),
        np.concatenate(zero + [s[1:] + n for s, n in zip(columns["pair_start"], pairs)]),
        np.concatenate([j + n for j, n in zip(columns["neighbor"], atoms)]),
        np.concatenate([s + n for s, n in zip(columns["shift"], images)]),
    )


def before(counts: list[int]) -> np.ndarray:
    """How many there are before each (int32), from how many each has."""
    return (np.cumsum(counts) - counts).astype(np.int32)
