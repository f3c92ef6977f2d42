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


class Moving(NamedTuple):
    """What moves, and the model as the kernels read it."""

    positions: Tensor  # (N, 3) float64 Å
    shifts: Tensor  # (S, 3) float64 Å
    types: Tensor  # (N,) int32
    radial: Neighborhood
    angular: Neighborhood
    radial_cutoff: Tensor  # (T T,) Å
    angular_cutoff: Tensor  # (T T,)
    radial_c: Tensor  # (T T, n_R, K_R)
    angular_c: Tensor  # (T T, n_A, K_A)
    height: Tensor  # (l_max + 1, L) and around (3, 2 l_max + 1, L): component_table
    around: Tensor
    n_types: int


def neighbor_sums(moving: Moving, first: int, last: int) -> tuple[Tensor, Tensor]:
    """Radial sums (N', n_R) and angular ones (N', n_A, L) of the atoms first to last."""
    if kernels_on(moving.positions.device):
        from .triton.moving_sums import launch

        return launch(moving, first, last)
    near = pairs_of(moving, moving.radial, moving.radial_cutoff, first, last)
    f, _ = _functions(near, moving.radial_c)
    g = torch.einsum("pnk,pk->pn", moving.radial_c[near.pair_type], f)
    radial = segment_sum(g, None, near.start, 64)
    near = pairs_of(moving, moving.angular, moving.angular_cutoff, first, last)
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
    near = pairs_of(moving, moving.radial, moving.radial_cutoff, first, last)
    _, rate = _functions(near, moving.radial_c)
    n_radial = moving.radial_c.shape[1]
    unit = near.vectors / near.distance[:, None]
    ends = []
    for end, kind in ((near.center, near.pair_type), (near.neighbor, near.turned_type)):
        weights = q_slope[:, :n_radial].index_select(0, end)
        pull = torch.einsum("pn,pnk,pk->p", weights, moving.radial_c[kind], rate)
        ends.append(pull[:, None] * unit)
    sums = segment_sum(force_and_virial(near.vectors, *ends), None, near.start, 64)

    near = pairs_of(moving, moving.angular, moving.angular_cutoff, first, last)
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


def pairs_of(moving: Moving, near: Neighborhood, cutoffs: Tensor, first: int, last: int) -> _Pairs:
    start = near.start[first : last + 1]
    begin, end = int(start[0]), int(start[-1])
    counts = start[1:] - start[:-1]
    center = torch.repeat_interleave(torch.arange(first, last, device=start.device), counts)
    neighbor = near.neighbor[begin:end]
    vectors = moving.positions.index_select(0, neighbor) - moving.positions.index_select(0, center)
    vectors = (vectors + moving.shifts.index_select(0, near.shift[begin:end])).to(cutoffs.dtype)
    one, other = (moving.types.index_select(0, end) for end in (center, neighbor))
    pair_type = one * moving.n_types + other
    cutoff = cutoffs.index_select(0, pair_type)
    distance = torch.minimum(vectors.norm(dim=1), cutoff)
    return _Pairs(
        (start - begin).int(), center, neighbor, pair_type, other * moving.n_types + one,
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
