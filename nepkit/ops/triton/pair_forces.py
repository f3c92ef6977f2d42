"""J^T: from dU/da of rows to forces on atoms and virials.

dU/dr_ij of a pair has G of the rows at both of its ends: along r_ij sum_k (G_R + G_R') f_k', and
from the angular functions sum_kl (G_A + (-1)^l G_A') (f_k grad Y_l + f_k' Y_l r_ij/|r_ij|), with the
far end primed. Then each atom sums over its pairs.
"""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from .launch import options, padded
from .sums import of_products


@triton.jit
def radial_kernel(
    gradient, slope, first_row, second_row, table_place, pull, n_halves,
    PLACED: tl.constexpr, K: tl.constexpr, KP: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """pull[h] = sum_k of G_R of both ends times f_k'(r_h)."""
    half = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    real = half < n_halves
    k = tl.arange(0, KP)[None, :]
    mask = real[:, None] & (k < K)
    one = tl.load(first_row + half, mask=real, other=0).to(tl.int64)[:, None] * K + k
    two = tl.load(second_row + half, mask=real, other=0).to(tl.int64)[:, None] * K + k
    g = tl.load(gradient + one, mask=mask, other=0.0) + tl.load(
        gradient + two, mask=mask, other=0.0
    )
    place = half
    if PLACED:
        place = tl.load(table_place + half, mask=real, other=0)
    f = tl.load(slope + place.to(tl.int64)[:, None] * K + k, mask=mask, other=0.0)
    tl.store(pull + half, of_products(g, f, 1), mask=real)


@triton.jit
def angular_kernel(
    gradient, basis, harmonics, unit, angular, first_row, second_row, half_place, table_place, force,
    PLACED: tl.constexpr, K: tl.constexpr, L: tl.constexpr, KP: tl.constexpr, LP: tl.constexpr,
):  # fmt: skip
    """force[q] = dU/dr of the angular pair of this program, through its angular functions."""
    pair = tl.program_id(0)
    k, l = tl.arange(0, KP), tl.arange(0, LP)
    is_k, is_l = k < K, l < L
    half = tl.load(angular + pair)
    cell = k[:, None] * L + l[None, :]
    mask = is_k[:, None] & is_l[None, :]
    one = tl.load(first_row + half).to(tl.int64) * (K * L)
    two = tl.load(second_row + half).to(tl.int64) * (K * L)
    # l of component c is floor(sqrt(c + 1)).
    odd = tl.floor(tl.sqrt((l + 1).to(tl.float32) + 0.01)).to(tl.int32) % 2
    parity = tl.where(odd == 1, -1.0, 1.0).to(gradient.dtype.element_ty)
    g = tl.load(gradient + one + cell, mask=mask, other=0.0)
    g += parity[None, :] * tl.load(gradient + two + cell, mask=mask, other=0.0)
    q = pair
    if PLACED:
        q = tl.load(table_place + pair)
        half = tl.load(half_place + half)
    f_at = basis + q.to(tl.int64) * (2 * K) + k
    along = of_products(g, tl.load(f_at, mask=is_k, other=0.0)[:, None], 0)
    outward = of_products(g, tl.load(f_at + K, mask=is_k, other=0.0)[:, None], 0)
    y = harmonics + q.to(tl.int64) * (4 * L) + l
    stretch = of_products(outward, tl.load(y, mask=is_l, other=0.0), 0)
    for axis in tl.static_range(3):
        turned = of_products(along, tl.load(y + (axis + 1) * L, mask=is_l, other=0.0), 0)
        value = turned + stretch * tl.load(unit + half.to(tl.int64) * 3 + axis)
        tl.store(force + pair.to(tl.int64) * 3 + axis, value)


@triton.jit
def _gathered(sums, sign, x, y, z, vx, vy, vz):
    """Add the forces (3) and the virials (6: xx yy zz xy yz zx) of pairs to sums of lanes."""
    return (
        sums[0] + sign * x, sums[1] + sign * y, sums[2] + sign * z,
        sums[3] - vx * x, sums[4] - vy * y, sums[5] - vz * z,
        sums[6] - vx * y, sums[7] - vy * z, sums[8] - vz * x,
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
    # Each lane adds up its own pairs, and lanes meet at the end.
    zero = tl.zeros((ATOMS, PLACES), dtype=unit.dtype.element_ty)
    sums = (zero, zero, zero, zero, zero, zero, zero, zero, zero)
    first = tl.load(radial_start + row, mask=real, other=0)
    last = tl.load(radial_start + next_row, mask=real, other=0)
    for step in range(0, tl.max(last - first, 0), PLACES):
        place = first[:, None] + step + tl.arange(0, PLACES)[None, :]
        here = place < last[:, None]
        code = tl.load(radial_order + place, mask=here, other=0)
        sign = tl.where(code % 2 == 1, -1.0, 1.0).to(unit.dtype.element_ty)
        at = code // 2
        both = tl.load(pull + at, mask=here, other=0.0)
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
        q = code // 2
        x = tl.load(force + q.to(tl.int64) * 3, mask=here, other=0.0)
        y = tl.load(force + q.to(tl.int64) * 3 + 1, mask=here, other=0.0)
        z = tl.load(force + q.to(tl.int64) * 3 + 2, mask=here, other=0.0)
        sign = tl.where(code % 2 == 1, -1.0, 1.0).to(x.dtype)
        at = tl.load(angular + q, mask=here, other=0)
        if PLACED:
            at = tl.load(half_place + at, mask=here, other=0)
        at = at.to(tl.int64) * 3
        vx = tl.load(vectors + at, mask=here, other=0.0)
        vy = tl.load(vectors + at + 1, mask=here, other=0.0)
        vz = tl.load(vectors + at + 2, mask=here, other=0.0)
        sums = _gathered(sums, sign, x, y, z, vx, vy, vz)
    at = out + atom.to(tl.int64) * 9
    for axis in tl.static_range(9):
        share = 1.0 if axis < 3 else 0.5  # half a virial: each end has it
        tl.store(at + axis, share * tl.sum(sums[axis], 1), mask=real)


def launch(
    radial: Tensor, angular: Tensor, radial_slope: Tensor, basis: Tensor, harmonics: Tensor,
    unit: Tensor, vectors: Tensor, half: Tensor, first_row: Tensor, second_row: Tensor,
    radial_order: Tensor, angular_order: Tensor,
    row_start: Tensor, radial_start: Tensor, angular_start: Tensor,
    half_place: Tensor | None, angular_place: Tensor | None,
) -> Tensor:  # fmt: skip
    """Force (3) and half the virials (6) of each atom (N, 9), from G_R (R, K_R), G_A (R, K_A, L).

    ``radial_slope`` (H, K_R), ``basis`` (Q, 2, K_A), ``harmonics`` (Q, 4, L), ``unit`` and
    ``vectors`` (H, 3), ``half`` (Q,), rows (H,); orders and starts as in Batch. With places, (H,)
    and (Q,), the constants are tables of more pairs.
    """
    placed = half_place is not None
    half_place, angular_place = (half_place, angular_place) if placed else (half, half)
    n_halves, n_angular, n_atoms = len(first_row), len(half), len(row_start) - 1
    pull, force = radial.new_empty(n_halves), radial.new_empty(n_angular, 3)
    out = radial.new_empty(n_atoms, 9)
    _, n_k, n_l = angular.shape
    if n_halves:
        chosen = options("radial_forces")
        radial_kernel[(triton.cdiv(n_halves, chosen["BLOCK"]),)](
            radial.contiguous(), radial_slope, first_row, second_row, half_place, pull, n_halves,
            PLACED=placed, K=radial.shape[1], KP=padded(radial.shape[1]), **chosen,
        )  # fmt: skip
    if n_angular:
        angular_kernel[(n_angular,)](
            angular.contiguous(), basis, harmonics, unit, half, first_row, second_row,
            half_place, angular_place, force,
            PLACED=placed, K=n_k, L=n_l, KP=padded(n_k), LP=padded(n_l),
            **options("angular_forces"),
        )  # fmt: skip
    if n_atoms:
        chosen = options("atom_sums")
        atom_kernel[(triton.cdiv(n_atoms, chosen["ATOMS"]),)](
            pull, force, unit, vectors, half, radial_order, angular_order,
            row_start, radial_start, angular_start, half_place, out, n_atoms,
            PLACED=placed, **chosen,
        )  # fmt: skip
    return out
