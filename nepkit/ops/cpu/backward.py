"""From the loss's derivatives to energies, forces and virials to its gradient (see forward.py).

One pass over the atoms: what their pairs and rows pass on to each other stays in the cache. When all
threads have met, sums over atoms of one type and rows of one pair type follow.
"""

from __future__ import annotations

import numpy as np

from .atoms import pull, pull_push, push
from .crowd import meet, share
from .jit import inlined, inner, jit
from .network import adjoint, weight_gradients


@inlined
def changes(atom, slot, data, batch, force_bar, virial_bar, out):
    """v = dL/dF_i - dL/dF_j - (dL/dW)^T r of the half pairs of an atom, and v . r/|r|: (P, 4).

    They come in the order of the atom's directed pairs, all seen along the half pair.
    """
    atom_shift, start = batch.atom_shift[slot], data.radial_start[data.row_start[atom]]
    w_0, w_1, w_2 = virial_bar[slot, 0], virial_bar[slot, 1], virial_bar[slot, 2]
    w_3, w_4, w_5 = virial_bar[slot, 3], virial_bar[slot, 4], virial_bar[slot, 5]
    for d in range(start, data.radial_start[data.row_start[atom + 1]]):
        code = data.radial_code[d]
        h, t = code if code >= 0 else ~code, d - start
        a, b = data.center[h] + atom_shift, data.neighbor[h] + atom_shift
        x, y, z = data.vectors[h, 0], data.vectors[h, 1], data.vectors[h, 2]
        v_0 = force_bar[a, 0] - force_bar[b, 0] - w_0 * x - w_5 * z
        v_1 = force_bar[a, 1] - force_bar[b, 1] - w_1 * y - w_3 * x
        v_2 = force_bar[a, 2] - force_bar[b, 2] - w_2 * z - w_4 * y
        out[t, 0], out[t, 1], out[t, 2] = v_0, v_1, v_2
        out[t, 3] = v_0 * data.unit[h, 0] + v_1 * data.unit[h, 1] + v_2 * data.unit[h, 2]


@inlined
def angular_tangent(shape, data, row, start, change, work):
    """Sum over the angular pairs of a row, seen along i -> j, then along j -> i: (2 K L)."""
    k_angular, n_components = len(shape.k_angular), len(shape.components)
    half, zero = k_angular * n_components, data.parity.dtype.type(0)
    work[:] = zero
    for d in range(data.angular_start[row], data.angular_start[row + 1]):
        code = data.angular_code[d]
        h, side = (code, 0) if code >= 0 else (~code, half)
        pair = data.angular_half[h]
        t = (data.first[pair] if code >= 0 else data.second[pair]) - start
        v_0, v_1, v_2, stretch = change[t, 0], change[t, 1], change[t, 2], change[t, 3]
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


@inlined
def tangents(atom, shape, data, radial_c, angular_c, change, work, radial, angular, rate, q_dot):
    """Tangent densities of an atom's rows, (R, K) and (R, K L), and its tangents of s and q."""
    n_radial, k_radial = len(shape.n_radial), len(shape.k_radial)
    n_angular, k_angular = len(shape.n_angular), len(shape.k_angular)
    n_components = len(shape.components)
    half, zero = k_angular * n_components, data.parity.dtype.type(0)
    rate[:] = zero
    q_dot[:] = zero
    first = data.row_start[atom]
    start = data.radial_start[first]
    for row in range(first, data.row_start[atom + 1]):
        group, place = data.group[row], row - first
        for k in range(k_radial):
            radial[place, k] = zero
        for d in range(data.radial_start[row], data.radial_start[row + 1]):
            code = data.radial_code[d]
            h, stretch = code if code >= 0 else ~code, change[d - start, 3]
            for k in range(k_radial):
                radial[place, k] += stretch * data.radial_slope[h, k]
        for k in range(k_radial):
            for n in range(n_radial):
                q_dot[n] += radial_c[group, n, k] * radial[place, k]
        if data.angular_start[row] == data.angular_start[row + 1]:
            continue
        angular_tangent(shape, data, row, start, change, work)
        for m in range(n_components):
            for k in range(k_angular):
                t = k * n_components + m
                work[t] += data.parity[m] * work[half + t]
                angular[place, t] = work[t]
        for m in range(n_components):
            for n in range(n_angular):
                total = zero
                for k in range(k_angular):
                    total += angular_c[group, n, k] * work[k * n_components + m]
                rate[n * n_components + m] += total


@inlined
def row_gradients(
    atom, row_shift, shape, data, slope, bar, q_slope, q_bar,
    radial, angular, radial_out, angular_out,
):  # fmt: skip
    """Each row's part of dL/dc (R, n, K): of s_bar on a, and of dU/ds on its tangent."""
    n_radial, k_radial = len(shape.n_radial), len(shape.k_radial)
    n_angular, k_angular = len(shape.n_angular), len(shape.k_angular)
    n_components = len(shape.components)
    zero, first = data.parity.dtype.type(0), data.row_start[atom]
    for row in range(first, data.row_start[atom + 1]):
        place, t = row + row_shift, row - first
        for n in range(n_radial):
            for k in range(k_radial):
                radial_out[place, n, k] = (
                    q_bar[n] * data.radial_density[row, k] + q_slope[n] * radial[t, k]
                )
        if data.angular_start[row] == data.angular_start[row + 1]:
            angular_out[place] = zero
            continue
        density, last = data.angular_density[row], k_angular - 1
        for n in range(n_angular):
            for k in range(0, k_angular, 3):  # three at once; the last ones perhaps twice
                k_1, k_2 = min(k + 1, last), min(k + 2, last)
                x_0, x_1, x_2 = zero, zero, zero
                for m in range(len(data.parity)):  # no constant, which would unroll the sums
                    on_a, on_dot = bar[n * n_components + m], slope[n * n_components + m]
                    a, b, c = (k * n_components + m, k_1 * n_components + m, k_2 * n_components + m)
                    x_0 += on_a * density[a] + on_dot * angular[t, a]
                    x_1 += on_a * density[b] + on_dot * angular[t, b]
                    x_2 += on_a * density[c] + on_dot * angular[t, c]
                out = angular_out[place, n]
                out[k], out[k_1], out[k_2] = x_0, x_1, x_2


