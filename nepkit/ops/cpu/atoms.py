"""Invariants of one atom and their derivatives for the CPU kernels (model/invariants.py defines).

They work on one atom's s (n L,), component m of function n at n * L + m, and its row of q (D,).
``data.square_weight`` (L,) are the weights of the squares in q_l; ``data.cubic`` (terms, 4) are
(a, b, c, place among the higher invariants) with ``data.cubic_weight`` (terms,);
``data.quartic`` is the place of q1111 among them, or -1.
"""

from __future__ import annotations

from .jit import inlined


@inlined
def first_square(shape, data, s, t, n):
    """sum_m w s_m t_m over l = 1."""
    n_components, total = len(shape.components), data.parity.dtype.type(0)
    for m in range(3):
        total += data.square_weight[m] * s[n * n_components + m] * t[n * n_components + m]
    return total


@inlined
def quartic_place(shape, data):
    """Where q1111 starts in q."""
    return len(shape.n_radial) + (len(shape.l_max) + data.quartic[0]) * len(shape.n_angular)


@inlined
def values(shape, data, s, q):
    """q from the angular part on; those places must hold 0."""
    n_radial, l_max = len(shape.n_radial), len(shape.l_max)
    n_functions, n_components = len(shape.n_angular), len(shape.components)
    for n in range(n_functions):
        for l in range(l_max):
            total = data.parity.dtype.type(0)
            for m in range(l * (l + 2), (l + 1) * (l + 3)):
                value = s[n * n_components + m]
                total += data.square_weight[m] * value * value
            q[n_radial + l * n_functions + n] = total
    for t in range(len(data.cubic_weight)):
        a, b, c, j = data.cubic[t]
        weight, place = data.cubic_weight[t], n_radial + (l_max + j) * n_functions
        for n in range(n_functions):
            k = n * n_components
            q[place + n] += weight * s[k + a] * s[k + b] * s[k + c]
    if data.quartic[0] >= 0:
        place, factor = quartic_place(shape, data), data.parity.dtype.type(7.0 / 15.0)
        for n in range(n_functions):
            q_1 = first_square(shape, data, s, s, n)
            q[place + n] = factor * q_1 * q_1


@inlined
def pull(shape, data, s, q_bar, out):
    """Gradient to s of sum q_bar q."""
    real, n_radial, l_max = data.parity.dtype.type, len(shape.n_radial), len(shape.l_max)
    n_functions, n_components = len(shape.n_angular), len(shape.components)
    for n in range(n_functions):
        for l in range(l_max):
            weight = real(2) * q_bar[n_radial + l * n_functions + n]
            for m in range(l * (l + 2), (l + 1) * (l + 3)):
                k = n * n_components + m
                out[k] = weight * data.square_weight[m] * s[k]
    for t in range(len(data.cubic_weight)):
        a, b, c, j = data.cubic[t]
        weight, place = data.cubic_weight[t], n_radial + (l_max + j) * n_functions
        for n in range(n_functions):
            k, w = n * n_components, weight * q_bar[place + n]
            x, y, z = s[k + a], s[k + b], s[k + c]
            out[k + a] += w * y * z
            out[k + b] += w * x * z
            out[k + c] += w * x * y
    if data.quartic[0] >= 0:
        place, factor = quartic_place(shape, data), real(4.0 * 7.0 / 15.0)
        for n in range(n_functions):
            w = factor * q_bar[place + n] * first_square(shape, data, s, s, n)
            for m in range(n * n_components, n * n_components + 3):
                out[m] += w * data.square_weight[m - n * n_components] * s[m]


@inlined
def push(shape, data, s, s_dot, q_dot):
    """Change of q as s changes by s_dot; those places must hold 0."""
    real, n_radial, l_max = data.parity.dtype.type, len(shape.n_radial), len(shape.l_max)
    n_functions, n_components = len(shape.n_angular), len(shape.components)
    for n in range(n_functions):
        for l in range(l_max):
            total = real(0)
            for m in range(l * (l + 2), (l + 1) * (l + 3)):
                k = n * n_components + m
                total += data.square_weight[m] * s[k] * s_dot[k]
            q_dot[n_radial + l * n_functions + n] = real(2) * total
    for t in range(len(data.cubic_weight)):
        a, b, c, j = data.cubic[t]
        weight, place = data.cubic_weight[t], n_radial + (l_max + j) * n_functions
        for n in range(n_functions):
            k = n * n_components
            x, y, z = s[k + a], s[k + b], s[k + c]
            q_dot[place + n] += weight * (
                s_dot[k + a] * y * z + x * s_dot[k + b] * z + x * y * s_dot[k + c]
            )
    if data.quartic[0] >= 0:
        place, factor = quartic_place(shape, data), real(4.0 * 7.0 / 15.0)
        for n in range(n_functions):
            rate = first_square(shape, data, s, s_dot, n)
            q_dot[place + n] = factor * first_square(shape, data, s, s, n) * rate


@inlined
def pull_push(shape, data, s, s_dot, q_bar, out):
    """Add to out the gradient to s of sum q_bar push(s, s_dot)."""
    real, n_radial, l_max = data.parity.dtype.type, len(shape.n_radial), len(shape.l_max)
    n_functions, n_components = len(shape.n_angular), len(shape.components)
    for n in range(n_functions):
        for l in range(l_max):
            weight = real(2) * q_bar[n_radial + l * n_functions + n]
            for m in range(l * (l + 2), (l + 1) * (l + 3)):
                k = n * n_components + m
                out[k] += weight * data.square_weight[m] * s_dot[k]
    for t in range(len(data.cubic_weight)):
        a, b, c, j = data.cubic[t]
        weight, place = data.cubic_weight[t], n_radial + (l_max + j) * n_functions
        for n in range(n_functions):
            k, w = n * n_components, weight * q_bar[place + n]
            x, y, z = s[k + a], s[k + b], s[k + c]
            x_dot, y_dot, z_dot = s_dot[k + a], s_dot[k + b], s_dot[k + c]
            out[k + a] += w * (y_dot * z + y * z_dot)
            out[k + b] += w * (x_dot * z + x * z_dot)
            out[k + c] += w * (x_dot * y + x * y_dot)
    if data.quartic[0] >= 0:
        place, factor = quartic_place(shape, data), real(4.0 * 7.0 / 15.0)
        for n in range(n_functions):
            w = factor * q_bar[place + n]
            square = first_square(shape, data, s, s, n)
            rate = real(2) * first_square(shape, data, s, s_dot, n)
            for m in range(n * n_components, n * n_components + 3):
                u = w * data.square_weight[m - n * n_components]
                out[m] += u * (square * s_dot[m] + rate * s[m])
