"""Invariants of one atom and their derivatives for the CPU kernels (model/invariants.py defines).

They work on one atom's s (n L,), component m of function n at n * L + m, and its row of q (D,).
``data.square_weight`` (L,) are the weights of the squares in q_l, ``data.degree`` (L,) is l - 1,
``data.cubic`` (terms, 4) are (a, b, c, place among the higher invariants) with
``data.cubic_weight`` (terms,); ``data.quartic`` is the place of q1111 among them, or -1.
"""

from __future__ import annotations

from .jit import jit


@jit
def first_square(shape, data, s, t, n):
    """sum_m w s_m t_m over l = 1."""
    n_components, total = len(shape.components), data.parity.dtype.type(0)
    for m in range(3):
        total += data.square_weight[m] * s[n * n_components + m] * t[n * n_components + m]
    return total


@jit
def values(shape, data, s, q):
    """q from the angular part on; those places must hold 0."""
    real, n_radial, l_max = data.parity.dtype.type, len(shape.n_radial), len(shape.l_max)
    n_functions, n_components = len(shape.n_angular), len(shape.components)
    two, factor, quartic = real(2), real(7.0 / 15.0), data.quartic[0]
    for n in range(n_functions):
        for m in range(len(data.degree)):
            place = n_radial + data.degree[m] * n_functions + n
            q[place] += data.square_weight[m] * s[n * n_components + m] * s[n * n_components + m]
        for t in range(len(data.cubic_weight)):
            a, b, c, j = data.cubic[t]
            place = n_radial + (l_max + j) * n_functions + n
            q[place] += data.cubic_weight[t] * s[n * n_components + a] * s[n * n_components + b] * s[n * n_components + c]
        if quartic >= 0:
            q_1 = first_square(shape, data, s, s, n)
            q[n_radial + (l_max + quartic) * n_functions + n] = factor * q_1 * q_1


@jit
def pull(shape, data, s, q_bar, out):
    """Gradient to s of sum q_bar q."""
    real, n_radial, l_max = data.parity.dtype.type, len(shape.n_radial), len(shape.l_max)
    n_functions, n_components = len(shape.n_angular), len(shape.components)
    two, factor, quartic = real(2), real(7.0 / 15.0), data.quartic[0]
    for n in range(n_functions):
        for m in range(len(data.degree)):
            weight = q_bar[n_radial + data.degree[m] * n_functions + n]
            out[n * n_components + m] = two * data.square_weight[m] * weight * s[n * n_components + m]
        for t in range(len(data.cubic_weight)):
            a, b, c, j = data.cubic[t]
            w = data.cubic_weight[t] * q_bar[n_radial + (l_max + j) * n_functions + n]
            out[n * n_components + a] += w * s[n * n_components + b] * s[n * n_components + c]
            out[n * n_components + b] += w * s[n * n_components + a] * s[n * n_components + c]
            out[n * n_components + c] += w * s[n * n_components + a] * s[n * n_components + b]
        if quartic >= 0:
            w = q_bar[n_radial + (l_max + quartic) * n_functions + n]
            w = two * two * factor * w * first_square(shape, data, s, s, n)
            for m in range(3):
                out[n * n_components + m] += w * data.square_weight[m] * s[n * n_components + m]


@jit
def push(shape, data, s, s_dot, q_dot):
    """Change of q as s changes by s_dot; those places must hold 0."""
    real, n_radial, l_max = data.parity.dtype.type, len(shape.n_radial), len(shape.l_max)
    n_functions, n_components = len(shape.n_angular), len(shape.components)
    two, factor, quartic = real(2), real(7.0 / 15.0), data.quartic[0]
    for n in range(n_functions):
        for m in range(len(data.degree)):
            place = n_radial + data.degree[m] * n_functions + n
            q_dot[place] += two * data.square_weight[m] * s[n * n_components + m] * s_dot[n * n_components + m]
        for t in range(len(data.cubic_weight)):
            a, b, c, j = data.cubic[t]
            place = n_radial + (l_max + j) * n_functions + n
            q_dot[place] += data.cubic_weight[t] * (
                s_dot[n * n_components + a] * s[n * n_components + b] * s[n * n_components + c]
                + s[n * n_components + a] * s_dot[n * n_components + b] * s[n * n_components + c]
                + s[n * n_components + a] * s[n * n_components + b] * s_dot[n * n_components + c]
            )
        if quartic >= 0:
            rate = two * first_square(shape, data, s, s_dot, n)
            place = n_radial + (l_max + quartic) * n_functions + n
            q_dot[place] = two * factor * first_square(shape, data, s, s, n) * rate


@jit
def pull_push(shape, data, s, s_dot, q_bar, out):
    """Add to out the gradient to s of sum q_bar push(s, s_dot)."""
    real, n_radial, l_max = data.parity.dtype.type, len(shape.n_radial), len(shape.l_max)
    n_functions, n_components = len(shape.n_angular), len(shape.components)
    two, factor, quartic = real(2), real(7.0 / 15.0), data.quartic[0]
    for n in range(n_functions):
        for m in range(len(data.degree)):
            weight = q_bar[n_radial + data.degree[m] * n_functions + n]
            out[n * n_components + m] += two * data.square_weight[m] * weight * s_dot[n * n_components + m]
        for t in range(len(data.cubic_weight)):
            a, b, c, j = data.cubic[t]
            w = data.cubic_weight[t] * q_bar[n_radial + (l_max + j) * n_functions + n]
            out[n * n_components + a] += w * (s_dot[n * n_components + b] * s[n * n_components + c] + s[n * n_components + b] * s_dot[n * n_components + c])
            out[n * n_components + b] += w * (s_dot[n * n_components + a] * s[n * n_components + c] + s[n * n_components + a] * s_dot[n * n_components + c])
            out[n * n_components + c] += w * (s_dot[n * n_components + a] * s[n * n_components + b] + s[n * n_components + a] * s_dot[n * n_components + b])
        if quartic >= 0:
            w = two * two * factor * q_bar[n_radial + (l_max + quartic) * n_functions + n]
            square = first_square(shape, data, s, s, n)
            rate = two * first_square(shape, data, s, s_dot, n)
            for m in range(3):
                u = w * data.square_weight[m]
                out[n * n_components + m] += u * (square * s_dot[n * n_components + m] + rate * s[n * n_components + m])
