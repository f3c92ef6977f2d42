"""Sums over neighbours of moving atoms (ops/moving.py): s_R (N, n) and s_A (N, n, L).

A pair beyond its cutoff has u = 1 - r / rc = 0, where all functions and their derivatives are 0.
"""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from ..moving import Moving
from .launch import of_width, options, padded


@triton.jit
def sine_and_cosine(u):
    """sin(pi u / 2) and cos(pi u / 2) for u in [0, 1]: the series of a quarter, doubled twice.

    The fewer constants, the fewer of the scalar registers that AMD's GPUs keep them in.
    """
    a = 0.39269908169872414 * u
    s = a * a
    sine = 1.0 - s * (1.0 / 156.0)
    sine = 1.0 - s * (1.0 / 110.0) * sine
    sine = 1.0 - s * (1.0 / 72.0) * sine
    sine = 1.0 - s * (1.0 / 42.0) * sine
    sine = 1.0 - s * (1.0 / 20.0) * sine
    sine = a * (1.0 - s * (1.0 / 6.0) * sine)
    cosine = 1.0 - s * (1.0 / 132.0)
    cosine = 1.0 - s * (1.0 / 90.0) * cosine
    cosine = 1.0 - s * (1.0 / 56.0) * cosine
    cosine = 1.0 - s * (1.0 / 30.0) * cosine
    cosine = 1.0 - s * (1.0 / 12.0) * cosine
    cosine = 1.0 - s * 0.5 * cosine
    sine, cosine = 2.0 * sine * cosine, 1.0 - 2.0 * sine * sine
    return 2.0 * sine * cosine, 1.0 - 2.0 * sine * sine


@triton.jit
def of_distance(x, y, z, cutoff, kind, real):
    """Distance, 1 - r / rc and 1 / rc of pairs, u = 0 if not ``real``.

    A factor of 0 makes everything 0; masks would take the scalar registers of AMD's GPUs.
    """
    r = tl.sqrt(x * x + y * y + z * z)
    inverse = 1.0 / tl.load(cutoff + kind)
    u = 1.0 - r * inverse
    return r, tl.where(real & ~(u <= 0.0), u, 0.0), inverse  # not max, which might lose NaN


@triton.jit
def of_pairs(x, y, z, types, cutoff, atom, j, real, n_types):
    """``of_distance`` and both pair types of pairs of an atom."""
    one, other = tl.load(types + atom), tl.load(types + j)
    pair_type = one * n_types + other
    r, u, inverse = of_distance(x, y, z, cutoff, pair_type, real)
    return r, u, inverse, pair_type, other * n_types + one


@triton.jit
def stored_vectors(vectors, stride, place):
    """Vectors of pairs, whose components are ``stride`` places apart."""
    x, y = tl.load(vectors + place), tl.load(vectors + (place + stride))
    return x, y, tl.load(vectors + (place + stride + stride))


@triton.jit
def circle_factor(powers, x, y, l, l_max: tl.constexpr, L: tl.constexpr):
    """Re or Im of (x + iy)^m (PAIRS, LP), as a component has it, and its derivatives to x and y."""
    m, of_real = tl.load(powers + l)[None, :], tl.load(powers + L + l)[None, :]
    of_imaginary = tl.load(powers + 2 * L + l)[None, :]
    x, y = x[:, None], y[:, None]
    # Of m - 1; of 0 for m = 0.
    real, imaginary = 1.0 + 0.0 * x * m, 0.0 * x * m
    for step in tl.static_range(1, l_max):
        following = real * x - imaginary * y
        imaginary = tl.where(m > step, imaginary * x + real * y, imaginary)
        real = tl.where(m > step, following, real)
    above = tl.where(m > 0, real * x - imaginary * y, 1.0)
    value = of_real * above + of_imaginary * (imaginary * x + real * y)
    to_x, to_y = (
        of_real * real + of_imaginary * imaginary,
        of_imaginary * real - of_real * imaginary,
    )
    return value, m * to_x, m * to_y


