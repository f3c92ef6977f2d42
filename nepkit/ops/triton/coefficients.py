"""The gradient to the coefficients, summed over tiles of rows of one pair type.

out[tile, n, k] = sum over rows and l of s_bar[i, n, l] a[row, k, l] + dU/ds[i, n, l] a'[row, k, l].
Each lane keeps its own l to the end of the tile, so that a row costs loads and products alone.
"""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from .launch import of_width, options, padded


@triton.jit
def products_kernel(
    left, left_slope, right, right_tangent, center, member, table_place, out, n_rows,
    stride, column, width,
    PLACED: tl.constexpr, N: tl.constexpr, K: tl.constexpr, L: tl.constexpr,
    NP: tl.constexpr, LP: tl.constexpr, TILE: tl.constexpr, KB: tl.constexpr,
):  # fmt: skip
    """(n, KB values of k) of a tile.

    ``left`` (N, n, l) lie ``stride`` apart from atom to atom, the tables' rows (k, l) K L.
    """
    tile = tl.program_id(0)
    n, l = tl.arange(0, NP), tl.arange(0, LP)
    k = tl.program_id(1) * KB + tl.arange(0, KB)
    member += tile * TILE
    count = tl.sum((tl.load(member + tl.arange(0, TILE)) < n_rows).to(tl.int32), 0)
    total = tl.zeros((NP, KB, LP), dtype=out.dtype.element_ty)
    of_left = (n < N)[:, None] & (l < L)[None, :]
    of_right = (k < K)[:, None] & (l < L)[None, :]
    # A tile fills from its first slot.
    for slot in range(0, count):
        row = tl.load(member + slot)
        atom = tl.load(center + row).to(tl.int64)
        at = atom * stride + n[:, None] * L + l[None, :]
        s = tl.load(left + at, mask=of_left, other=0.0)
        s_slope = tl.load(left_slope + at, mask=of_left, other=0.0)
        cell = k[:, None] * L + l[None, :]
        place = row
        if PLACED:
            place = tl.load(table_place + row)
        a = tl.load(right + place.to(tl.int64) * (K * L) + cell, mask=of_right, other=0.0)
        t = tl.load(right_tangent + row.to(tl.int64) * (K * L) + cell, mask=of_right, other=0.0)
        total += s[:, None, :] * a[None, :, :] + s_slope[:, None, :] * t[None, :, :]
    at = out + tile.to(tl.int64) * width + column + n[:, None] * K + k[None, :]
    tl.store(at, tl.sum(total, 2), mask=(n < N)[:, None] & (k < K)[None, :])


def launch(
    q_bar: Tensor, s_bar: Tensor, q_slope: Tensor, slope: Tensor, radial: Tensor, angular: Tensor,
    radial_tangent: Tensor, angular_tangent: Tensor, center: Tensor, member: Tensor,
    n_radial: int, tile: int, place: Tensor | None,
) -> Tensor:  # fmt: skip
    """(tiles, n_R K_R + n_A K_A) of q_bar and dU/dq (N, D), s_bar and dU/ds (N, n_A, L), and a and
    a' (R, K_R), (R, K_A, L).

    ``center`` (R,): atom of each row; ``member`` (tiles * tile,): rows in slots, R in empty ones.
    With ``place`` (R,) the densities a are tables of more rows.
    """
    n_rows, n_tiles = len(center), len(member) // tile
    k_r, (_, n_a, n_l), k_a = radial.shape[1], s_bar.shape, angular.shape[1]
    width = n_radial * k_r + n_a * k_a
    out = s_bar.new_empty(n_tiles, width)
    if not n_tiles:
        return out
    kinds = (
        (q_bar, q_slope, radial, radial_tangent, q_bar.shape[1], 0, n_radial, k_r, 1),
        (s_bar, slope, angular, angular_tangent, n_a * n_l, n_radial * k_r, n_a, k_a, n_l),
    )
    for *arrays, stride, column, n, k, n_components in kinds:
        block = {"NP": padded(n), "LP": padded(n_components), "TILE": tile}
        chosen = options("radial_products")
        if n_components > 1:
            chosen = options(of_width("coefficient_products", block["LP"], out.element_size()))
        products_kernel[(n_tiles, triton.cdiv(k, chosen["KB"]))](
            *(array.contiguous() for array in arrays), center, member,
            center if place is None else place, out, n_rows, stride, column, width,
            PLACED=place is not None, N=n, K=k, L=n_components, **block, **chosen,
        )  # fmt: skip
    return out
