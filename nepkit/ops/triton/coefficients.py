"""The gradient to the coefficients, summed over tiles of rows of one pair type.

out[tile, n, k] = sum over rows and l of s_bar[i, n, l] a[row, k, l] + dU/ds[i, n, l] a'[row, k, l]:
two products of matrices whose inner index runs over the rows and l together.
"""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from .launch import options, padded


@triton.jit
def _added(
    total, left, right, center, member, inner, n_rows, stride,
    N: tl.constexpr, K: tl.constexpr, L: tl.constexpr, NP: tl.constexpr, KP: tl.constexpr,
    TILE: tl.constexpr,
):  # fmt: skip
    """total (NP, KP) and the product of ``left`` (atoms, n, l) and ``right`` (rows, k, l)."""
    n, k, l = tl.arange(0, NP), tl.arange(0, KP), inner % L
    row = tl.load(member + inner // L, mask=inner < TILE * L, other=n_rows).to(tl.int64)
    real = row < n_rows
    atom = tl.load(center + row, mask=real, other=0).to(tl.int64)
    at = atom[None, :] * stride + n[:, None] * L + l[None, :]
    s = tl.load(left + at, mask=(n < N)[:, None] & real[None, :], other=0.0)
    at = row[:, None] * (K * L) + k[None, :] * L + l[:, None]
    a = tl.load(right + at, mask=real[:, None] & (k < K)[None, :], other=0.0)
    return tl.dot(s, a, total, input_precision="ieee", out_dtype=total.dtype)


@triton.jit
def products_kernel(
    q_bar, s_bar, q_slope, slope, radial, angular, radial_tangent, angular_tangent, center, member,
    out, n_rows,
    D: tl.constexpr, NR: tl.constexpr, KR: tl.constexpr, NA: tl.constexpr, KA: tl.constexpr,
    L: tl.constexpr, NRP: tl.constexpr, KRP: tl.constexpr, NAP: tl.constexpr, KAP: tl.constexpr,
    TILE: tl.constexpr, INNER: tl.constexpr,
):  # fmt: skip
    """The radial (n_R, K_R) and then the angular (n_A, K_A) products of the tile of this program."""
    tile = tl.program_id(0)
    member += tile * TILE
    out += tile.to(tl.int64) * (NR * KR + NA * KA)
    near = tl.zeros((NRP, KRP), dtype=out.dtype.element_ty)
    around = tl.zeros((NAP, KAP), dtype=out.dtype.element_ty)
    slot = tl.arange(0, TILE)
    count = tl.sum((tl.load(member + slot) < n_rows).to(tl.int32), 0)
    near = _added(near, q_bar, radial, center, member, slot, n_rows, D, NR, KR, 1, NRP, KRP, TILE)
    near = _added(
        near, q_slope, radial_tangent, center, member, slot, n_rows, D, NR, KR, 1, NRP, KRP, TILE
    )
    # A tile fills from its first slot.
    for step in range(0, count * L, INNER):
        inner = step + tl.arange(0, INNER)
        around = _added(
            around, s_bar, angular, center, member, inner, n_rows, NA * L, NA, KA, L, NAP, KAP, TILE
        )
        around = _added(
            around, slope, angular_tangent, center, member, inner, n_rows, NA * L,
            NA, KA, L, NAP, KAP, TILE,
        )  # fmt: skip
    n, k = tl.arange(0, NRP), tl.arange(0, KRP)
    mask = (n < NR)[:, None] & (k < KR)[None, :]
    tl.store(out + n[:, None] * KR + k[None, :], near, mask=mask)
    n, k = tl.arange(0, NAP), tl.arange(0, KAP)
    mask = (n < NA)[:, None] & (k < KA)[None, :]
    tl.store(out + NR * KR + n[:, None] * KA + k[None, :], around, mask=mask)


def launch(
    q_bar: Tensor, s_bar: Tensor, q_slope: Tensor, slope: Tensor, radial: Tensor, angular: Tensor,
    radial_tangent: Tensor, angular_tangent: Tensor, center: Tensor, member: Tensor,
    n_radial: int, tile: int,
) -> Tensor:  # fmt: skip
    """(tiles, n_R K_R + n_A K_A) of q_bar and dU/dq (N, D), s_bar and dU/ds (N, n_A, L), and a and
    a' (R, K_R), (R, K_A, L).

    ``center`` (R,): atom of each row; ``member`` (tiles * tile,): rows in slots, R in empty ones.
    """
    n_rows, n_tiles = len(center), len(member) // tile
    k_r, (_, n_a, n_l), k_a = radial.shape[1], s_bar.shape, angular.shape[1]
    out = s_bar.new_empty(n_tiles, n_radial * k_r + n_a * k_a)
    block = {"NRP": n_radial, "KRP": k_r, "NAP": n_a, "KAP": k_a}
    if n_tiles:
        products_kernel[(n_tiles,)](
            *(t.contiguous() for t in (q_bar, s_bar, q_slope, slope)),
            *(t.contiguous() for t in (radial, angular, radial_tangent, angular_tangent)),
            center, member, out, n_rows,
            D=q_bar.shape[1], NR=n_radial, KR=k_r, NA=n_a, KA=k_a, L=n_l, TILE=tile,
            **{name: max(16, padded(size)) for name, size in block.items()},
            **options("coefficient_products"),
        )  # fmt: skip
    return out
