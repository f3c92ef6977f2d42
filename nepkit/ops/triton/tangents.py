"""J v: tangent densities of rows from a change of the pairs, the adjoint of J^T.

a_R' = sum_j f_k' (v . r/|r|), a_A' = sum_j f_k (v . grad Y_l) + f_k' (v . r/|r|) Y_l, with (-1)^l
where the row is at the pair's far end.
"""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from .launch import of_width, options, padded

# Angular pairs of a row, on average, from which rows are long.
LONG = 6


@triton.jit
def radial_kernel(
    change, slope, order, row_start, table_place, out, n_rows,
    PLACED: tl.constexpr, K: tl.constexpr, ROWS: tl.constexpr, PLACES: tl.constexpr, KP: tl.constexpr,
):  # fmt: skip
    """out[row, k] = sum over the pairs of ROWS rows of f_k' times the stretch, change[h, 3]."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    k = tl.arange(0, KP)
    first = tl.load(row_start + row, mask=row < n_rows, other=0)
    last = tl.load(row_start + row + 1, mask=row < n_rows, other=0)
    total = tl.zeros((ROWS, PLACES, KP), dtype=out.dtype.element_ty)
    for step in range(0, tl.max(last - first, 0), PLACES):
        place = first[:, None] + step + tl.arange(0, PLACES)[None, :]
        real = place < last[:, None]
        half = tl.load(order + place, mask=real, other=0) // 2
        stretch = tl.load(change + half.to(tl.int64) * 4 + 3, mask=real, other=0.0)
        if PLACED:
            half = tl.load(table_place + half, mask=real, other=0)
        cell = half.to(tl.int64)[:, :, None] * K + k[None, None, :]
        f = tl.load(slope + cell, mask=real[:, :, None] & (k < K)[None, None, :], other=0.0)
        total += f * stretch[:, :, None]
    here = (row < n_rows)[:, None] & (k < K)[None, :]
    tl.store(out + row[:, None] * K + k[None, :], tl.sum(total, 1), mask=here)


@triton.jit
def angular_kernel(
    change, basis, harmonics, angular, order, row_start, table_place, out,
    PLACED: tl.constexpr, K: tl.constexpr, L: tl.constexpr, KP: tl.constexpr, LP: tl.constexpr,
    PAIRS: tl.constexpr,
):  # fmt: skip
    """out[row, k, l] of the row of this program."""
    row = tl.program_id(0)
    k, l = tl.arange(0, KP), tl.arange(0, LP)
    is_k, is_l = (k < K)[None, :], (l < L)[None, :]
    # l of component c is floor(sqrt(c + 1)).
    odd = tl.floor(tl.sqrt((l + 1).to(tl.float32) + 0.01)).to(tl.int32) % 2
    total = tl.zeros((PAIRS, KP, LP), dtype=out.dtype.element_ty)
    last = tl.load(row_start + row + 1)
    for step in range(tl.load(row_start + row), last, PAIRS):
        place = step + tl.arange(0, PAIRS)
        real = place < last
        code = tl.load(order + place, mask=real, other=0)
        q = code // 2
        v = change + tl.load(angular + q, mask=real, other=0).to(tl.int64) * 4
        if PLACED:
            q = tl.load(table_place + q, mask=real, other=0)
        q = q.to(tl.int64)
        y = harmonics + q[:, None] * (4 * L) + l[None, :]
        here = real[:, None] & is_l
        turned = tl.zeros((PAIRS, LP), dtype=out.dtype.element_ty)
        for axis in tl.static_range(3):
            gradient = tl.load(y + (axis + 1) * L, mask=here, other=0.0)
            turned += tl.load(v + axis, mask=real, other=0.0)[:, None] * gradient
        stretch = tl.load(v + 3, mask=real, other=0.0)
        stretched = stretch[:, None] * tl.load(y, mask=here, other=0.0)
        flip = (odd == 1)[None, :] & (code % 2 == 1)[:, None]
        sign = tl.where(flip, -1.0, 1.0).to(turned.dtype)
        f_at = basis + q[:, None] * (2 * K) + k[None, :]
        f = tl.load(f_at, mask=real[:, None] & is_k, other=0.0)
        slope = tl.load(f_at + K, mask=real[:, None] & is_k, other=0.0)
        total += f[:, :, None] * (turned * sign)[:, None, :]
        total += slope[:, :, None] * (stretched * sign)[:, None, :]
    cell = row.to(tl.int64) * (K * L) + k[:, None] * L + l[None, :]
    tl.store(out + cell, tl.sum(total, 0), mask=(k < K)[:, None] & is_l)


def launch(
    change: Tensor, radial_slope: Tensor, basis: Tensor, harmonics: Tensor, half: Tensor,
    radial_order: Tensor, angular_order: Tensor, radial_start: Tensor, angular_start: Tensor,
    half_place: Tensor | None, angular_place: Tensor | None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """(R, K_R) and (R, K_A, L) of ``change`` (H, 4): v and v . r/|r|; the others as in pair_forces."""
    placed = half_place is not None
    half_place, angular_place = (half_place, angular_place) if placed else (half, half)
    n_rows, n_k, n_l = len(radial_start) - 1, basis.shape[2], harmonics.shape[2]
    radial = change.new_empty(n_rows, radial_slope.shape[1])
    angular = change.new_empty(n_rows, n_k, n_l)
    if n_rows:
        chosen = options("radial_tangents")
        radial_kernel[(triton.cdiv(n_rows, chosen["ROWS"]),)](
            change, radial_slope, radial_order, radial_start, half_place, radial, n_rows,
            PLACED=placed, K=radial.shape[1], KP=padded(radial.shape[1]), **chosen,
        )  # fmt: skip
        # Rows of many pairs take several at a time; most hold two or three.
        long = len(angular_order) > LONG * n_rows
        kernel = of_width("long_angular_tangents", padded(n_l), angular.element_size())
        chosen = options(kernel if long else "angular_tangents")
        angular_kernel[(n_rows,)](
            change, basis, harmonics, half, angular_order, angular_start, angular_place, angular,
            PLACED=placed, K=n_k, L=n_l, KP=padded(n_k), LP=padded(n_l), **chosen,
        )  # fmt: skip
    return radial, angular
