"""The transpose of the contraction: G[row, k, l] = sum over n of c[g(row), n, k] dU/ds[i, n, l]."""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from .launch import options, padded
from .sums import of_products


@triton.jit
def expansion_kernel(
    q_slope, slope, radial_coefficients, angular_coefficients, group, center, radial, angular,
    D: tl.constexpr, NR: tl.constexpr, KR: tl.constexpr, NA: tl.constexpr, KA: tl.constexpr,
    L: tl.constexpr, NRP: tl.constexpr, KRP: tl.constexpr, KAP: tl.constexpr, LP: tl.constexpr,
):  # fmt: skip
    """G_R (K_R) and G_A (K_A, L) of the row of this program."""
    row = tl.program_id(0)
    g, atom = tl.load(group + row).to(tl.int64), tl.load(center + row).to(tl.int64)
    at = row.to(tl.int64)
    m, j = tl.arange(0, NRP), tl.arange(0, KRP)
    k, l = tl.arange(0, KAP), tl.arange(0, LP)
    is_m, is_j, is_k, is_l = m < NR, j < KR, k < KA, l < L
    near = tl.zeros((KRP,), dtype=radial.dtype.element_ty)
    around = tl.zeros((KAP, LP), dtype=angular.dtype.element_ty)
    if g >= 0:
        cell = g * (NR * KR) + m[:, None] * KR + j[None, :]
        c = tl.load(radial_coefficients + cell, mask=is_m[:, None] & is_j[None, :], other=0.0)
        near += of_products(c, tl.load(q_slope + atom * D + m, mask=is_m, other=0.0)[:, None], 0)
        for n in tl.static_range(NA):
            cell = g * (NA * KA) + n * KA + k
            c = tl.load(angular_coefficients + cell, mask=is_k, other=0.0)
            s = tl.load(slope + atom * (NA * L) + n * L + l, mask=is_l, other=0.0)
            around += c[:, None] * s[None, :]
    tl.store(radial + at * KR + j, near, mask=is_j)
    cell = at * (KA * L) + k[:, None] * L + l[None, :]
    tl.store(angular + cell, around, mask=is_k[:, None] & is_l[None, :])


def launch(
    q_slope: Tensor, slope: Tensor, radial_coefficients: Tensor, angular_coefficients: Tensor,
    group: Tensor, center: Tensor,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """G_R (R, K_R) and G_A (R, K_A, L) from dU/dq (N, D), dU/ds_A (N, n_A, L) and c (G, n, K).

    ``group`` (R,) of each row, negative for none, and its atom, ``center`` (R,).
    """
    n_rows, n_l = len(center), slope.shape[2]
    (_, n_r, k_r), (_, n_a, k_a) = radial_coefficients.shape, angular_coefficients.shape
    radial, angular = slope.new_empty(n_rows, k_r), slope.new_empty(n_rows, k_a, n_l)
    if n_rows:
        expansion_kernel[(n_rows,)](
            q_slope.contiguous(), slope.contiguous(), radial_coefficients.contiguous(),
            angular_coefficients.contiguous(), group, center, radial, angular,
            D=q_slope.shape[1], NR=n_r, KR=k_r, NA=n_a, KA=k_a, L=n_l, NRP=padded(n_r),
            KRP=padded(k_r), KAP=padded(k_a), LP=padded(n_l), **options("expansion"),
        )  # fmt: skip
    return radial, angular
