"""Neighbour lists with a skin for the MD kernels: pairs in rows, good for many steps."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from .jit import jit


class PairList(NamedTuple):
    """Directed pairs sorted by centre i, then by the neighbour's type: rows as in Neighbors.

    The vector of a pair is r_j - r_i + ``images[shift] @ cell``.
    """

    row_start: np.ndarray  # (N + 1,) rows of an atom
    row_type: np.ndarray  # (R,) type of a row's neighbours
    pair_start: np.ndarray  # (R + 1,) pairs of a row
    neighbor: np.ndarray  # (P,) j
    shift: np.ndarray  # (P,)


@jit
def sorted_pairs(center, neighbor, image, types, n_types, n_images):
    """The rows of half pairs (H,) with the places ``image`` of their images, both directions.

    The image of place ``n_images - 1 - s`` is the opposite of that of place s.
    """
    n_atoms, n_halves = len(types), len(center)
    by_type = np.zeros(n_types + 1, np.int64)
    by_center = np.zeros(n_atoms + 1, np.int64)
    for h in range(n_halves):
        by_type[types[neighbor[h]] + 1] += 1
        by_type[types[center[h]] + 1] += 1
        by_center[center[h] + 1] += 1
        by_center[neighbor[h] + 1] += 1
    by_type, by_center = np.cumsum(by_type), np.cumsum(by_center)
    order = np.empty(
        2 * n_halves, np.int64
    )  # h for i -> j, ~h for j -> i, by type of the neighbour
    for h in range(n_halves):
        t = types[neighbor[h]]
        order[by_type[t]] = h
        by_type[t] += 1
        t = types[center[h]]
        order[by_type[t]] = ~h
        by_type[t] += 1
    place, j = by_center[:-1].copy(), np.empty(2 * n_halves, np.int32)
    shift = np.empty(2 * n_halves, np.int32)
    for code in order:
        h = code if code >= 0 else ~code
        i = center[h] if code >= 0 else neighbor[h]
        j[place[i]] = neighbor[h] if code >= 0 else center[h]
        shift[place[i]] = image[h] if code >= 0 else n_images - 1 - image[h]
        place[i] += 1
    return rows(by_center, j, shift, types)


@jit
def rows(start, neighbor, shift, types):
    """Cut the pairs of each atom, sorted by type, into rows."""
    n_atoms, count = len(types), 0
    row_start = np.zeros(n_atoms + 1, np.int64)
    for i in range(n_atoms):
        last = -1
        for d in range(start[i], start[i + 1]):
            if types[neighbor[d]] != last:
                last = types[neighbor[d]]
                count += 1
        row_start[i + 1] = count
    row_type, pair_start = np.empty(count, np.int32), np.empty(count + 1, np.int64)
    row = 0
    for i in range(n_atoms):
        last = -1
        for d in range(start[i], start[i + 1]):
            if types[neighbor[d]] != last:
                last = types[neighbor[d]]
                row_type[row], pair_start[row] = last, d
                row += 1
    pair_start[count] = len(neighbor)
    return row_start, row_type, pair_start, neighbor, shift
