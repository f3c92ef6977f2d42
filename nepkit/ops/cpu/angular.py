"""One atom's angular pairs for the MD kernels (ops/harmonics.py and ops/basis.py define).

A pair goes straight to the sums over neighbours s (n L,): rows are short here, so that coefficients
meet the radial functions first, g_n = sum_k c_nk f_k. ``work.harmonics`` keeps, a pair, Y (L) and its
derivatives to the components of the unit vector, taken as free (3 L); ``work.g`` keeps g and g'.
"""

from __future__ import annotations

import math

from .jit import inlined
from .near import COSINE, HALF_PI, SINE, series


@inlined
def basis(r, cutoff, functions, slopes):
    """f_k and f_k' at one distance."""
    real = functions.dtype.type
    one, two, inverse = real(1), real(2), real(1) / real(cutoff)
    u = one - r * inverse
    angle = real(HALF_PI) * u
    sine = angle * series(SINE, angle * angle, real)
    cosine = series(COSINE, angle * angle, real)
    h, x = real(0.5) * sine * sine, two * u * u - one
    rate, turn = -real(HALF_PI) * inverse * sine * cosine, -two * inverse * u * sine * sine
    functions[0], slopes[0] = two * h, two * rate
    # T_k and U_(k-1)
    value, value_below, slope, slope_below = x, one, one, real(0)
    for k in range(1, len(functions)):
        functions[k] = h * (value + one)
        slopes[k] = rate * (value + one) + turn * real(k) * slope
        value, value_below = two * x * value - value_below, value
        slope, slope_below = two * x * slope - slope_below, slope


@inlined
def harmonics(x, y, z, shape, model, circle, out):
    """Y (L) and its derivatives to x, y and z (3 L) at a unit vector."""
    real, n_components = out.dtype.type, len(shape.components)
    # 1, then real and imaginary part of (x + iy)^m
    circle[0], circle[1], circle[2] = real(1), x, y
    for m in range(2, len(shape.l_max) + 1):
        circle[2 * m - 1] = x * circle[2 * m - 3] - y * circle[2 * m - 2]
        circle[2 * m] = x * circle[2 * m - 2] + y * circle[2 * m - 3]
    for c in range(n_components):
        height, slope = model.height[len(shape.l_max), c], real(0)
        for power in range(len(shape.l_max) - 1, -1, -1):
            slope = slope * z + height
            height = height * z + model.height[power, c]
        around = circle[model.around[0, c]]
        out[c] = height * around
        out[n_components + c] = height * model.factor[0, c] * circle[model.around[1, c]]
        out[2 * n_components + c] = height * model.factor[1, c] * circle[model.around[2, c]]
        out[3 * n_components + c] = slope * around


@inlined
def sums(pair_type, begin, end, shape, model, work, s):
    """Add the angular pairs begin to end of one row to s; keep what their forces will need."""
    real, n_components = s.dtype.type, len(shape.components)
    n_functions, k_functions = len(shape.n_angular), len(shape.k_angular)
    c = model.angular_c[pair_type]
    for near in range(begin, end):
        p = work.near[near]
        r = math.sqrt(work.square[p])
        inverse = real(1) / r
        basis(r, model.angular_cutoff[pair_type], work.functions, work.slopes)
        g, y = work.g[near], work.harmonics[near]
        for n in range(n_functions):
            value, slope = real(0), real(0)
            for k in range(k_functions):
                value += c[k * n_functions + n] * work.functions[k]
                slope += c[k * n_functions + n] * work.slopes[k]
            g[n], g[n_functions + n] = value, slope
        harmonics(
            work.x[p] * inverse, work.y[p] * inverse, work.z[p] * inverse,
            shape, model, work.circle, y,
        )  # fmt: skip
        for m in range(n_components):
            for n in range(n_functions):
                s[n * n_components + m] += g[n] * y[m]


@inlined
def forces(near, shape, slope, work):
    """dU_i/dr_ij of an angular pair from dU/ds (n L)."""
    real, n_components = slope.dtype.type, len(shape.components)
    n_functions, p = len(shape.n_angular), work.near[near]
    g, y = work.g[near], work.harmonics[near]
    outward, g_x, g_y, g_z = real(0), real(0), real(0), real(0)
    for m in range(n_components):
        along, stretched = real(0), real(0)
        for n in range(n_functions):
            along += g[n] * slope[n * n_components + m]
            stretched += g[n_functions + n] * slope[n * n_components + m]
        outward += stretched * y[m]
        g_x += along * y[n_components + m]
        g_y += along * y[2 * n_components + m]
        g_z += along * y[3 * n_components + m]
    inverse = real(1) / math.sqrt(work.square[p])
    x, y, z = work.x[p] * inverse, work.y[p] * inverse, work.z[p] * inverse
    # Only what turns the vector counts.
    outward -= inverse * (g_x * x + g_y * y + g_z * z)
    return outward * x + inverse * g_x, outward * y + inverse * g_y, outward * z + inverse * g_z
