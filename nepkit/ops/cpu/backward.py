"""The passes over pairs that lead from the loss to its gradient (see forward.py)."""

from __future__ import annotations

import numpy as np

from .atoms import pull, pull_push, push
from .jit import jit


@jit
def changes(first, last, shape, data, batch, force_bar, virial_bar, out):
    """v = dL/dF_i - dL/dF_j - (dL/dW)^T r of the batch's half pairs, and v . r/|r|: (H, 4)."""
    for slot in range(len(batch.atom_shift)):
        shift, atom_shift = batch.pair_shift[slot] // 2, batch.atom_shift[slot]
        start, stop = batch.half_start[slot], batch.half_start[slot + 1]
        w_0, w_1, w_2 = virial_bar[slot, 0], virial_bar[slot, 1], virial_bar[slot, 2]
        w_3, w_4, w_5 = virial_bar[slot, 3], virial_bar[slot, 4], virial_bar[slot, 5]
        for t in range(max(first, start), min(last, stop)):
            h = t - shift
            a, b = data.center[h] + atom_shift, data.neighbor[h] + atom_shift
            x, y, z = data.vectors[h, 0], data.vectors[h, 1], data.vectors[h, 2]
            v_0 = force_bar[a, 0] - force_bar[b, 0] - w_0 * x - w_5 * z
            v_1 = force_bar[a, 1] - force_bar[b, 1] - w_1 * y - w_3 * x
            v_2 = force_bar[a, 2] - force_bar[b, 2] - w_2 * z - w_4 * y
            out[t, 0], out[t, 1], out[t, 2] = v_0, v_1, v_2
            out[t, 3] = v_0 * data.unit[h, 0] + v_1 * data.unit[h, 1] + v_2 * data.unit[h, 2]


@jit
def angular_tangent(shape, data, row, shift, change, work):
    """Sum over the angular pairs of a row, seen along i -> j, then along j -> i: (2 K L)."""
    k_angular, n_components = len(shape.k_angular), len(shape.components)
    half, zero = k_angular * n_components, data.parity.dtype.type(0)
    work[:] = zero
    for d in range(data.angular_start[row], data.angular_start[row + 1]):
        code = data.angular_code[d]
        h, side = (code, 0) if code >= 0 else (~code, half)
        pair = data.angular_half[h] + shift
        v_0, v_1, v_2 = change[pair, 0], change[pair, 1], change[pair, 2]
        stretch = change[pair, 3]
        for m in range(n_components):
            turned = (
                v_0 * data.harmonics[h, n_components + m]
                + v_1 * data.harmonics[h, 2 * n_components + m]
                + v_2 * data.harmonics[h, 3 * n_components + m]
            )
            stretched = stretch * data.harmonics[h, m]
            for k in range(k_angular):
                work[side + k * n_components + m] += (
                    data.angular_basis[h, k] * turned
                    + data.angular_basis[h, k_angular + k] * stretched
                )


@jit
def tangents(
    first, last, shape, data, batch, radial_c, angular_c, s, change,
    radial_rows, angular_rows, s_dot, q_dot,
):  # fmt: skip
    """Tangent densities of the rows, (R, K) and (R, K L), and the tangents of s and q."""
    n_radial = len(shape.n_radial)
    k_radial = len(shape.k_radial)
    n_angular = len(shape.n_angular)
    k_angular = len(shape.k_angular)
    n_components = len(shape.components)
    real = data.parity.dtype.type
    zero = real(0)
    half = k_angular * n_components
    work = np.empty(2 * half, real)  # sums over i -> j, then over j -> i
    density = np.empty(k_radial, real)
    for i in range(first, last):
        atom, slot = batch.atom[i], batch.slot[i]
        shift = batch.pair_shift[slot] // 2
        rate = s_dot[i]
        rate[:] = zero
        q_dot[i] = zero
        for row in range(data.row_start[atom], data.row_start[atom + 1]):
            group, place = data.group[row], row + batch.row_shift[slot]
            density[:] = zero
            for d in range(data.radial_start[row], data.radial_start[row + 1]):
                code = data.radial_code[d]
                h = code if code >= 0 else ~code
                stretch = change[h + shift, 3]
                for k in range(k_radial):
                    density[k] += stretch * data.radial_slope[h, k]
            for k in range(k_radial):
                radial_rows[place, k] = density[k]
                for n in range(n_radial):
                    q_dot[i, n] += radial_c[group, n, k] * density[k]
            if data.angular_start[row] == data.angular_start[row + 1]:
                continue
            angular_tangent(shape, data, row, shift, change, work)
            for m in range(n_components):
                for k in range(k_angular):
                    t = k * n_components + m
                    work[t] += data.parity[m] * work[half + t]
                    angular_rows[place, t] = work[t]
            for m in range(n_components):
                for n in range(n_angular):
                    total = zero
                    for k in range(k_angular):
                        total += angular_c[group, n, k] * work[k * n_components + m]
                    rate[n * n_components + m] += total
        push(shape, data, s[i], rate, q_dot[i])


@jit
def gradients(
    first, last, shape, data, batch, s, s_slope, s_dot, q_slope, q_bar,
    radial_rows, angular_rows, radial_out, angular_out,
):  # fmt: skip
    """Each row's part of dL/dc (R, n, K): of s_bar on a, and of dU/ds on its tangent."""
    n_radial = len(shape.n_radial)
    k_radial = len(shape.k_radial)
    n_angular = len(shape.n_angular)
    k_angular = len(shape.k_angular)
    n_components = len(shape.components)
    real = data.parity.dtype.type
    zero = real(0)
    bar = np.empty(n_angular * n_components, real)
    for i in range(first, last):
        atom, slot = batch.atom[i], batch.slot[i]
        pull(shape, data, s[i], q_bar[i], bar)
        pull_push(shape, data, s[i], s_dot[i], q_slope[i], bar)
        slope = s_slope[i]
        for row in range(data.row_start[atom], data.row_start[atom + 1]):
            place = row + batch.row_shift[slot]
            for n in range(n_radial):
                for k in range(k_radial):
                    radial_out[place, n, k] = (
                        q_bar[i, n] * data.radial_density[row, k]
                        + q_slope[i, n] * radial_rows[place, k]
                    )
            if data.angular_start[row] == data.angular_start[row + 1]:
                angular_out[place] = zero
                continue
            for n in range(n_angular):
                for k in range(k_angular):
                    total = zero
                    for m in range(len(data.parity)):
                        total += (
                            bar[n * n_components + m]
                            * data.angular_density[row, k * n_components + m]
                            + slope[n * n_components + m]
                            * angular_rows[place, k * n_components + m]
                        )
                    angular_out[place, n, k] = total


@jit
def sum_rows(first, last, shape, data, batch, radial, angular, radial_out, angular_out):
    """Sum the rows (R, n, K) of each pair type from first to last, in the order of the rows."""
    zero = data.parity.dtype.type(0)
    for group in range(first, last):
        radial_out[group] = zero
        angular_out[group] = zero
    for place in range(len(batch.row)):
        group = data.group[batch.row[place]]
        if first <= group < last:
            radial_from, radial_to = radial[place], radial_out[group]
            for k in range(len(radial_from)):
                radial_to[k] += radial_from[k]
            angular_from, angular_to = angular[place], angular_out[group]
            for k in range(len(angular_from)):
                angular_to[k] += angular_from[k]
