"""Neighbour lists by sorting into cells, in plain torch: for GPUs of any make, without atomics.

Atoms and those of their periodic images that lie near the cell are points. Points are sorted by the
cube that they lie in; cubes that follow each other along z have consecutive keys, so that the
neighbours of an atom are in nine stretches of the sorted points.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

CANDIDATES_AT_ONCE = 1 << 24  # pairs whose distance is looked at together, some 2 GB
POINTS_AT_ONCE = 1 << 24  # atoms times images


class Pairs(NamedTuple):
    """Directed pairs sorted by centre i; their vector is r_j - r_i + ``images[shift] @ cell``."""

    center: Tensor  # (P,) int64
    neighbor: Tensor  # (P,) int64
    shift: Tensor  # (P,) int64
    square: Tensor  # (P,) squared distance, Å^2


def heights(cell: np.ndarray) -> np.ndarray:
    """Distance of opposite faces (3,) of a cell with three vectors."""
    return 1.0 / np.linalg.norm(np.linalg.inv(cell), axis=0)


def all_images(cell: np.ndarray, pbc: np.ndarray, reach: float) -> np.ndarray:
    """The images (S, 3) of a cell with three vectors that may hold neighbours of atoms in it."""
    most = np.where(pbc, np.ceil(reach / heights(cell)), 0).astype(int)
    grid = np.stack(np.meshgrid(*(np.arange(-m, m + 1) for m in most), indexing="ij"), -1)
    return grid.reshape(-1, 3)


def near_pairs(
    positions: Tensor, cell: np.ndarray, pbc: np.ndarray, images: np.ndarray, reach: float
) -> Iterator[Pairs]:
    """All pairs within ``reach`` Å, a stretch of centres at a time.

    ``positions`` (N, 3) float64 lie in the cell along periodic directions, which are the ``pbc`` of
    ``cell`` (3, 3); ``images`` (S, 3) are those of ``all_images``.
    """
    points, atom, image = _points(positions, cell, pbc, images, reach)
    low = points.min(0).values
    cube = ((points - low) / reach).floor().long() + 1
    _, n_y, n_z = (int(n) for n in (cube.max(0).values + 2).tolist())
    key, order = ((cube[:, 0] * n_y + cube[:, 1]) * n_z + cube[:, 2]).sort()
    points, atom, image = (values.index_select(0, order) for values in (points, atom, image))
    home = ((positions - low) / reach).floor().long() + 1
    beside = torch.tensor([-1, 0, 1], device=positions.device)
    columns = (home[:, :1] + beside)[:, :, None] * n_y + (home[:, 1:2] + beside)[:, None]
    first = columns.flatten(1) * n_z + home[:, 2:] - 1  # (N, 9)
    start = torch.searchsorted(key, first.contiguous())
    count = torch.searchsorted(key, first + 3) - start
    own = len(images) // 2
    for begin, end in _stretches(count.sum(1)):
        counts = count[begin:end].flatten()
        before = counts.cumsum(0) - counts
        owner = torch.repeat_interleave(counts)
        skipped = start[begin:end].flatten() - before
        place = torch.arange(len(owner), device=owner.device) + skipped.index_select(0, owner)
        center = owner // 9 + begin
        vectors = points.index_select(0, place) - positions.index_select(0, center)
        square = vectors.square().sum(1)
        neighbor, shift = atom.index_select(0, place), image.index_select(0, place)
        keep = (square < reach**2) & ((neighbor != center) | (shift != own))
        keep = keep.nonzero().squeeze(1)
        yield Pairs(*(v.index_select(0, keep) for v in (center, neighbor, shift, square)))


def _points(positions: Tensor, cell: np.ndarray, pbc: np.ndarray, images: np.ndarray, reach: float):
    """Atoms and their images near the cell (M, 3), which atom, and which image each is."""
    device, n_atoms = positions.device, len(positions)
    inverse = np.linalg.inv(cell)
    margin = np.where(pbc, reach * np.linalg.norm(inverse, axis=0), np.inf)
    fractions = positions @ torch.as_tensor(inverse, device=device)
    margin, shifts = (torch.as_tensor(v, device=device) for v in (margin, images.astype(float)))
    vectors, at_once = shifts @ torch.as_tensor(cell, device=device), POINTS_AT_ONCE // n_atoms + 1
    found = []
    for begin in range(0, len(images), at_once):
        placed = fractions + shifts[begin : begin + at_once, None]
        near = ((placed >= -margin) & (placed <= 1.0 + margin)).all(2)
        image, atom = near.nonzero().unbind(1)
        image = image + begin
        points = positions.index_select(0, atom) + vectors.index_select(0, image)
        found.append((points, atom, image))
    return tuple(torch.cat(parts) for parts in zip(*found))


def _stretches(work: Tensor) -> Iterator[tuple[int, int]]:
    """Ranges of atoms with at most CANDIDATES_AT_ONCE of ``work`` (N,) together, or one atom."""
    total, begin, n_atoms = work.cumsum(0).cpu().numpy(), 0, len(work)
    while begin < n_atoms:
        done = total[begin - 1] if begin else 0
        end = int(np.searchsorted(total, done + CANDIDATES_AT_ONCE, side="right"))
        end = min(max(end, begin + 1), n_atoms)
        yield begin, end
        begin = end
