"""J v: tangent densities of rows from a change of the pairs, the adjoint of J^T.

a_R' = sum_j f_k' (v . r/|r|), a_A' = sum_j f_k (v . grad Y_l) + f_k' (v . r/|r|) Y_l, with (-1)^l
where the row is at the pair's far end.
"""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from .launch import options, padded


@triton.jit
def radial_kernel(
    change, slope, order, row_start, out, n_rows,
    K: tl.constexpr, ROWS: tl.constexpr, PLACES: tl.constexpr, KP: tl.constexpr,
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
        half = (tl.load(order + place, mask=real, other=0) // 2).to(tl.int64)
        stretch = tl.load(change + half * 4 + 3, mask=real, other=0.0)
        cell = half[:, :, None] * K + k[None, None, :]
        f = tl.load(slope + cell, mask=real[:, :, None] & (k < K)[None, None, :], other=0.0)
        total += f * stretch[:, :, None]
    here = (row < n_rows)[:, None] & (k < K)[None, :]
    tl.store(out + row[:, None] * K + k[None, :], tl.sum(total, 1), mask=here)


@triton.jit
def angular_kernel(
    change, basis, harmonics, angular, order, row_start, out,
    K: tl.constexpr, L: tl.constexpr, KP: tl.constexpr, LP: tl.constexpr,
):  # fmt: skip
    """out[row, k, l] of the row of this program."""
    row = tl.program_id(0)
    k, l = tl.arange(0, KP), tl.arange(0, LP)
    is_k, is_l = k < K, l < L
    # l of component c is floor(sqrt(c + 1)).
    odd = tl.floor(tl.sqrt((l + 1).to(tl.float32) + 0.01)).to(tl.int32) % 2
    total = tl.zeros((KP, LP), dtype=out.dtype.element_ty)
    for place in range(tl.load(row_start + row), tl.load(row_start + row + 1)):
        code = tl.load(order + place)
        q = (code // 2).to(tl.int64)
        half = tl.load(angular + q).to(tl.int64) * 4
        y = harmonics + q * (4 * L) + l
        turned = tl.load(change + half) * tl.load(y + L, mask=is_l, other=0.0)
        turned += tl.load(change + half + 1) * tl.load(y + 2 * L, mask=is_l, other=0.0)
        turned += tl.load(change + half + 2) * tl.load(y + 3 * L, mask=is_l, other=0.0)
        stretched = tl.load(change + half + 3) * tl.load(y, mask=is_l, other=0.0)
        sign = tl.where((odd == 1) & (code % 2 == 1), -1.0, 1.0).to(turned.dtype)
        f = tl.load(basis + q * (2 * K) + k, mask=is_k, other=0.0)
        slope = tl.load(basis + q * (2 * K) + K + k, mask=is_k, other=0.0)
        total += f[:, None] * (turned * sign)[None, :]
        total += slope[:, None] * (stretched * sign)[None, :]
    cell = row.to(tl.int64) * (K * L) + k[:, None] * L + l[None, :]
    tl.store(out + cell, total, mask=is_k[:, None] & is_l[None, :])


def launch(
    change: Tensor, radial_slope: Tensor, basis: Tensor, harmonics: Tensor, half: Tensor,
    radial_order: Tensor, angular_order: Tensor, radial_start: Tensor, angular_start: Tensor,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """(R, K_R) and (R, K_A, L) of ``change`` (H, 4): v and v . r/|r|; the others as in pair_forces."""
    n_rows, n_k, n_l = len(radial_start) - 1, basis.shape[2], harmonics.shape[2]
    radial = change.new_empty(n_rows, radial_slope.shape[1])
    angular = change.new_empty(n_rows, n_k, n_l)
    if n_rows:
        chosen = options("radial_tangents")
        radial_kernel[(triton.cdiv(n_rows, chosen["ROWS"]),)](
            change, radial_slope, radial_order, radial_start, radial, n_rows,
            K=radial.shape[1], KP=padded(radial.shape[1]), **chosen,
        )  # fmt: skip
        angular_kernel[(n_rows,)](
            change, basis, harmonics, half, angular_order, angular_start, angular,
            K=n_k, L=n_l, KP=padded(n_k), LP=padded(n_l), **options("angular_tangents"),
        )  # fmt: skip
    return radial, angular