@triton.jit
def radial_sums_kernel(
    start, kind, vectors, cutoff, coefficients, out, first, stride, n_k,
    N: tl.constexpr, NP: tl.constexpr, PAIRS: tl.constexpr,
):  # fmt: skip
    """out[i, n] = sum_j sum_k c_nk f_k(r_ij) of the atom of this program."""
    atom = tl.program_id(0) + first
    n = tl.minimum(tl.arange(0, NP), N - 1)
    total = tl.zeros((NP, PAIRS), dtype=out.dtype.element_ty)
    last = tl.load(start + atom + 1)
    for step in range(tl.load(start + atom), last, PAIRS):
        place = step + tl.arange(0, PAIRS)
        real, place = place < last, tl.minimum(place, last - 1)
        x, y, z = stored_vectors(vectors, stride, place)
        pair_type = tl.load(kind + place).to(tl.int64)
        _, u, _ = of_distance(x, y, z, cutoff, pair_type, real)
        sine, _ = sine_and_cosine(u)
        h, t = 0.5 * sine * sine, 2.0 * u * u - 1.0
        c = coefficients + pair_type[None, :] * (N * n_k) + n[:, None] * n_k
        total += tl.load(c) * (2.0 * h)[None, :]
        below, value = 0.0 * t + 1.0, t
        for k in range(1, n_k):
            total += tl.load(c + k) * (h * (value + 1.0))[None, :]
            following = 2.0 * t * value - below
            below, value = value, following
    out += tl.program_id(0).to(tl.int64) * N
    tl.store(out + n, tl.sum(total, 1), mask=tl.arange(0, NP) < N)


@triton.jit
def angular_sums_kernel(
    start, end, neighbor, vectors, functions, height, powers, out, first, stride,
    l_max: tl.constexpr, N: tl.constexpr, L: tl.constexpr, NP: tl.constexpr, LP: tl.constexpr,
    PAIRS: tl.constexpr,
):  # fmt: skip
    """out[i, n, l] = sum_j g_n(r_ij) Y_l of the atom of this program."""
    atom = tl.program_id(0) + first
    n, l = tl.minimum(tl.arange(0, NP), N - 1), tl.minimum(tl.arange(0, LP), L - 1)
    total = tl.zeros((PAIRS, NP, LP), dtype=out.dtype.element_ty)
    last = tl.load(end + atom)
    for step in range(tl.load(start + atom), last, PAIRS):
        place = step + tl.arange(0, PAIRS)
        real_pair = tl.where(place < last, 1.0, 0.0).to(out.dtype.element_ty)
        place = tl.minimum(place, last - 1)
        x, y, z = stored_vectors(vectors, stride, place)
        inverse = 1.0 / tl.sqrt(x * x + y * y + z * z)
        x, y, z = x * inverse, y * inverse, z * inverse
        high = tl.zeros((PAIRS, LP), dtype=out.dtype.element_ty)
        for power in tl.static_range(l_max + 1):
            of_power = tl.load(height + (l_max - power) * L + l)
            high = high * z[:, None] + of_power[None, :]
        circle, _, _ = circle_factor(powers, x, y, l, l_max, L)
        g = tl.load(functions + place[:, None] * (4 * N) + n[None, :]) * real_pair[:, None]
        total += g[:, :, None] * (high * circle)[:, None, :]
    cell = tl.program_id(0).to(tl.int64) * (N * L) + n[:, None] * L + l[None, :]
    inside = (tl.arange(0, NP) < N)[:, None] & (tl.arange(0, LP) < L)[None, :]
    tl.store(out + cell, tl.sum(total, 0), mask=inside)


def launch(moving: Moving, first: int, last: int) -> tuple[Tensor, Tensor]:
    """Both sums of the atoms first to last."""
    _, n_r, k_r = moving.radial_c.shape
    n_a = moving.angular.functions.shape[2]
    n_l, l_max = moving.height.shape[1], moving.height.shape[0] - 1
    radial = moving.radial_c.new_empty(last - first, n_r)
    angular = moving.radial_c.new_empty(last - first, n_a, n_l)
    near = moving.radial
    if last > first:
        radial_sums_kernel[(last - first,)](
            near.start, near.kind, near.vectors, moving.radial_cutoff, moving.radial_c, radial,
            first, near.vectors.shape[1], k_r,
            N=n_r, NP=padded(n_r), **options("moving_radial_sums"),
        )  # fmt: skip
        angular_sums_kernel[(last - first,)](
            *moving.angular, moving.height, moving.powers, angular,
            first, moving.angular.vectors.shape[1], l_max,
            N=n_a, L=n_l, NP=padded(n_a), LP=padded(n_l),
            **options(of_width("moving_angular_sums", padded(n_l), angular.element_size())),
        )  # fmt: skip
    return radial, angular
