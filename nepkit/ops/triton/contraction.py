"""The contraction: s[i, n, l] = sum over rows of atom i and k of c[g(row), n, k] a[row, k, l]."""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from .launch import options, padded


@triton.jit
def contraction_kernel(
    radial, angular, radial_coefficients, angular_coefficients, group, row_start, table_place,
    near_sum, angular_sum,
    PLACED: tl.constexpr, NR: tl.constexpr, KR: tl.constexpr, NA: tl.constexpr, KA: tl.constexpr, L: tl.constexpr,
    NRP: tl.constexpr, KRP: tl.constexpr, NAP: tl.constexpr, LP: tl.constexpr,
):  # fmt: skip
    """Both sums of the atom of this program; nothing is written for a row."""
    atom = tl.program_id(0)
    m, j = tl.arange(0, NRP), tl.arange(0, KRP)
    n, l = tl.arange(0, NAP), tl.arange(0, LP)
    is_j, is_n, is_l = j < KR, n < NA, l < L
    of_radial = (m < NR)[:, None] & is_j[None, :]
    near = tl.zeros((NRP, KRP), dtype=near_sum.dtype.element_ty)
    around = tl.zeros((NAP, LP), dtype=near_sum.dtype.element_ty)
    first, last = tl.load(row_start + atom), tl.load(row_start + atom + 1)
    for row in range(first.to(tl.int64), last.to(tl.int64)):
        g = tl.load(group + row).to(tl.int64)
        if g >= 0:
            cell = g * (NR * KR) + m[:, None] * KR + j[None, :]
            c = tl.load(radial_coefficients + cell, mask=of_radial, other=0.0)
            place = row
            if PLACED:
                place = tl.load(table_place + row).to(tl.int64)
            a = tl.load(radial + place * KR + j, mask=is_j, other=0.0)
            near += c * a[None, :]
            c_at = angular_coefficients + g * (NA * KA) + n * KA
            a_at = angular + place * (KA * L) + l
            for k in tl.static_range(KA):
                c = tl.load(c_at + k, mask=is_n, other=0.0)
                a = tl.load(a_at + k * L, mask=is_l, other=0.0)
                around += c[:, None] * a[None, :]
    at = atom.to(tl.int64)
    tl.store(near_sum + at * NR + m, tl.sum(near, 1), mask=m < NR)
    cell = at * (NA * L) + n[:, None] * L + l[None, :]
    tl.store(angular_sum + cell, around, mask=is_n[:, None] & is_l[None, :])


def launch(
    radial: Tensor, angular: Tensor, radial_coefficients: Tensor, angular_coefficients: Tensor,
    group: Tensor, row_start: Tensor, place: Tensor | None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """s_R (N, n_R) and s_A (N, n_A, L) from a_R (R, K_R), a_A (R, K_A, L) and c (G, n, K).

    ``group`` (R,) of each row, negative for none; ``row_start`` (N + 1,). With ``place`` (R,) the
    densities are tables of more rows.
    """
    n_atoms = len(row_start) - 1
    (_, n_r, k_r), (_, n_a, k_a) = radial_coefficients.shape, angular_coefficients.shape
    n_l = angular.shape[2]
    near, around = radial.new_empty(n_atoms, n_r), radial.new_empty(n_atoms, n_a, n_l)
    if n_atoms:
        contraction_kernel[(n_atoms,)](
            radial.contiguous(), angular.contiguous(), radial_coefficients.contiguous(),
            angular_coefficients.contiguous(), group, row_start, group if place is None else place,
            near, around,
            PLACED=place is not None, NR=n_r, KR=k_r, NA=n_a, KA=k_a, L=n_l, NRP=padded(n_r), KRP=padded(k_r),
            NAP=padded(n_a), LP=padded(n_l), **options("contraction"),
        )  # fmt: skip
    return near, around
