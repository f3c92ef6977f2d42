"""Forces and virials of moving atoms (ops/moving.py): every atom looks at both ends of its pairs."""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from ..moving import Moving
from .launch import of_width, options, padded
from .moving_sums import close_pairs, listed_pairs, sine_and_cosine


@triton.jit
def radial_kernel(
    positions, shifts, types, start, neighbor, shift, cutoff, coefficients, q_slope, out,
    first, n_types, n_k,
    N: tl.constexpr, D: tl.constexpr, NP: tl.constexpr, PAIRS: tl.constexpr,
):  # fmt: skip
    """out[i] = force (3) and virial (9) through the radial functions of the atom of this program."""
    atom = tl.program_id(0) + first
    valid = tl.where(tl.arange(0, NP) < N, 1.0, 0.0).to(out.dtype.element_ty)
    n = tl.minimum(tl.arange(0, NP), N - 1)
    own_slope = valid * tl.load(q_slope + atom.to(tl.int64) * D + n)
    zero = tl.zeros((PAIRS,), dtype=out.dtype.element_ty)
    sums = (zero, zero, zero, zero, zero, zero, zero, zero, zero)
    last = tl.load(start + atom + 1)
    for step in range(tl.load(start + atom), last, PAIRS):
        place = step + tl.arange(0, PAIRS)
        x, y, z, r, u, inverse, j, kind, turned = listed_pairs(
            positions, shifts, types, neighbor, shift, cutoff, atom, place, last, n_types
        )
        sine, cosine = sine_and_cosine(u)
        h, t = 0.5 * sine * sine, 2.0 * u * u - 1.0
        rate = -1.5707963267948966 * inverse * sine * cosine
        turn = -4.0 * inverse * u * h
        far = valid[:, None] * tl.load(q_slope + j[None, :] * D + n[:, None])
        c = coefficients + kind.to(tl.int64)[None, :] * (N * n_k) + n[:, None] * n_k
        d = coefficients + turned.to(tl.int64)[None, :] * (N * n_k) + n[:, None] * n_k
        f = 2.0 * rate
        own = tl.load(c) * f[None, :]
        other = tl.load(d) * f[None, :]
        value, value_below, slope, slope_below = t, 0.0 * t + 1.0, 0.0 * t + 1.0, 0.0 * t
        for k in range(1, n_k):
            f = rate * (value + 1.0) + turn * k * slope
            own += tl.load(c + k) * f[None, :]
            other += tl.load(d + k) * f[None, :]
            following = 2.0 * t * value - value_below
            value_below, value = value, following
            following = 2.0 * t * slope - slope_below
            slope_below, slope = slope, following
        near_pull = tl.sum(own * own_slope[:, None], 0) / r
        far_pull = tl.sum(other * far, 0) / r
        both = near_pull + far_pull
        sums = (
            sums[0] + both * x, sums[1] + both * y, sums[2] + both * z,
            sums[3] - far_pull * x * x, sums[4] - far_pull * y * y, sums[5] - far_pull * z * z,
            sums[6] - far_pull * x * y, sums[7] - far_pull * y * z, sums[8] - far_pull * z * x,
        )  # fmt: skip
    at = out + tl.program_id(0).to(tl.int64) * 12
    for axis in tl.static_range(3):
        tl.store(at + axis, tl.sum(sums[axis], 0))
    xy, yz, zx = tl.sum(sums[6], 0), tl.sum(sums[7], 0), tl.sum(sums[8], 0)
    tl.store(at + 3, tl.sum(sums[3], 0))
    tl.store(at + 4, xy)
    tl.store(at + 5, zx)
    tl.store(at + 6, xy)
    tl.store(at + 7, tl.sum(sums[4], 0))
    tl.store(at + 8, yz)
    tl.store(at + 9, zx)
    tl.store(at + 10, yz)
    tl.store(at + 11, tl.sum(sums[5], 0))


@triton.jit
def _functions(c, kind, n, valid, u, inverse, n_k, N: tl.constexpr):
    """g_n and g_n' (PAIRS, NP) of pairs of these kinds; 0 where u or ``valid`` (NP,) is.

    Factors of 0 instead of masks, which would take the scalar registers of AMD's GPUs.
    """
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
    return g * valid[None, :], g_slope * valid[None, :]


@triton.jit
def _pull(along, outward, circle, high, dx, dy, dz, x, y, z, r):
    """The force on a pair (3) from its sums over n, g S (PAIRS, LP) and g' S."""
    g_x, g_y = tl.sum(along * high * dx, 1), tl.sum(along * high * dy, 1)
    g_z = tl.sum(along * dz * circle, 1)
    stretch = tl.sum(outward * high * circle, 1) - (g_x * x + g_y * y + g_z * z) / r
    return stretch * x + g_x / r, stretch * y + g_y / r, stretch * z + g_z / r


@triton.jit
def _harmonics(height, around, x, y, z, l, l_max, L: tl.constexpr):
    """Both factors of Y (PAIRS, LP) at unit vectors, and their derivatives to z, and to x and y."""
    high = 0.0 * x[:, None] + 0.0 * l[None, :].to(x.dtype)
    dz = high
    for power in range(0, l_max + 1):
        dz = dz * z[:, None] + high
        of_power = tl.load(height + (l_max - power) * L + l)
        high = high * z[:, None] + of_power[None, :]
    far = (2 * l_max + 1) * L
    circle = 0.0 * high + tl.load(around + l)[None, :]
    dx = 0.0 * high + tl.load(around + far + l)[None, :]
    dy = 0.0 * high + tl.load(around + 2 * far + l)[None, :]
    real, imaginary = x, y
    for m in range(1, l_max + 1):
        weight = around + (2 * m - 1) * L + l
        circle += real[:, None] * tl.load(weight)[None, :]
        circle += imaginary[:, None] * tl.load(weight + L)[None, :]
        dx += real[:, None] * tl.load(weight + far)[None, :]
        dx += imaginary[:, None] * tl.load(weight + far + L)[None, :]
        dy += real[:, None] * tl.load(weight + 2 * far)[None, :]
        dy += imaginary[:, None] * tl.load(weight + 2 * far + L)[None, :]
        following = real * x - imaginary * y
        imaginary = imaginary * x + real * y
        real = following
    return high, dz, circle, dx, dy


