"""Sums over the neighbours of moving atoms and the forces on them, straight from positions.

Plain torch, the definition, and Triton. Forces on an atom are summed over its own pairs, so that
nothing is scattered. What the other end of a pair has to say of it is one number of radial functions,
left by that end for both, and many of angular ones, found again. Letters: N atoms, P and Q directed
pairs, radial and angular, T types, n functions, K basis functions, L components, D descriptor length.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from .basis import radial_functions
from .harmonics import solid_harmonics
from .listed import ClosePairs, ListedPairs
from .pairs import parity_of
from .policy import kernels_on
from .segment import segment_sum


class Moving(NamedTuple):
    """What moves, and the model as the kernels read it."""

    types: Tensor  # (N,) int32
    radial: ListedPairs
    angular: ClosePairs
    radial_cutoff: Tensor  # (T T,) Å
    angular_cutoff: Tensor  # (T T,)
    radial_c: Tensor  # (T T, n_R, K_R)
    height: Tensor  # (l_max + 1, L), of component_table
    powers: Tensor  # (3, L), component_powers
    n_types: int


def neighbor_sums(moving: Moving, first: int, last: int) -> tuple[Tensor, Tensor]:
    """Radial sums (N', n_R) and angular ones (N', n_A, L) of the atoms first to last."""
    if kernels_on(moving.types.device):
        from .triton.moving_sums import launch

        return launch(moving, first, last)
    near = radial_pairs(moving, first, last)
    f, _ = _functions(*distances(near, moving.radial_cutoff), moving.radial_c.shape[2])
    g = torch.einsum("pnk,pk->pn", moving.radial_c[near.kind], f)
    radial = segment_sum(g, None, near.start, 64)
    near = angular_pairs(moving, first, last)
    y, _ = _harmonics(near.vectors, moving)
    sums = segment_sum((near.functions[:, 0, :, None] * y[:, None]).flatten(1), None, near.start, 8)
    return radial, sums.unflatten(1, (-1, y.shape[1]))


def radial_pulls(moving: Moving, q_slope: Tensor) -> Tensor:
    """(dU_i/dr_ij) / r_ij of every radial pair (P,), eV/Å^2, through the radial functions.

    From dU/dq (N, D), whose first columns are the radial ones.
    """
    if kernels_on(moving.types.device):
        from .triton.moving_pulls import launch

        return launch(moving, q_slope)
    near = radial_pairs(moving, 0, len(moving.types))
    _, n, n_k = moving.radial_c.shape
    distance, cutoff = distances(near, moving.radial_cutoff)
    _, rate = _functions(distance, cutoff, n_k)
    weights = q_slope[:, :n].index_select(0, near.center)
    return torch.einsum("pn,pnk,pk->p", weights, moving.radial_c[near.kind], rate) / distance


def neighbor_forces(moving: Moving, pulls: Tensor, slope: Tensor, first: int, last: int) -> Tensor:
    """Force (3), eV/Å, and virial (3, 3), eV, of the atoms first to last (N', 12).

    From ``radial_pulls`` and dU/ds (N, n_A, L) of all atoms.
    With p_ij = dU_i/dr_ij, F_i = sum_j p_ij - p_ji and W_i = sum_j r_ij (x) p_ji.
    """
    if kernels_on(moving.types.device):
        from .triton.moving_forces import launch

        return launch(moving, pulls, slope, first, last)
    near = radial_pairs(moving, first, last)
    begin, end = (int(place) for place in moving.radial.start[[first, last]])
    ends = [
        pull[:, None] * near.vectors
        for pull in (pulls[begin:end], pulls.index_select(0, moving.radial.turned[begin:end]))
    ]
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
    kind: Tensor  # as in ListedPairs
    vectors: Tensor  # (P, 3) in the model's precision
    neighbor: Tensor | None = None
    functions: Tensor | None = None  # (P, 4, n_A), as in ClosePairs


def radial_pairs(moving: Moving, first: int, last: int) -> Pairs:
    """The pairs of the list."""
    start = moving.radial.start[first : last + 1]
    begin, end = int(start[0]), int(start[-1])
    center = torch.arange(first, last, device=start.device)
    center = torch.repeat_interleave(center, start.diff())
    kind, vectors = moving.radial.kind[begin:end], moving.radial.vectors[:, begin:end].T
    return Pairs((start - begin).int(), center, kind, vectors)


def angular_pairs(moving: Moving, first: int, last: int) -> Pairs:
    """The pairs within the angular cutoff, without places that mean nothing."""
    close = moving.angular
    begin, counts = close.start[first:last], (close.end - close.start)[first:last]
    owner = torch.repeat_interleave(torch.arange(last - first, device=counts.device), counts)
    start = torch.nn.functional.pad(counts.cumsum(0), (1, 0))
    place = torch.arange(len(owner), device=owner.device)
    place = place + (begin - start[:-1]).index_select(0, owner)
    center, neighbor = owner + first, close.neighbor.index_select(0, place)
    one, other = (moving.types.index_select(0, end) for end in (center, neighbor))
    return Pairs(
        start.int(), center, one * moving.n_types + other,
        close.vectors.index_select(1, place).T, neighbor, close.functions.index_select(0, place),
    )  # fmt: skip


def distances(near: Pairs, cutoffs: Tensor) -> tuple[Tensor, Tensor]:
    """Distances (P,) and cutoffs (P,), of ``cutoffs`` (T T,); beyond the cutoff the distance is that."""
    cutoff = cutoffs.index_select(0, near.kind)
    return torch.minimum(near.vectors.norm(dim=1), cutoff), cutoff


def _functions(distance: Tensor, cutoff: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """f_k and f_k' of each pair (P, K), 0 beyond the cutoff."""
    inside = (distance < cutoff)[:, None]
    found = radial_functions(distance, cutoff, count)
    return tuple(values.masked_fill(~inside, 0.0) for values in found)


def _harmonics(vectors: Tensor, moving: Moving) -> tuple[Tensor, Tensor]:
    """Y (Q, L) and dY/dr (Q, 3, L)."""
    return solid_harmonics(vectors, vectors.norm(dim=1), moving.height.shape[0] - 1)


def force_and_virial(vectors: Tensor, own: Tensor, other: Tensor) -> Tensor:
    """Of dU_i/dr_ij (P, 3) and dU_j/dr_ij (P, 3): their sum, and r_ij (x) dU_j/dr_ji."""
    virial = -vectors[:, :, None] * other[:, None]
    return torch.cat([own + other, virial.flatten(1)], dim=1)
