"""Neighbour lists: half pairs by vesin, their two directions, and rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import vesin
from ase.geometry import complete_cell

from ..config import ModelSettings
from ..errors import UserError
from .cell_list import heights
from .frame import Frame

# Å; atoms nearer than this are one atom given twice, and their direction is noise.
CLOSEST = 1e-3
# vesin ends the process for flatter structures with over WIDE^3 cells of a cutoff; in cutoffs.
FLAT, WIDE = 3.0, 36.0
# Neighbours of an atom, on average, beyond which the cell must be in another unit than Å.
MOST_NEIGHBORS = 50_000


@dataclass(frozen=True, eq=False, slots=True)
class Neighbors:
    """The pairs of frames, each stored once, and the rows they form.

    H pairs i, j lie within the radial cutoff; Q of them also within the angular cutoff. Each has
    two directions, i -> j and j -> i. The 2 H directed pairs are sorted by centre, then by
    neighbour type, and so are the 2 Q angular ones; ``first`` and ``second`` are the places of
    the two directions in that order, each the other's reversed pair. The pairs themselves are
    sorted by the earlier of the two. A row is one (centre, neighbour type) that has at least one
    pair. All indices are int32.
    """

    vectors: np.ndarray  # (H, 3) float64, r_j - r_i with its periodic image, Å
    center: np.ndarray  # (H,) i
    neighbor: np.ndarray  # (H,) j
    first: np.ndarray  # (H,) place of i -> j
    second: np.ndarray  # (H,) place of j -> i
    first_row: np.ndarray  # (H,) row of i -> j
    second_row: np.ndarray  # (H,) row of j -> i
    angular: np.ndarray  # (Q,) which pairs are angular too, ascending
    angular_first: np.ndarray  # (Q,) place of i -> j among the angular directed pairs
    angular_second: np.ndarray  # (Q,) place of j -> i
    row_center: np.ndarray  # (R,) ascending
    row_type: np.ndarray  # (R,) type of the neighbours
    row_radial: np.ndarray  # (R,) directed radial pairs of the row
    row_angular: np.ndarray  # (R,) directed angular pairs of the row

    def largest(self) -> tuple[int, int]:
        """Neighbours of the atom that has most: radial, angular."""
        return tuple(
            int(np.bincount(self.row_center, weights=count).max(initial=0))
            for count in (self.row_radial, self.row_angular)
        )

    def radial_order(self) -> np.ndarray:
        """Directed pairs in their order, each 2 h or 2 h + 1 of pair h, two a line (2, H)."""
        return _order(self.first, self.second)

    def angular_order(self) -> np.ndarray:
        """The same of the angular pairs (2, Q)."""
        return _order(self.angular_first, self.angular_second)

    def rows_of_atoms(self, n_atoms: int) -> np.ndarray:
        """How many rows each atom has (N,)."""
        return np.bincount(self.row_center, minlength=n_atoms).astype(np.int32)


def _order(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    order = np.empty(2 * len(first), dtype=np.int32)
    order[first] = np.arange(0, len(order), 2, dtype=np.int32)
    order[second] = np.arange(1, len(order), 2, dtype=np.int32)
    return order.reshape(-1, 2).T


def pair_cutoffs(per_element: tuple[float, ...]) -> np.ndarray:
    """Cutoff of each pair of types, the mean of the two elements' (T, T), Å."""
    cutoffs = np.asarray(per_element, dtype=np.float64)
    return 0.5 * (cutoffs[:, None] + cutoffs[None, :])


def find_neighbors(
    frames: Sequence[Frame], types: Sequence[np.ndarray], settings: ModelSettings
) -> Neighbors:
    """All pairs of ``frames`` closer than the cutoffs of ``settings``, images included.

    Atoms are numbered through all frames. ``types`` (N,) int32 of each frame: index of each atom's
    element in ``settings.elements``. Any cell will do: triclinic, left-handed, thinner than the
    cutoff, periodic in some directions or in none.
    """
    pairs = half_pairs(frames, types, settings.radial_cutoff)
    return _in_order(*pairs, np.concatenate([np.empty(0, np.int32), *types]), settings)