@triton.jit
def angular_kernel(
    types, start, end, neighbor, vectors, cutoff, coefficients, height, around,
    slope, out, first, stride, n_types, n_k, l_max,
    N: tl.constexpr, L: tl.constexpr, NP: tl.constexpr, LP: tl.constexpr, PAIRS: tl.constexpr,
):  # fmt: skip
    """Add force (3) and virial (9) through the angular functions of this program's atom to out[i]."""
    atom = tl.program_id(0) + first
    valid = tl.where(tl.arange(0, NP) < N, 1.0, 0.0).to(out.dtype.element_ty)
    valid_l = tl.where(tl.arange(0, LP) < L, 1.0, 0.0).to(out.dtype.element_ty)[None, :]
    n, l = tl.minimum(tl.arange(0, NP), N - 1), tl.minimum(tl.arange(0, LP), L - 1)
    # l of component c is floor(sqrt(c + 1)).
    odd = tl.floor(tl.sqrt((l + 1).to(tl.float32) + 0.01)).to(tl.int32) % 2
    parity = tl.where(odd == 1, -1.0, 1.0).to(out.dtype.element_ty)
    cell = n[:, None] * L + l[None, :]
    own_slope = tl.load(slope + atom.to(tl.int64) * (N * L) + cell)
    zero = tl.zeros((PAIRS,), dtype=out.dtype.element_ty)
    sums = (zero, zero, zero, zero, zero, zero, zero, zero, zero, zero, zero, zero)
    last = tl.load(end + atom)
    for step in range(tl.load(start + atom), last, PAIRS):
        place = step + tl.arange(0, PAIRS)
        x, y, z, r, u, inverse, j, kind, turned = close_pairs(
            vectors, stride, neighbor, types, cutoff, atom, place, last, n_types
        )
        u_x, u_y, u_z = x / r, y / r, z / r
        high, dz, circle, dx, dy = _harmonics(height, around, u_x, u_y, u_z, l, l_max, L)
        high, dz = high * valid_l, dz * valid_l
        g, g_slope = _functions(coefficients, kind, n, valid, u, inverse, n_k, N)
        along = tl.sum(g[:, :, None] * own_slope[None, :, :], 1)
        outward = tl.sum(g_slope[:, :, None] * own_slope[None, :, :], 1)
        p_x, p_y, p_z = _pull(along, outward, circle, high, dx, dy, dz, u_x, u_y, u_z, r)
        g, g_slope = _functions(coefficients, turned, n, valid, u, inverse, n_k, N)
        far = tl.load(slope + j[:, None, None] * (N * L) + cell[None, :, :])
        along = parity[None, :] * tl.sum(g[:, :, None] * far, 1)
        outward = parity[None, :] * tl.sum(g_slope[:, :, None] * far, 1)
        o_x, o_y, o_z = _pull(along, outward, circle, high, dx, dy, dz, u_x, u_y, u_z, r)
        sums = (
            sums[0] + p_x + o_x, sums[1] + p_y + o_y, sums[2] + p_z + o_z,
            sums[3] - x * o_x, sums[4] - x * o_y, sums[5] - x * o_z,
            sums[6] - y * o_x, sums[7] - y * o_y, sums[8] - y * o_z,
            sums[9] - z * o_x, sums[10] - z * o_y, sums[11] - z * o_z,
        )  # fmt: skip
    target = out + tl.program_id(0).to(tl.int64) * 12
    for axis in tl.static_range(12):
        before = tl.load(target + axis)
        tl.store(target + axis, before + tl.sum(sums[axis], 0))


def launch(moving: Moving, q_slope: Tensor, slope: Tensor, first: int, last: int) -> Tensor:
    """Force and virial (N', 12) of the atoms first to last, from dU/dq (N, D) and dU/ds (N, n, L)."""
    _, n_r, k_r = moving.radial_c.shape
    _, n_a, k_a = moving.angular_c.shape
    n_l, l_max = moving.height.shape[1], moving.height.shape[0] - 1
    out = moving.radial_c.new_empty(last - first, 12)
    if last > first:
        where = (moving.positions, moving.shifts, moving.types)
        radial_kernel[(last - first,)](
            *where, *moving.radial, moving.radial_cutoff, moving.radial_c, q_slope, out,
            first, moving.n_types, k_r,
            N=n_r, D=q_slope.shape[1], NP=padded(n_r), **options("moving_radial_forces"),
        )  # fmt: skip
        angular_kernel[(last - first,)](
            moving.types, *moving.angular, moving.angular_cutoff, moving.angular_c,
            moving.height, moving.around, slope, out,
            first, moving.angular.vectors.shape[1], moving.n_types, k_a, l_max,
            N=n_a, L=n_l, NP=padded(n_a), LP=padded(n_l),
            **options(of_width("moving_angular_forces", padded(n_l), out.element_size())),
        )  # fmt: skip
    return out
