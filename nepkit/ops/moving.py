"""Sums over the neighbours of moving atoms and the forces on them, straight from positions.

Plain torch, the definition, and Triton. Every pair is seen from its centre alone, with the
coefficients and slopes of both ends where forces are asked for, so that nothing is scattered, and only
of the few pairs within the angular cutoff is anything kept. Letters: N atoms, P and Q directed pairs,
radial and angular, T types, n functions, K basis functions, L components, D descriptor length.
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
    functions: Tensor  # (Q, 4, n_A) g_n and g_n' of the centre, g_n and g_n' of the neighbour


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
    height: Tensor  # (l_max + 1, L), of component_table
    powers: Tensor  # (3, L), component_powers
    n_types: int


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
    start = listed.start[: len(types) + 1]
    center = torch.repeat_interleave(torch.arange(len(types), device=start.device), start.diff())
    neighbor, shift = listed.neighbor[: len(center)], listed.shift[: len(center)]
    vectors = _vectors(positions, shifts, center, neighbor, shift, cutoff.dtype)
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


def neighbor_sums(moving: Moving, first: int, last: int) -> tuple[Tensor, Tensor]:
    """Radial sums (N', n_R) and angular ones (N', n_A, L) of the atoms first to last."""
    if kernels_on(moving.positions.device):
        from .triton.moving_sums import launch

        return launch(moving, first, last)
    near = radial_pairs(moving, first, last)
    kinds = kinds_of(near, moving, moving.radial_cutoff)
    f, _ = _functions(kinds, moving.radial_c)
    g = torch.einsum("pnk,pk->pn", moving.radial_c[kinds.pair_type], f)
    radial = segment_sum(g, None, near.start, 64)
    near = angular_pairs(moving, first, last)
    y, _ = _harmonics(near.vectors, moving)
    sums = segment_sum((near.functions[:, 0, :, None] * y[:, None]).flatten(1), None, near.start, 8)
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
    kinds = kinds_of(near, moving, moving.radial_cutoff)
    _, rate = _functions(kinds, moving.radial_c)
    n_radial = moving.radial_c.shape[1]
    unit = near.vectors / kinds.distance[:, None]
    ends = []
    for end, kind in ((near.center, kinds.pair_type), (near.neighbor, kinds.turned_type)):
        weights = q_slope[:, :n_radial].index_select(0, end)
        pull = torch.einsum("pn,pnk,pk->p", weights, moving.radial_c[kind], rate)
        ends.append(pull[:, None] * unit)
    sums = segment_sum(force_and_virial(near.vectors, *ends), None, near.start, 64)

    near = angular_pairs(moving, first, last)
    y, gradient = _harmonics(near.vectors, moving)
    unit, ends = near.vectors / near.vectors.norm(dim=1)[:, None], []
    for end, sign, (g, rate) in (
        (near.center, torch.ones_like(parity_of(y)), near.functions[:, :2].unbind(1)),
        (near.neighbor, parity_of(y), near.functions[:, 2:].unbind(1)),
    ):
        of_end = slope.index_select(0, end) * sign
        along = torch.einsum("qn,qnl->ql", g, of_end)
        outward = torch.einsum("qn,qnl->ql", rate, of_end)
        turned = (gradient * along[:, None]).sum(2)
        ends.append(turned + (outward * y).sum(1, keepdim=True) * unit)
    return sums + segment_sum(force_and_virial(near.vectors, *ends), None, near.start, 8)


class Pairs(NamedTuple):
    """Pairs of a stretch of atoms."""

    start: Tensor  # (N' + 1,)
    center: Tensor
    neighbor: Tensor
    vectors: Tensor  # (P, 3) in the model's precision
    functions: Tensor | None = None  # (P, 4, n_A), as in ClosePairs


class _Kinds(NamedTuple):
    """Types and distances of pairs; the distance of those beyond the cutoff is the cutoff."""

    pair_type: Tensor  # of centre and neighbour
    turned_type: Tensor  # of neighbour and centre
    distance: Tensor  # (P,)
    cutoff: Tensor  # (P,)


def radial_pairs(moving: Moving, first: int, last: int) -> Pairs:
    """The pairs of the list."""
    start = moving.radial.start[first : last + 1]
    begin, end = int(start[0]), int(start[-1])
    center = torch.arange(first, last, device=start.device)
    center = torch.repeat_interleave(center, start.diff())
    neighbor, shift = moving.radial.neighbor[begin:end], moving.radial.shift[begin:end]
    where, dtype = (moving.positions, moving.shifts), moving.radial_cutoff.dtype
    vectors = _vectors(*where, center, neighbor, shift, dtype)
    return Pairs((start - begin).int(), center, neighbor, vectors)


def angular_pairs(moving: Moving, first: int, last: int) -> Pairs:
    """The pairs within the angular cutoff, without places that mean nothing."""
    close = moving.angular
    begin, counts = close.start[first:last], (close.end - close.start)[first:last]
    owner = torch.repeat_interleave(torch.arange(last - first, device=counts.device), counts)
    start = torch.nn.functional.pad(counts.cumsum(0), (1, 0))
    place = torch.arange(len(owner), device=owner.device)
    place = place + (begin - start[:-1]).index_select(0, owner)
    return Pairs(
        start.int(), owner + first, close.neighbor.index_select(0, place),
        close.vectors.index_select(1, place).T, close.functions.index_select(0, place),
    )  # fmt: skip


def kinds_of(near: Pairs, moving: Moving, cutoffs: Tensor) -> _Kinds:
    """What ``near`` are, with the ``cutoffs`` (T T,)."""
    one, other = (moving.types.index_select(0, end) for end in (near.center, near.neighbor))
    pair_type = one * moving.n_types + other
    cutoff = cutoffs.index_select(0, pair_type)
    distance = torch.minimum(near.vectors.norm(dim=1), cutoff)
    return _Kinds(pair_type, other * moving.n_types + one, distance, cutoff)


def _vectors(
    positions: Tensor, shifts: Tensor, center: Tensor, neighbor: Tensor, shift: Tensor,
    dtype: torch.dtype,
) -> Tensor:  # fmt: skip
    """From centre to neighbour (P, 3), differenced in float64."""
    vectors = positions.index_select(0, neighbor) - positions.index_select(0, center)
    return (vectors + shifts.index_select(0, shift)).to(dtype)


def _functions(kinds: _Kinds, coefficients: Tensor) -> tuple[Tensor, Tensor]:
    """f_k and f_k' of each pair (P, K), 0 beyond the cutoff."""
    inside = (kinds.distance < kinds.cutoff)[:, None]
    found = radial_functions(kinds.distance, kinds.cutoff, coefficients.shape[2])
    return tuple(values.masked_fill(~inside, 0.0) for values in found)


def _harmonics(vectors: Tensor, moving: Moving) -> tuple[Tensor, Tensor]:
    """Y (Q, L) and dY/dr (Q, 3, L)."""
    return solid_harmonics(vectors, vectors.norm(dim=1), moving.height.shape[0] - 1)


def force_and_virial(vectors: Tensor, own: Tensor, other: Tensor) -> Tensor:
    """Of dU_i/dr_ij (P, 3) and dU_j/dr_ij (P, 3): their sum, and r_ij (x) dU_j/dr_ji."""
    virial = -vectors[:, :, None] * other[:, None]
    return torch.cat([own + other, virial.flatten(1)], dim=1)
