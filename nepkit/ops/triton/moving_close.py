"""Pairs of a list where the atoms are now, those within the cutoff, and their functions (ops/listed.py)."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from ..listed import ClosePairs, Neighborhood
from .launch import options, padded
from .moving_sums import of_pairs, sine_and_cosine, stored_vectors


@triton.jit
def turned_kernel(start, neighbor, shift, turned, n_shifts, PLACES: tl.constexpr):
    """turned[p] = place of pair p in the row of its neighbour, for the pairs of this program's atom."""
    atom = tl.program_id(0)
    for place in range(tl.load(start + atom), tl.load(start + atom + 1)):
        j = tl.load(neighbor + place).to(tl.int64)
        wanted = n_shifts - 1 - tl.load(shift + place)
        found = tl.zeros((PLACES,), dtype=tl.int64) - 1
        last = tl.load(start + j + 1)
        for step in range(tl.load(start + j), last, PLACES):
            at = step + tl.arange(0, PLACES)
            there = tl.minimum(at, last - 1)
            same = (tl.load(neighbor + there) == atom) & (tl.load(shift + there) == wanted)
            found = tl.where(same, there, found)
        one = tl.max(found, 0)
        tl.store(turned + place, tl.where(one < 0, place, one).to(tl.int32))


@triton.jit
def differences(positions, shifts, neighbor, shift, atom, place):
    """Vectors, float64, and neighbours of listed pairs of an atom."""
    j, s = tl.load(neighbor + place).to(tl.int64), tl.load(shift + place).to(tl.int64)
    at, to, by = positions + atom.to(tl.int64) * 3, positions + j * 3, shifts + s * 3
    x = tl.load(to) - tl.load(at) + tl.load(by)
    y = tl.load(to + 1) - tl.load(at + 1) + tl.load(by + 1)
    return x, y, tl.load(to + 2) - tl.load(at + 2) + tl.load(by + 2), j


@triton.jit
def vectors_kernel(
    positions, shifts, start, neighbor, shift, vectors, stride, PAIRS: tl.constexpr
):  # fmt: skip
    """vectors[:, p] of the pairs of the atom of this program."""
    atom = tl.program_id(0)
    dtype = vectors.dtype.element_ty
    last = tl.load(start + atom + 1)
    for step in range(tl.load(start + atom), last, PAIRS):
        place = step + tl.arange(0, PAIRS)
        real, place = place < last, tl.minimum(place, last - 1)
        x, y, z, _ = differences(positions, shifts, neighbor, shift, atom, place)
        tl.store(vectors + place, x.to(dtype), mask=real)
        tl.store(vectors + (place + stride), y.to(dtype), mask=real)
        tl.store(vectors + (place + stride + stride), z.to(dtype), mask=real)


@triton.jit
def close_kernel(
    positions, shifts, types, start, neighbor, shift, cutoff, end, close, vectors, stride, n_types,
    PAIRS: tl.constexpr,
):  # fmt: skip
    """Moves up the pairs within the cutoff of the atom of this program, and says where they end."""
    atom = tl.program_id(0)
    dtype = vectors.dtype.element_ty
    free = tl.load(start + atom)
    last = tl.load(start + atom + 1)
    for step in range(free, last, PAIRS):
        place = step + tl.arange(0, PAIRS)
        real, place = place < last, tl.minimum(place, last - 1)
        x, y, z, j = differences(positions, shifts, neighbor, shift, atom, place)
        x, y, z = x.to(dtype), y.to(dtype), z.to(dtype)
        _, u, _, _, _ = of_pairs(x, y, z, types, cutoff, atom, j, real, n_types)
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
        x, y, z = stored_vectors(vectors, stride, place)
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


def turned(listed: Neighborhood, n_shifts: int) -> Tensor:
    """The place of every pair of a list as its neighbour has it (P,)."""
    found, n_atoms = torch.empty_like(listed.neighbor), len(listed.start) - 1
    if n_atoms:
        turned_kernel[(n_atoms,)](*listed, found, n_shifts, **options("moving_turned"))
    return found


def vectors(
    positions: Tensor, shifts: Tensor, listed: Neighborhood, n_atoms: int, dtype: torch.dtype
) -> Tensor:
    """The vectors of a list (3, P)."""
    n_pairs = len(listed.neighbor)
    found = positions.new_empty(3, n_pairs, dtype=dtype)
    if n_atoms:
        vectors_kernel[(n_atoms,)](
            positions, shifts, *listed, found, n_pairs, **options("moving_vectors")
        )
    return found


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