def _in_order(center, neighbor, distance, vectors, types, settings: ModelSettings) -> Neighbors:
    """The pairs sorted, and their rows."""
    n_half, n_types = len(center), len(settings.elements)
    type_i, type_j = types[center], types[neighbor]
    key = np.concatenate([center * n_types + type_j, neighbor * n_types + type_i])
    order = np.argsort(key, kind="stable").astype(np.int32)
    place = np.empty_like(order)
    place[order] = np.arange(2 * n_half, dtype=np.int32)
    # Pairs in the order in which the directed ones first come upon them: whoever goes through the
    # rows then reads what is stored by pair one after the other.
    half = np.where(order < n_half, order, order - n_half)
    pairs = half[place[half] + place[half + n_half] > 2 * np.arange(2 * n_half)]

    sorted_key = key[order]
    starts_row = np.ones(2 * n_half, dtype=bool)
    np.not_equal(sorted_key[1:], sorted_key[:-1], out=starts_row[1:])
    row = (np.cumsum(starts_row) - 1).astype(np.int32)
    row_key = sorted_key[starts_row]

    limit = pair_cutoffs(settings.angular_cutoff)[type_i, type_j]
    is_angular = distance < limit
    directed_is_angular = is_angular[half]
    angular_place = (np.cumsum(directed_is_angular) - 1).astype(np.int32)
    angular = np.flatnonzero(is_angular[pairs]).astype(np.int32)
    first, second = place[pairs], place[pairs + n_half]
    return Neighbors(
        vectors[pairs], center[pairs], neighbor[pairs], first, second, row[first], row[second],
        angular, angular_place[first[angular]], angular_place[second[angular]],
        row_key // n_types, row_key % n_types,
        np.bincount(row, minlength=len(row_key)).astype(np.int32),
        np.bincount(row[directed_is_angular], minlength=len(row_key)).astype(np.int32),
    )  # fmt: skip


