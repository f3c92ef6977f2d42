"""Pairs of moving atoms from a neighbour list, where the atoms are now: plain torch and Triton.

Letters: N atoms, P and Q directed pairs, T types, n functions, K basis functions.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from .basis import radial_functions
from .policy import kernels_on


class Neighborhood(NamedTuple):
    """Pairs within a cutoff and a skin, by centre; those beyond their cutoff count for nothing.

    The vector of a pair is ``positions[neighbor] - positions[center] + shifts[shift]``. Shifts are in
    an order that a turn of all signs reverses.
    """

    start: Tensor  # (N + 1,) int64 pairs of an atom
    neighbor: Tensor  # (P,) int32
    shift: Tensor  # (P,) int32


class ListedPairs(NamedTuple):
    """The pairs of a list where the atoms are now, by centre, those beyond their cutoff too."""

    start: Tensor  # (N + 1,) int64 pairs of an atom
    kind: Tensor  # (P,) int32 type of the centre times T plus that of the neighbour
    turned: Tensor  # (P,) int32 place of the pair as its neighbour has it
    vectors: Tensor  # (3, P) Å, in the model's precision


class ClosePairs(NamedTuple):
    """The pairs of a list that are within their cutoff where the atoms are now, by centre.

    Those of an atom are at places ``start`` to ``end``. Between them and the next atom's there may be
    places without meaning, so that no atom has to wait for the counts of those before it.
    """

    start: Tensor  # (N,) int64
    end: Tensor  # (N,) int64
    neighbor: Tensor  # (Q,) int32
    vectors: Tensor  # (3, Q) Å, in the model's precision
    functions: Tensor  # (Q, 4, n_A) g_n and g_n' of the centre, g_n and g_n' of the neighbour


def pair_kinds(listed: Neighborhood, types: Tensor, n_types: int) -> Tensor:
    """``kind`` of ListedPairs, from the types of atoms (N,), int32."""
    of_center = torch.repeat_interleave(types, listed.start.diff())
    return of_center * n_types + types.index_select(0, listed.neighbor)


def turned_places(listed: Neighborhood, n_shifts: int) -> Tensor:
    """The place in ``listed`` of every pair as its neighbour has it (P,), int32.

    A pair that rounding at the list's reach has left to one end alone has its own place: where it
    counts it is at the cutoff, and there nothing pulls.
    """
    if kernels_on(listed.start.device):
        from .triton.moving_close import turned

        return turned(listed, n_shifts)
    n_atoms, center = len(listed.start) - 1, _centers(listed.start)
    here = torch.arange(len(center), device=center.device)
    pair = center * n_atoms + listed.neighbor, listed.neighbor.long() * n_atoms + center
    key, wanted = pair[0] * n_shifts + listed.shift, (pair[1] + 1) * n_shifts - 1 - listed.shift
    key, order = key.sort()
    place = torch.searchsorted(key, wanted).clamp(max=max(len(key) - 1, 0))
    found = torch.where(key.index_select(0, place) == wanted, order.index_select(0, place), here)
    return found.int()


def listed_vectors(
    positions: Tensor, shifts: Tensor, listed: Neighborhood, n_atoms: int, dtype: torch.dtype
) -> Tensor:
    """From centre to neighbour (3, P), Å, differenced in float64."""
    if kernels_on(positions.device):
        from .triton.moving_close import vectors

        return vectors(positions, shifts, listed, n_atoms, dtype)
    center = _centers(listed.start[: n_atoms + 1])
    return _vectors(positions, shifts, center, listed, dtype).T.contiguous()


def close_pairs(
    positions: Tensor, shifts: Tensor, types: Tensor, listed: Neighborhood, cutoff: Tensor,
    coefficients: Tensor, n_types: int,
) -> ClosePairs:  # fmt: skip
    """The pairs of ``listed`` within their ``cutoff`` (T T,), in the order of the list.

    Their functions have the ``coefficients`` (T T, n_A, K_A). With a skin of 1 Å a list of pairs
    within 4 Å is twice to three times as long as what is found.
    """
    if kernels_on(positions.device):
        from .triton.moving_close import launch

        return launch(positions, shifts, types, listed, cutoff, coefficients, n_types)
    center = _centers(listed.start[: len(types) + 1])
    neighbor = listed.neighbor[: len(center)]
    vectors = _vectors(positions, shifts, center, listed, cutoff.dtype)
    one, other = (types.index_select(0, end) for end in (center, neighbor))
    kind, turned = one * n_types + other, other * n_types + one
    distance, cutoff = vectors.norm(dim=1), cutoff.index_select(0, kind)
    keep = (~(distance >= cutoff)).nonzero().squeeze(1)  # not less than, which would lose NaN
    center, neighbor, vectors, kind, turned, distance, cutoff = (
        values.index_select(0, keep)
        for values in (center, neighbor, vectors, kind, turned, distance, cutoff)
    )
    functions = torch.stack(
        [
            torch.einsum("qnk,qk->qn", coefficients[ends], values)
            for ends in (kind, turned)
            for values in radial_functions(distance, cutoff, coefficients.shape[2])
        ],
        dim=1,
    )
    counts = torch.bincount(center, minlength=len(types))
    end = counts.cumsum(0)
    return ClosePairs(end - counts, end, neighbor, vectors.T.contiguous(), functions)


def _centers(start: Tensor) -> Tensor:
    """The centre of every pair (P,), int64."""
    return torch.repeat_interleave(torch.arange(len(start) - 1, device=start.device), start.diff())


def _vectors(
    positions: Tensor, shifts: Tensor, center: Tensor, listed: Neighborhood, dtype: torch.dtype
) -> Tensor:
    """From centre to neighbour (P, 3), of the pairs with a ``center``."""
    neighbor, shift = listed.neighbor[: len(center)], listed.shift[: len(center)]
    vectors = positions.index_select(0, neighbor) - positions.index_select(0, center)
    return (vectors + shifts.index_select(0, shift)).to(dtype)
