"""Frames with their pairs as arrays in memory: what is computed, stored and read at a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import NamedTuple

import numpy as np
import torch

from ..config import ModelSettings
from ..units import COVALENT_RADII
from .frame import Frame
from .neighbors import Neighbors, find_neighbors
from .ragged import end_to_end


class Array(NamedTuple):
    """An array of members, whose last record in a data set is a ghost."""

    kind: int  # of the members: 0 atoms, 1 rows, 2 pairs, 3 angular pairs
    shape: tuple[int, ...]  # -1 stands for the members
    dtype: torch.dtype

    @property
    def axis(self) -> int:
        """The axis that counts members."""
        return self.shape.index(-1)

    def sized(self, size: int) -> tuple[int, ...]:
        """The shape of ``size`` members."""
        return tuple(size if n < 0 else n for n in self.shape)


ARRAYS = {
    "types": Array(0, (-1,), torch.int32),
    "row_first": Array(0, (-1,), torch.int32),
    "row_index": Array(1, (4, -1), torch.int32),
    "vectors": Array(2, (-1, 3), torch.float64),
    "pair_index": Array(2, (6, -1), torch.int32),
    "angular_index": Array(3, (3, -1), torch.int32),
}


@dataclass(frozen=True, eq=False, slots=True)
class Block:
    """Pairs and rows of B frames, one array for all frames; indices count within their frame.

    The members of each kind lie side by side, frame after frame; see Neighbors for their order.
    """

    counts: np.ndarray  # (B, 4) int64: atoms, rows, pairs and angular pairs of each frame
    types: np.ndarray  # (A,) int32
    row_first: np.ndarray  # (A,) int32, rows of the frame before those of the atom
    # (4, R) int32: centre, centre type * T + neighbour type, directed radial and angular pairs of
    # the frame before those of the row
    row_index: np.ndarray
    vectors: np.ndarray  # (H, 3) float64, Å
    # (6, H) int32: centre, neighbour, row of either direction, and what stands at the places 2 h
    # and 2 h + 1 in the order of directed pairs
    pair_index: np.ndarray
    angular_index: np.ndarray  # (3, Q) int32: pair, and the same two of angular pairs
    largest: np.ndarray  # (B, 2) int32, radial and angular neighbours of the atom with most
    # The closest atoms by their covalent radii: distance over the sum of radii (inf without a
    # pair), Å, and which atoms.
    contact: np.ndarray  # (B,)
    contact_distance: np.ndarray  # (B,)
    contact_atoms: np.ndarray  # (B, 2) int32

    @classmethod
    def joined(cls, blocks: Sequence[Block]) -> Block:
        """The frames of ``blocks``, one after the other."""
        if len(blocks) == 1:
            return blocks[0]
        named = {}
        for field in fields(cls):
            axis = ARRAYS[field.name].axis if field.name in ARRAYS else 0
            named[field.name] = np.concatenate([getattr(b, field.name) for b in blocks], axis)
        return cls(**named)

    def take(self, frames: np.ndarray) -> Block:
        """The block of ``frames`` (n,), in this order."""
        counts = self.counts[frames]
        first = (np.cumsum(self.counts, axis=0) - self.counts)[frames]
        chosen = [end_to_end(first[:, kind], counts[:, kind]) for kind in range(4)]
        named = {}
        for field in fields(self):
            values = getattr(self, field.name)
            array = ARRAYS.get(field.name)
            index = frames if array is None else chosen[array.kind]
            named[field.name] = values.take(index, axis=array.axis if array else 0)
        return Block(**named)


def find_block(
    frames: Sequence[Frame], types: Sequence[np.ndarray], settings: ModelSettings
) -> Block:
    """Pairs and rows of ``frames``; raises ``UserError`` as half_pairs."""
    found = find_neighbors(frames, types, settings)
    n_types, n_frames = len(settings.elements), len(frames)
    n_atoms = np.array([len(frame) for frame in frames], np.int64)
    atom_frame = np.repeat(np.arange(n_frames), n_atoms)
    row_frame, half_frame = atom_frame[found.row_center], atom_frame[found.center]
    angular_frame = half_frame[found.angular]
    counts = np.stack(
        [n_atoms, *(np.bincount(of, minlength=n_frames)
                    for of in (row_frame, half_frame, angular_frame))], axis=1,
    )  # fmt: skip
    atom0, row0, half0, angular0 = (np.cumsum(counts, axis=0) - counts).T.astype(np.int32)
    of_atoms = np.concatenate([np.empty(0, np.int32), *types])
    rows_before = _before(np.bincount(found.row_center, minlength=len(of_atoms)))
    pair_type = of_atoms[found.row_center] * n_types + found.row_type
    halves = [
        found.center - atom0[half_frame], found.neighbor - atom0[half_frame],
        found.first_row - row0[half_frame], found.second_row - row0[half_frame],
        *(found.radial_order() - 2 * half0[half_frame]),
    ]  # fmt: skip
    rows = [
        found.row_center - atom0[row_frame], pair_type,
        _before(found.row_radial) - 2 * half0[row_frame],
        _before(found.row_angular) - 2 * angular0[row_frame],
    ]  # fmt: skip
    # The directed pairs count angular pairs by their own numbers.
    angulars = [
        found.angular - half0[angular_frame],
        *(found.angular_order() - 2 * angular0[angular_frame]),
    ]
    return Block(
        counts, of_atoms, rows_before - row0[atom_frame], np.stack(rows), found.vectors,
        np.stack(halves), np.stack(angulars), _largest(found, atom_frame, n_frames),
        *_contacts(found, np.concatenate([f.numbers for f in frames]), half_frame, counts, atom0),
    )  # fmt: skip


def _largest(found: Neighbors, atom_frame: np.ndarray, n_frames: int) -> np.ndarray:
    """Neighbours of the atom of each frame that has most (B, 2): radial, angular."""
    largest = np.zeros((n_frames, 2), np.int32)
    for column, counts in enumerate((found.row_radial, found.row_angular)):
        of_atoms = np.bincount(found.row_center, weights=counts, minlength=len(atom_frame))
        np.maximum.at(largest[:, column], atom_frame, of_atoms.astype(np.int32))
    return largest


def contact_ratios(
    numbers: np.ndarray, center: np.ndarray, neighbor: np.ndarray, distance: np.ndarray
) -> np.ndarray:
    """Distances (P,) as parts of the sums of covalent radii; ``numbers`` (N,) atomic numbers."""
    radii = np.array(COVALENT_RADII)[numbers - 1]
    return distance / (radii[center] + radii[neighbor])


def _contacts(found: Neighbors, numbers, half_frame, counts, atom0):
    """The closest pair of each frame: ratio, distance and atoms, the first of equal ones."""
    n_frames = len(counts)
    best, apart = np.full(n_frames, np.inf), np.full(n_frames, np.inf)
    atoms = np.zeros((n_frames, 2), np.int32)
    distance = np.linalg.norm(found.vectors, axis=1)
    ratio = contact_ratios(numbers, found.center, found.neighbor, distance)
    some = np.flatnonzero(counts[:, 2])
    if len(some):
        starts = (np.cumsum(counts[:, 2]) - counts[:, 2])[some]
        best[some] = np.minimum.reduceat(ratio, starts)
        closest = np.flatnonzero(ratio == best[half_frame])[::-1]  # the first is written last
        frames = half_frame[closest]
        apart[frames] = distance[closest]
        ends = np.stack([found.center[closest], found.neighbor[closest]], axis=1)
        atoms[frames] = ends - atom0[frames, None]
    return best, apart, atoms


def _before(counts: np.ndarray) -> np.ndarray:
    """How many there are before each, from how many each has."""
    return (np.cumsum(counts) - counts).astype(np.int32)