def half_pairs(
    frames: Sequence[Frame], types: Sequence[np.ndarray], per_element: tuple[float, ...]
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Centre, neighbour, distance and vector of the pairs within their cutoff, each pair once.

    Frame after frame; atoms are numbered through all frames. Raises ``UserError`` for atoms at one
    place, and for a cell too small for its atoms, the first frame first.
    """
    cutoff = pair_cutoffs(per_element)
    reach = float(cutoff.max())
    crowd = _first_crowd(frames, reach)
    parts, first_atom = [(np.empty((0, 2), np.int32), np.empty(0), np.empty((0, 3)))], 0
    for frame in frames[:crowd]:
        ends, distance, vectors = _found(frame, reach, "D")
        parts.append((ends.astype(np.int32) + first_atom, distance, vectors))
        first_atom += len(frame)
    ends, distance, vectors = map(np.concatenate, zip(*parts))
    center, neighbor = ends.T
    if (distance < CLOSEST).any():
        _refuse_twins(frames, center, neighbor, distance)
    if crowd < len(frames):
        refuse_crowd(frames[crowd], reach)
    types = np.concatenate([np.empty(0, np.int32), *types])
    keep = distance < cutoff[types[center], types[neighbor]]
    return center[keep], neighbor[keep], distance[keep], vectors[keep]


def search(frame: Frame, cutoff: float, what: str):
    """Centre, neighbour (int32), distance and, with ``what``, vector ("D") or image ("S", in cell
    vectors) of the pairs within ``cutoff`` Å, each pair once.

    Raises ``UserError`` for atoms at one place, and for a cell too small for its atoms.
    """
    if len(frame) == 0:
        return np.zeros(0, np.int32), np.zeros(0, np.int32), np.zeros(0), np.zeros((0, 3), int)
    refuse_crowd(frame, cutoff)
    ends, distance, more = _found(frame, cutoff, what)
    center, neighbor = ends.T
    if len(distance) and distance.min() < CLOSEST:
        pair = int(distance.argmin())
        raise too_close(frame, center[pair], neighbor[pair], distance[pair])
    return center.astype(np.int32), neighbor.astype(np.int32), distance, more


def _found(frame: Frame, cutoff: float, what: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Both ends (P, 2), distance, and vector ("D") or image ("S") of the pairs, each pair once."""
    box = _box(frame)
    if max(np.abs(box).max(), np.ptp(frame.positions, axis=0).max()) > WIDE * cutoff:
        # In cutoffs: heights of the cell, or of the box around the atoms.
        place = np.linalg.solve(box.T, frame.positions.T)
        spread = np.where(frame.pbc, 1.0, np.ptp(place, axis=1)) * heights(box) / cutoff
        if spread.min() < FLAT and np.maximum(spread, 1.0).prod() > WIDE**3:
            return _found_by_ase(frame, box, cutoff, what)
    finder = vesin.NeighborList(cutoff=cutoff, full_list=False, n_threads=1)
    return finder.compute(
        points=frame.positions, box=box, periodic=frame.pbc, quantities="Pd" + what
    )


def _found_by_ase(frame: Frame, box: np.ndarray, cutoff: float, what: str):
    """The same for wide and flat structures."""
    from ase.neighborlist import primitive_neighbor_list  # with scipy, of which few runs have need

    i, j, distance, image, vectors = primitive_neighbor_list(
        "ijdSD", frame.pbc, box, frame.positions, cutoff
    )
    x, y, z = image.T
    forward = (x > 0) | ((x == 0) & ((y > 0) | ((y == 0) & (z > 0))))
    once, more = (i < j) | ((i == j) & forward), vectors if what == "D" else image
    return np.stack([i, j], axis=1)[once], distance[once], more[once]


def _box(frame: Frame) -> np.ndarray:
    """Cell vectors for vesin, which inverts them, also along directions that are not periodic."""
    return frame.cell if frame.pbc.all() else complete_cell(frame.cell * frame.pbc[:, None])


def too_close(frame: Frame, one: int, other: int, distance: float) -> UserError:
    """What to say of two atoms at one place."""
    return UserError(
        f"{frame.place}: atoms {one} and {other} (from 0) are {distance:.2g} Å apart; "
        "take one of them out"
    )


def _refuse_twins(frames: Sequence[Frame], center, neighbor, distance):
    """Refuse atoms at one place: those of the first frame, the closest."""
    ends = np.cumsum([len(frame) for frame in frames])
    of_pair = np.searchsorted(ends, center, side="right")
    number = int(of_pair[distance < CLOSEST].min())
    frame, first = frames[number], int(ends[number]) - len(frames[number])
    pairs = np.flatnonzero(of_pair == number)
    pair = pairs[distance[pairs].argmin()]
    raise too_close(frame, center[pair] - first, neighbor[pair] - first, distance[pair])


def _crowding(frames: Sequence[Frame], cutoff: float) -> np.ndarray:
    """Neighbours of an atom (F,) that periodic cells make, by their densities; 0 for others."""
    cells = np.array([frame.cell for frame in frames]).reshape(-1, 3, 3)
    periodic = np.array([frame.pbc for frame in frames], bool).reshape(-1, 3).all(1)
    volume = np.where(periodic, np.abs(np.linalg.det(cells)), np.inf)
    n_atoms = np.array([len(frame) for frame in frames])
    return n_atoms / volume * 4.0 / 3.0 * np.pi * cutoff**3


def _first_crowd(frames: Sequence[Frame], cutoff: float) -> int:
    """The first frame with so many atoms within the cutoff that it cannot be meant, or their number."""
    crowded = np.flatnonzero(_crowding(frames, cutoff) > MOST_NEIGHBORS)
    return int(crowded[0]) if len(crowded) else len(frames)


def refuse_crowd(frame: Frame, cutoff: float):
    """Refuse a periodic cell with so many atoms within the cutoff that it cannot be meant."""
    neighbors = float(_crowding([frame], cutoff)[0])
    if neighbors > MOST_NEIGHBORS:
        raise UserError(
            f"{frame.place}: {len(frame)} atoms in {frame.volume:.3g} "
            f"Å^3 make {neighbors:.2g} neighbours within {cutoff:g} Å; is Lattice in Å?"
        )
