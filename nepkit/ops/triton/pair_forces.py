"""J^T: from dU/da of rows to forces on atoms and virials.

Each row gives every pair it holds its part of dU/dr_ij (r_ij of the pair, whichever end the row is
at): through radial functions sum_k G_R f_k' along r_ij, through angular ones
sum_kl G_A (f_k grad Y_l + f_k' Y_l r_ij/|r_ij|), with (-1)^l for the far end. Both parts of a pair
are then read by both of its atoms.
"""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from .launch import options, padded


@triton.jit
def radial_kernel(
    gradient, slope, order, row_start, table_place, pull, n_rows,
    PLACED: tl.constexpr, K: tl.constexpr, ROWS: tl.constexpr, PLACES: tl.constexpr,
    KP: tl.constexpr,
):  # fmt: skip
    """pull[2 h + side] = sum_k G_R[row, k] f_k'(r_h) for the pairs of ROWS rows."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    k = tl.arange(0, KP)
    here = (row < n_rows)[:, None] & (k < K)[None, :]
    g = tl.load(gradient + row[:, None] * K + k[None, :], mask=here, other=0.0)
    first = tl.load(row_start + row, mask=row < n_rows, other=0)
    last = tl.load(row_start + row + 1, mask=row < n_rows, other=0)
    for step in range(0, tl.max(last - first, 0), PLACES):
        place = first[:, None] + step + tl.arange(0, PLACES)[None, :]
        real = place < last[:, None]
        code = tl.load(order + place, mask=real, other=0)
        half = code // 2
        if PLACED:
            half = tl.load(table_place + half, mask=real, other=0)
        cell = half.to(tl.int64)[:, :, None] * K + k[None, None, :]
        f = tl.load(slope + cell, mask=real[:, :, None] & (k < K)[None, None, :], other=0.0)
        tl.store(pull + code, tl.sum(f * g[:, None, :], 2), mask=real)


@triton.jit
def angular_kernel(
    gradient, basis, harmonics, unit, angular, order, row_start, half_place, table_place, force,
    PLACED: tl.constexpr, K: tl.constexpr, L: tl.constexpr, KP: tl.constexpr, LP: tl.constexpr,
    PAIRS: tl.constexpr,
):  # fmt: skip
    """force[2 q + side] = the part of dU/dr of angular pair q that the row of this program gives."""
    row = tl.program_id(0)
    k, l = tl.arange(0, KP), tl.arange(0, LP)
    is_k, is_l = (k < K)[None, :], (l < L)[None, :]
    first, last = tl.load(row_start + row), tl.load(row_start + row + 1)
    if first < last:
        cell = row.to(tl.int64) * (K * L) + k[:, None] * L + l[None, :]
        g = tl.load(gradient + cell, mask=(k < K)[:, None] & is_l, other=0.0)[None, :, :]
        # l of component c is floor(sqrt(c + 1)).
        odd = tl.floor(tl.sqrt((l + 1).to(tl.float32) + 0.01)).to(tl.int32) % 2
        for step in range(first, last, PAIRS):
            place = step + tl.arange(0, PAIRS)
            real = place < last
            code = tl.load(order + place, mask=real, other=0)
            half = tl.load(angular + code // 2, mask=real, other=0)
            q = code // 2
            if PLACED:
                q = tl.load(table_place + q, mask=real, other=0)
                half = tl.load(half_place + half, mask=real, other=0)
            q, half = q.to(tl.int64), half.to(tl.int64)
            flip = (odd == 1)[None, :] & (code % 2 == 1)[:, None]
            sign = tl.where(flip, -1.0, 1.0).to(gradient.dtype.element_ty)
            f_at = basis + q[:, None] * (2 * K) + k[None, :]
            f = tl.load(f_at, mask=real[:, None] & is_k, other=0.0)
            slope = tl.load(f_at + K, mask=real[:, None] & is_k, other=0.0)
            along = tl.sum(g * f[:, :, None], 1) * sign
            outward = tl.sum(g * slope[:, :, None], 1) * sign
            y = harmonics + q[:, None] * (4 * L) + l[None, :]
            here = real[:, None] & is_l
            stretch = tl.sum(outward * tl.load(y, mask=here, other=0.0), 1)
            for axis in tl.static_range(3):
                turned = tl.sum(along * tl.load(y + (axis + 1) * L, mask=here, other=0.0), 1)
                value = turned + stretch * tl.load(unit + half * 3 + axis, mask=real, other=0.0)
                tl.store(force + code.to(tl.int64) * 3 + axis, value, mask=real)


@triton.jit
def _gathered(sums, sign, x, y, z, vx, vy, vz):
    """Add the force (3) and half the virial (6: xx yy zz xy yz zx) of pairs to sums of atoms."""
    return (
        sums[0] + tl.sum(sign * x, 1), sums[1] + tl.sum(sign * y, 1), sums[2] + tl.sum(sign * z, 1),
        sums[3] - 0.5 * tl.sum(vx * x, 1), sums[4] - 0.5 * tl.sum(vy * y, 1),
        sums[5] - 0.5 * tl.sum(vz * z, 1), sums[6] - 0.5 * tl.sum(vx * y, 1),
        sums[7] - 0.5 * tl.sum(vy * z, 1), sums[8] - 0.5 * tl.sum(vz * x, 1),
    )  # fmt: skip


@triton.jit
def atom_kernel(
    pull, force, unit, vectors, angular, radial_order, angular_order,
    row_start, radial_start, angular_start, half_place, out, n_atoms,
    PLACED: tl.constexpr, ATOMS: tl.constexpr, PLACES: tl.constexpr,
):  # fmt: skip
    """out[atom] = force and half the virials of all pairs of ATOMS atoms."""
    atom = tl.program_id(0) * ATOMS + tl.arange(0, ATOMS)
    real = atom < n_atoms
    row = tl.load(row_start + atom, mask=real, other=0)
    next_row = tl.load(row_start + atom + 1, mask=real, other=0)
    zero = tl.zeros((ATOMS,), dtype=unit.dtype.element_ty)
    sums = (zero, zero, zero, zero, zero, zero, zero, zero, zero)
    first = tl.load(radial_start + row, mask=real, other=0)
    last = tl.load(radial_start + next_row, mask=real, other=0)
    for step in range(0, tl.max(last - first, 0), PLACES):
        place = first[:, None] + step + tl.arange(0, PLACES)[None, :]
        here = place < last[:, None]
        code = tl.load(radial_order + place, mask=here, other=0)
        both = tl.load(pull + code, mask=here, other=0.0)
        both += tl.load(pull + (code ^ 1), mask=here, other=0.0)
        sign = tl.where(code % 2 == 1, -1.0, 1.0).to(both.dtype)
        at = code // 2
        if PLACED:
            at = tl.load(half_place + at, mask=here, other=0)
        at = at.to(tl.int64) * 3
        x = both * tl.load(unit + at, mask=here, other=0.0)
        y = both * tl.load(unit + at + 1, mask=here, other=0.0)
        z = both * tl.load(unit + at + 2, mask=here, other=0.0)
        vx = tl.load(vectors + at, mask=here, other=0.0)
        vy = tl.load(vectors + at + 1, mask=here, other=0.0)
        vz = tl.load(vectors + at + 2, mask=here, other=0.0)
        sums = _gathered(sums, sign, x, y, z, vx, vy, vz)
    first = tl.load(angular_start + row, mask=real, other=0)
    last = tl.load(angular_start + next_row, mask=real, other=0)
    for step in range(0, tl.max(last - first, 0), PLACES):
        place = first[:, None] + step + tl.arange(0, PLACES)[None, :]
        here = place < last[:, None]
        code = tl.load(angular_order + place, mask=here, other=0)
        one, two = code.to(tl.int64) * 3, (code ^ 1).to(tl.int64) * 3
        x = tl.load(force + one, mask=here, other=0.0) + tl.load(force + two, mask=here, other=0.0)
        y = tl.load(force + one + 1, mask=here, other=0.0)
        y += tl.load(force + two + 1, mask=here, other=0.0)
        z = tl.load(force + one + 2, mask=here, other=0.0)
        z += tl.load(force + two + 2, mask=here, other=0.0)
        sign = tl.where(code % 2 == 1, -1.0, 1.0).to(x.dtype)
        at = tl.load(angular + code // 2, mask=here, other=0)
        if PLACED:
            at = tl.load(half_place + at, mask=here, other=0)
        at = at.to(tl.int64) * 3
        vx = tl.load(vectors + at, mask=here, other=0.0)
        vy = tl.load(vectors + at + 1, mask=here, other=0.0)
        vz = tl.load(vectors + at + 2, mask=here, other=0.0)
        sums = _gathered(sums, sign, x, y, z, vx, vy, vz)
    at = out + atom.to(tl.int64) * 9
    for axis in tl.static_range(9):
        tl.store(at + axis, sums[axis], mask=real)


def launch(
    radial: Tensor, angular: Tensor, radial_slope: Tensor, basis: Tensor, harmonics: Tensor,
    unit: Tensor, vectors: Tensor, half: Tensor, radial_order: Tensor, angular_order: Tensor,
    row_start: Tensor, radial_start: Tensor, angular_start: Tensor,
    half_place: Tensor | None, angular_place: Tensor | None,
) -> Tensor:  # fmt: skip
    """Force (3) and half the virials (6) of each atom (N, 9), from G_R (R, K_R), G_A (R, K_A, L).

    ``radial_slope`` (H, K_R), ``basis`` (Q, 2, K_A), ``harmonics`` (Q, 4, L), ``unit`` and
    ``vectors`` (H, 3), ``half`` (Q,); orders and starts as in Batch. With places, (H,) and (Q,),
    the constants are tables of more pairs.
    """
    placed = half_place is not None
    half_place, angular_place = (half_place, angular_place) if placed else (half, half)
    n_rows, n_atoms = len(radial), len(row_start) - 1
    pull = radial.new_empty(len(radial_order))
    force = radial.new_empty(max(len(angular_order), 2), 3)
    out = radial.new_empty(n_atoms, 9)
    _, n_k, n_l = angular.shape
    chosen = options("radial_forces")
    grid = (triton.cdiv(n_rows, chosen["ROWS"]),)
    if n_rows:
        radial_kernel[grid](
            radial.contiguous(), radial_slope, radial_order, radial_start, half_place, pull, n_rows,
            PLACED=placed, K=radial.shape[1], KP=padded(radial.shape[1]), **chosen,
        )  # fmt: skip
        angular_kernel[(n_rows,)](
            angular.contiguous(), basis, harmonics, unit, half, angular_order, angular_start,
            half_place, angular_place, force, PLACED=placed, K=n_k, L=n_l, KP=padded(n_k), LP=padded(n_l), **options("angular_forces"),
        )  # fmt: skip
    if n_atoms:
        chosen = options("atom_sums")
        atom_kernel[(triton.cdiv(n_atoms, chosen["ATOMS"]),)](
            pull, force, unit, vectors, half, radial_order, angular_order,
            row_start, radial_start, angular_start, half_place, out, n_atoms, PLACED=placed, **chosen,
        )  # fmt: skip
    return out
