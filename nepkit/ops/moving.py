"""Sums over the neighbours of moving atoms and the forces on them, straight from positions.

Plain torch, the definition, and Triton. Every pair is seen from its centre alone, with the
coefficients and slopes of both ends where forces are asked for, so that nothing is kept of a pair and
nothing is scattered. Letters: N atoms, P and Q directed pairs of the lists, T types, n functions,
K basis functions, L components, D descriptor length.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from .basis import radial_functions
from .harmonics import solid_harmonics
from .pairs import parity_of
from .policy import kernels_on
from .segment import segment_sum


class Neighborhood(NamedTuple):
    """Pairs within a cutoff and a skin, by centre; those beyond their cutoff count for nothing.

    The vector of a pair is ``positions[neighbor] - positions[center] + shifts[shift]``.
    """

    start: Tensor  # (N + 1,) int64 pairs of an atom
    neighbor: Tensor  # (P,) int32
    shift: Tensor  # (P,) int32


class ClosePairs(NamedTuple):
    """The pairs of a list that are within their cutoff where the atoms are now, by centre.

    Those of an atom are at places ``start`` to ``end``. Between them and the next atom's there may be
    places without meaning, so that no atom has to wait for the counts of those before it.
    """

    start: Tensor  # (N,) int64
    end: Tensor  # (N,) int64
    neighbor: Tensor  # (Q,) int32
    vectors: Tensor  # (3, Q) Å, in the model's precision


class Moving(NamedTuple):
    """What moves, and the model as the kernels read it."""

    positions: Tensor  # (N, 3) float64 Å
    shifts: Tensor  # (S, 3) float64 Å
    types: Tensor  # (N,) int32
    radial: Neighborhood
    angular: ClosePairs
    radial_cutoff: Tensor  # (T T,) Å
    angular_cutoff: Tensor  # (T T,)
    radial_c: Tensor  # (T T, n_R, K_R)
    angular_c: Tensor  # (T T, n_A, K_A)
    height: Tensor  # (l_max + 1, L) and around (3, 2 l_max + 1, L): component_table
    around: Tensor
    n_types: int


def close_pairs(
    positions: Tensor, shifts: Tensor, types: Tensor, listed: Neighborhood, cutoff: Tensor,
    n_types: int,
) -> ClosePairs:  # fmt: skip
    """The pairs of ``listed`` within their ``cutoff`` (T T,), in the order of the list.

    With a skin of 1 Å a list of pairs within 4 Å is twice to three times as long as what is found.
    """
    if kernels_on(positions.device):
        from .triton.moving_close import launch

        return launch(positions, shifts, types, listed, cutoff, n_types)
    start = listed.start[: len(types) + 1]
    center = torch.repeat_interleave(torch.arange(len(types), device=start.device), start.diff())
    neighbor, shift = listed.neighbor[: len(center)], listed.shift[: len(center)]
    vectors = _vectors(positions, shifts, center, neighbor, shift, cutoff.dtype)
    one, other = (types.index_select(0, end) for end in (center, neighbor))
    far = vectors.norm(dim=1) >= cutoff.index_select(0, one * n_types + other)
    keep = (~far).nonzero().squeeze(1)  # not less than, which would lose NaN
    counts = torch.bincount(center.index_select(0, keep), minlength=len(types))
    end = counts.cumsum(0)
    return ClosePairs(
        end - counts, end, neighbor.index_select(0, keep), vectors.index_select(0, keep).T.contiguous()
    )  # fmt: skip


def neighbor_sums(moving: Moving, first: int, last: int) -> tuple[Tensor, Tensor]:
    """Radial sums (N', n_R) and angular ones (N', n_A, L) of the atoms first to last."""
    if kernels_on(moving.positions.device):
        from .triton.moving_sums import launch

        return launch(moving, first, last)
    near = radial_pairs(moving, first, last)
    f, _ = _functions(near, moving.radial_c)
    g = torch.einsum("pnk,pk->pn", moving.radial_c[near.pair_type], f)
    radial = segment_sum(g, None, near.start, 64)
    near = angular_pairs(moving, first, last)
    f, _ = _functions(near, moving.angular_c)
    g = torch.einsum("pnk,pk->pn", moving.angular_c[near.pair_type], f)
    y, _ = _harmonics(near, moving)
    sums = segment_sum((g[:, :, None] * y[:, None]).flatten(1), None, near.start, 8)
    return radial, sums.unflatten(1, (-1, y.shape[1]))


def neighbor_forces(
    moving: Moving, q_slope: Tensor, slope: Tensor, first: int, last: int
) -> Tensor:
    """Force (3), eV/Å, and virial (3, 3), eV, of the atoms first to last (N', 12).

    From dU/dq (N, D), whose first columns are the radial ones, and dU/ds (N, n_A, L) of all atoms.
    With p_ij = dU_i/dr_ij, F_i = sum_j p_ij - p_ji and W_i = sum_j r_ij (x) p_ji.
    """
    if kernels_on(moving.positions.device):
        from .triton.moving_forces import launch

        return launch(moving, q_slope, slope, first, last)
    near = radial_pairs(moving, first, last)
    _, rate = _functions(near, moving.radial_c)
    n_radial = moving.radial_c.shape[1]
    unit = near.vectors / near.distance[:, None]
    ends = []
    for end, kind in ((near.center, near.pair_type), (near.neighbor, near.turned_type)):
        weights = q_slope[:, :n_radial].index_select(0, end)
        pull = torch.einsum("pn,pnk,pk->p", weights, moving.radial_c[kind], rate)
        ends.append(pull[:, None] * unit)
    sums = segment_sum(force_and_virial(near.vectors, *ends), None, near.start, 64)

    near = angular_pairs(moving, first, last)
    f, rate = _functions(near, moving.angular_c)
    y, gradient = _harmonics(near, moving)
    unit, ends = near.vectors / near.distance[:, None], []
    for end, kind, sign in (
        (near.center, near.pair_type, torch.ones_like(parity_of(y))),
        (near.neighbor, near.turned_type, parity_of(y)),
    ):
        of_end, c = slope.index_select(0, end) * sign, moving.angular_c[kind]
        along = torch.einsum("pnk,pk,pnl->pl", c, f, of_end)
        outward = torch.einsum("pnk,pk,pnl->pl", c, rate, of_end)
        turned = (gradient * along[:, None]).sum(2)
        ends.append(turned + (outward * y).sum(1, keepdim=True) * unit)
    return sums + segment_sum(force_and_virial(near.vectors, *ends), None, near.start, 8)


class _Pairs(NamedTuple):
    """Pairs of a stretch of atoms; the distance of those beyond the cutoff is the cutoff."""

    start: Tensor  # (N' + 1,)
    center: Tensor
    neighbor: Tensor
    pair_type: Tensor  # of centre and neighbour
    turned_type: Tensor  # of neighbour and centre
    vectors: Tensor  # (P, 3) in the model's precision
    distance: Tensor  # (P,)
    cutoff: Tensor  # (P,)


def radial_pairs(moving: Moving, first: int, last: int) -> _Pairs:
    start = moving.radial.start[first : last + 1]
    begin, end = int(start[0]), int(start[-1])
    center = torch.repeat_interleave(
        torch.arange(first, last, device=start.device), start.diff()
    )  # fmt: skip
    neighbor, shift = moving.radial.neighbor[begin:end], moving.radial.shift[begin:end]
    vectors = _vectors(
        moving.positions, moving.shifts, center, neighbor, shift, moving.radial_cutoff.dtype
    )
    return _pairs(moving, start - begin, center, neighbor, vectors, moving.radial_cutoff)


def angular_pairs(moving: Moving, first: int, last: int) -> _Pairs:
    begin, counts = moving.angular.start[first:last], (moving.angular.end - moving.angular.start)
    counts = counts[first:last]
    owner = torch.repeat_interleave(torch.arange(last - first, device=counts.device), counts)
    start = torch.nn.functional.pad(counts.cumsum(0), (1, 0))
    place = torch.arange(len(owner), device=owner.device)
    place = place + (begin - start[:-1]).index_select(0, owner)
    neighbor = moving.angular.neighbor.index_select(0, place)
    vectors = moving.angular.vectors.index_select(1, place).T
    return _pairs(moving, start, owner + first, neighbor, vectors, moving.angular_cutoff)


def _vectors(
    positions: Tensor, shifts: Tensor, center: Tensor, neighbor: Tensor, shift: Tensor,
    dtype: torch.dtype,
) -> Tensor:  # fmt: skip
    """From centre to neighbour (P, 3), differenced in float64."""
    vectors = positions.index_select(0, neighbor) - positions.index_select(0, center)
    return (vectors + shifts.index_select(0, shift)).to(dtype)


def _pairs(
    moving: Moving,
    start: Tensor,
    center: Tensor,
    neighbor: Tensor,
    vectors: Tensor,
    cutoffs: Tensor,
) -> _Pairs:
    one, other = (moving.types.index_select(0, end) for end in (center, neighbor))
    pair_type = one * moving.n_types + other
    cutoff = cutoffs.index_select(0, pair_type)
    distance = torch.minimum(vectors.norm(dim=1), cutoff)
    return _Pairs(
        start.int(), center, neighbor, pair_type, other * moving.n_types + one,
        vectors, distance, cutoff,
    )  # fmt: skip


def _functions(near: _Pairs, coefficients: Tensor) -> tuple[Tensor, Tensor]:
    """f_k and f_k' of each pair (P, K), 0 beyond the cutoff."""
    inside = (near.distance < near.cutoff)[:, None]
    found = radial_functions(near.distance, near.cutoff, coefficients.shape[2])
    return tuple(values.masked_fill(~inside, 0.0) for values in found)


def _harmonics(near: _Pairs, moving: Moving) -> tuple[Tensor, Tensor]:
    """Y (P, L) and dY/dr (P, 3, L)."""
    length = near.vectors.norm(dim=1)
    return solid_harmonics(near.vectors, length, moving.height.shape[0] - 1)


def force_and_virial(vectors: Tensor, own: Tensor, other: Tensor) -> Tensor:
    """Of dU_i/dr_ij (P, 3) and dU_j/dr_ij (P, 3): their sum, and r_ij (x) dU_j/dr_ji."""
    virial = -vectors[:, :, None] * other[:, None]
    return torch.cat([own + other, virial.flatten(1)], dim=1)
