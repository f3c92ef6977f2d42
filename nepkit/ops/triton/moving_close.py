"""The pairs of a list that are within the cutoff now, and their functions (ops/moving.py)."""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from ..moving import ClosePairs, Neighborhood
from .launch import options, padded
from .moving_sums import close_vectors, of_pairs, pair_vectors, sine_and_cosine


@triton.jit
def close_kernel(
    positions, shifts, types, start, neighbor, shift, cutoff, end, close, vectors, stride, n_types,
    PAIRS: tl.constexpr,
):  # fmt: skip
    """Moves up the pairs within the cutoff of the atom of this program, and says where they end."""
    atom = tl.program_id(0)
    free = tl.load(start + atom)
    last = tl.load(start + atom + 1)
    for step in range(free, last, PAIRS):
        place = step + tl.arange(0, PAIRS)
        x, y, z, _, u, _, j, _, _ = pair_vectors(
            positions, shifts, types, neighbor, shift, cutoff, atom, place, last, n_types
        )
        keep = u != 0.0  # and NaN
        kept = keep.to(tl.int32)
        to = free + tl.cumsum(kept, 0) - 1
        tl.store(close + to, j.to(tl.int32), mask=keep)
        tl.store(vectors + to, x, mask=keep)
        tl.store(vectors + (to + stride), y, mask=keep)
        tl.store(vectors + (to + stride + stride), z, mask=keep)
        free += tl.sum(kept, 0)
    tl.store(end + atom, free)


@triton.jit
def functions_kernel(
    types, start, end, neighbor, vectors, cutoff, coefficients, out, stride, n_types, n_k,
    N: tl.constexpr, NP: tl.constexpr, PAIRS: tl.constexpr,
):  # fmt: skip
    """out[p] = g_n and g_n' from both ends of the close pairs of the atom of this program."""
    atom = tl.program_id(0)
    n = tl.minimum(tl.arange(0, NP), N - 1)
    last = tl.load(end + atom)
    for step in range(tl.load(start + atom), last, PAIRS):
        place = step + tl.arange(0, PAIRS)
        real, place = place < last, tl.minimum(place, last - 1)
        x, y, z = close_vectors(vectors, stride, place)
        j = tl.load(neighbor + place).to(tl.int64)
        _, u, inverse, kind, turned = of_pairs(x, y, z, types, cutoff, atom, j, real, n_types)
        to = out + place[:, None] * (4 * N) + n[None, :]
        inside = real[:, None] & (tl.arange(0, NP) < N)[None, :]
        g, g_slope = _functions(coefficients, kind, n, u, inverse, n_k, N)
        tl.store(to, g, mask=inside)
        tl.store(to + N, g_slope, mask=inside)
        g, g_slope = _functions(coefficients, turned, n, u, inverse, n_k, N)
        tl.store(to + 2 * N, g, mask=inside)
        tl.store(to + 3 * N, g_slope, mask=inside)


@triton.jit
def _functions(c, kind, n, u, inverse, n_k, N: tl.constexpr):
    """g_n and g_n' (PAIRS, NP) of pairs of these kinds."""
    sine, cosine = sine_and_cosine(u)
    h, t = 0.5 * sine * sine, 2.0 * u * u - 1.0
    rate, turn = -1.5707963267948966 * inverse * sine * cosine, -4.0 * inverse * u * h
    at = c + kind.to(tl.int64)[:, None] * (N * n_k) + n[None, :] * n_k
    weight = tl.load(at)
    g, g_slope = weight * (2.0 * h)[:, None], weight * (2.0 * rate)[:, None]
    value, value_below, slope, slope_below = t, 0.0 * t + 1.0, 0.0 * t + 1.0, 0.0 * t
    for k in range(1, n_k):
        weight = tl.load(at + k)
        g += weight * (h * (value + 1.0))[:, None]
        g_slope += weight * (rate * (value + 1.0) + turn * k * slope)[:, None]
        following = 2.0 * t * value - value_below
        value_below, value = value, following
        following = 2.0 * t * slope - slope_below
        slope_below, slope = slope, following
    return g, g_slope


def launch(
    positions: Tensor, shifts: Tensor, types: Tensor, listed: Neighborhood, cutoff: Tensor,
    coefficients: Tensor, n_types: int,
) -> ClosePairs:  # fmt: skip
    """The pairs of ``listed`` within their ``cutoff`` (T T,), at places of the list."""
    _, n, n_k = coefficients.shape
    n_atoms, n_pairs = len(types), len(listed.neighbor)
    end, neighbor = listed.start.new_empty(n_atoms), listed.neighbor.new_empty(n_pairs)
    vectors, functions = cutoff.new_empty(3, n_pairs), cutoff.new_empty(n_pairs, 4, n)
    if n_atoms:
        close_kernel[(n_atoms,)](
            positions, shifts, types, *listed, cutoff, end, neighbor, vectors, n_pairs, n_types,
            **options("moving_close"),
        )  # fmt: skip
        functions_kernel[(n_atoms,)](
            types, listed.start, end, neighbor, vectors, cutoff, coefficients, functions,
            n_pairs, n_types, n_k, N=n, NP=padded(n), **options("moving_functions"),
        )  # fmt: skip
    return ClosePairs(listed.start[:n_atoms], end, neighbor, vectors, functions)