@inner
def largest(first, last, data, batch):
    """Most rows and most directed pairs of an atom."""
    rows, pairs = 0, 0
    for i in range(first, last):
        start, stop = data.row_start[batch.atom[i]], data.row_start[batch.atom[i] + 1]
        rows = max(rows, stop - start)
        pairs = max(pairs, data.radial_start[stop] - data.radial_start[start])
    return rows, pairs


@inner
def of_atoms(
    first, last, shape, data, batch, radial_c, angular_c, types, weights, output, scaler,
    s, s_slope, q_slope, values, slopes, energy_bar, force_bar, virial_bar,
    x_dot, value_dots, x_bars, radial_out, angular_out,
):  # fmt: skip
    """What atoms first to last leave for the sums over atoms and rows.

    Of the networks: tangents of what goes into each layer and of its values, gradient to what goes
    into tanh. Of the coefficients: each row's part of the gradient.
    """
    k_radial, k_angular = len(shape.k_radial), len(shape.k_angular)
    length, half = s.shape[1], k_angular * len(shape.components)
    rows, pairs = largest(first, last, data, batch)
    change, radial = np.empty((pairs, 4), s.dtype), np.empty((rows, k_radial), s.dtype)
    work, angular = np.empty(2 * half, s.dtype), np.empty((rows, half), s.dtype)
    rate, bar, q_bar = np.empty(length, s.dtype), np.empty(length, s.dtype), np.empty_like(scaler)
    rates = np.empty((len(weights), max([w.shape[1] for w in weights])), s.dtype)
    for i in range(first, last):
        atom, slot = batch.atom[i], batch.slot[i]
        changes(atom, slot, data, batch, force_bar, virial_bar, change)
        tangents(
            atom, shape, data, radial_c, angular_c, change, work, radial, angular, rate, x_dot[i]
        )
        push(shape, data, s[i], rate, x_dot[i])
        for d in range(len(scaler)):
            x_dot[i, d] *= scaler[d]
        adjoint(
            i, types[i], weights, output, values, slopes, energy_bar[i], x_dot, value_dots, x_bars,
            rates, q_bar,
        )  # fmt: skip
        for d in range(len(scaler)):
            q_bar[d] *= scaler[d]
        pull(shape, data, s[i], q_bar, bar)
        pull_push(shape, data, s[i], rate, q_slope[i], bar)
        row_gradients(
            atom, batch.row_shift[slot], shape, data, s_slope[i], bar, q_slope[i], q_bar,
            radial, angular, radial_out, angular_out,
        )  # fmt: skip


@inner
def sum_rows(first, last, data, batch, radial, angular, radial_out, angular_out):
    """Sum the rows (R, A) of each pair type from first to last, in the order of the rows."""
    radial_out[first:last] = 0
    angular_out[first:last] = 0
    for slot in range(len(batch.row_shift)):
        for place in range(batch.row_start[slot], batch.row_start[slot + 1]):
            group = data.group[place - batch.row_shift[slot]]
            if first <= group < last:
                for k in range(radial.shape[1]):
                    radial_out[group, k] += radial[place, k]
                for k in range(angular.shape[1]):
                    angular_out[group, k] += angular[place, k]


@jit
def backward(
    part, n_parts, crowd, ends, shape, data, batch, radial_c, angular_c, types, weights, output,
    scaler, s, s_slope, q_slope, values, slopes, energy_bar, force_bar, virial_bar,
    x_dot, value_dots, x_bars, radial, angular, inputs, atoms,
    radial_out, angular_out, weight_out, bias_out, output_out, element_out,
):  # fmt: skip
    """The gradient: first atom by atom, then each thread sums some neurons and pair types."""
    of_atoms(
        ends[part], ends[part + 1], shape, data, batch, radial_c, angular_c, types, weights, output,
        scaler, s, s_slope, q_slope, values, slopes, energy_bar, force_bar, virial_bar,
        x_dot, value_dots, x_bars, radial, angular,
    )  # fmt: skip
    meet(crowd)
    n_groups = len(radial_out)
    first, last = share(n_groups, part, n_parts)
    sum_rows(
        first, last, data, batch, radial.reshape(len(radial), radial_out.shape[1]),
        angular.reshape(len(angular), angular_out.shape[1]), radial_out, angular_out,
    )  # fmt: skip
    weight_gradients(
        part, n_parts, atoms, values, slopes, energy_bar, inputs, x_dot, value_dots, x_bars,
        weight_out, bias_out, output_out, element_out,
    )  # fmt: skip
