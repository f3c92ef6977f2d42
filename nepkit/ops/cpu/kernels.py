"""The passes over pairs of a training step, compiled by numba for CPUs.

Each kernel works on a range of a batch's atoms and writes only what belongs to them, so that
ranges run side by side in threads and no result depends on their number. Signs and formulas are
those of ops/geometry.py and model/invariants.py, the definitions. ``data`` and ``batch`` are
PairData and Place of launch.py; ``shape`` holds sizes as the
lengths of its tuples, which are constants to the compiler. ``code`` tells a directed pair by its half pair: h for i -> j, ~h
for j -> i, where r and all odd harmonics change sign.

How the loops are written decides their speed. Sums over neighbours of one atom or row are kept as
flat arrays, component m of function k at k * L + m with a constant L; then numba turns the loop
over m into vector instructions, with the loops over k and n unrolled inside it. With arrays of two
dimensions or the loops the other way round it stays scalar, up to eight times slower.
"""

from __future__ import annotations

import numpy as np

from .atoms import pull, pull_push, push, values
from .jit import jit


@jit
def densities(first, last, shape, data, radial, radial_out, angular_out):
    """a_R (R, K) and a_A (R, K L) of the rows first to last."""
    k_radial = len(shape.k_radial)
    k_angular = len(shape.k_angular)
    n_components = len(shape.components)
    real = data.parity.dtype.type
    zero = real(0)
    odd = np.empty(k_angular * n_components, real)
    for row in range(first, last):
        radial_out[row] = zero
        for d in range(data.radial_start[row], data.radial_start[row + 1]):
            code = data.radial_code[d]
            h = code if code >= 0 else ~code
            for k in range(k_radial):
                radial_out[row, k] += radial[h, k]
        even = angular_out[row]
        even[:] = zero
        odd[:] = zero
        for d in range(data.angular_start[row], data.angular_start[row + 1]):
            code = data.angular_code[d]
            h = code if code >= 0 else ~code
            target = even if code >= 0 else odd
            basis, y = data.angular_basis[h], data.harmonics[h]
            for m in range(n_components):
                for k in range(k_angular):
                    target[k * n_components + m] += basis[k] * y[m]
        for m in range(n_components):
            for k in range(k_angular):
                even[k * n_components + m] += data.parity[m] * odd[k * n_components + m]


@jit
def descriptors(first, last, shape, data, batch, radial_c, angular_c, s_out, q_out):
    """s (N, n L) and descriptors q (N, D), not scaled."""
    n_radial = len(shape.n_radial)
    k_radial = len(shape.k_radial)
    n_angular = len(shape.n_angular)
    k_angular = len(shape.k_angular)
    n_components = len(shape.components)
    zero = data.parity.dtype.type(0)
    for i in range(first, last):
        atom, s, q = batch.atom[i], s_out[i], q_out[i]
        s[:] = zero
        q[:] = zero
        for row in range(data.row_start[atom], data.row_start[atom + 1]):
            group = data.group[row]
            for n in range(n_radial):
                for k in range(k_radial):
                    q[n] += radial_c[group, n, k] * data.radial_density[row, k]
            if data.angular_start[row] == data.angular_start[row + 1]:
                continue
            c, density = angular_c[group], data.angular_density[row]
            for m in range(n_components):
                for n in range(n_angular):
                    total = zero
                    for k in range(k_angular):
                        total += c[n, k] * density[k * n_components + m]
                    s[n * n_components + m] += total
        values(shape, data, s, q)


@jit
def pair_forces(first, last, shape, data, batch, radial_c, angular_c, s, q_slope, s_slope, out):
    """dU/ds (N, n L), and dU_i/dr_ij (P, 3) of the directed pairs, from dU/dq (N, D)."""
    n_radial = len(shape.n_radial)
    k_radial = len(shape.k_radial)
    n_angular = len(shape.n_angular)
    k_angular = len(shape.k_angular)
    n_components = len(shape.components)
    real = data.parity.dtype.type
    zero = real(0)
    here = np.empty(k_angular * n_components, real)  # dU/da seen along i -> j
    there = np.empty(k_angular * n_components, real)  # and along j -> i
    weights = np.empty(k_radial, real)
    for i in range(first, last):
        atom, shift = batch.atom[i], batch.pair_shift[batch.slot[i]]
        slope = s_slope[i]
        pull(shape, data, s[i], q_slope[i], slope)
        for row in range(data.row_start[atom], data.row_start[atom + 1]):
            group = data.group[row]
            for k in range(k_radial):
                weights[k] = zero
                for n in range(n_radial):
                    weights[k] += q_slope[i, n] * radial_c[group, n, k]
            for d in range(data.radial_start[row], data.radial_start[row + 1]):
                code = data.radial_code[d]
                h = code if code >= 0 else ~code
                force = zero
                for k in range(k_radial):
                    force += weights[k] * data.radial_slope[h, k]
                if code < 0:
                    force = -force
                for x in range(3):
                    out[shift + d, x] = force * data.unit[h, x]
            if data.angular_start[row] == data.angular_start[row + 1]:
                continue
            c = angular_c[group]
            for m in range(n_components):
                for k in range(k_angular):
                    total = zero
                    for n in range(n_angular):
                        total += c[n, k] * slope[n * n_components + m]
                    here[k * n_components + m] = total
                    there[k * n_components + m] = -data.parity[m] * total
            for d in range(data.angular_start[row], data.angular_start[row + 1]):
                code = data.angular_code[d]
                h = code if code >= 0 else ~code
                seen = here if code >= 0 else there
                basis, y = data.angular_basis[h], data.harmonics[h]
                force, p_0, p_1, p_2 = zero, zero, zero, zero
                for m in range(n_components):
                    along, outward = zero, zero
                    for k in range(k_angular):
                        along += basis[k] * seen[k * n_components + m]
                        outward += basis[k_angular + k] * seen[k * n_components + m]
                    force += outward * y[m]
                    p_0 += along * y[n_components + m]
                    p_1 += along * y[2 * n_components + m]
                    p_2 += along * y[3 * n_components + m]
                pair = data.angular_half[h]
                target = shift + (data.first[pair] if code >= 0 else data.second[pair])
                out[target, 0] += p_0 + force * data.unit[pair, 0]
                out[target, 1] += p_1 + force * data.unit[pair, 1]
                out[target, 2] += p_2 + force * data.unit[pair, 2]


@jit
def forces(first, last, shape, data, batch, pairs, out, virials):
    """F_i = sum_j (p_ij - p_ji), and each atom's part of the virial, -sum_j r_ij p_ij (N, 6)."""
    real = data.parity.dtype.type
    zero = real(0)
    for i in range(first, last):
        atom, shift = batch.atom[i], batch.pair_shift[batch.slot[i]]
        out[i] = zero
        virials[i] = zero
        start = data.radial_start[data.row_start[atom]]
        for d in range(start, data.radial_start[data.row_start[atom + 1]]):
            code = data.radial_code[d]
            h = code if code >= 0 else ~code
            reverse = shift + (data.second[h] if code >= 0 else data.first[h])
            sign = real(-1) if code >= 0 else real(1)
            for x in range(3):
                out[i, x] += pairs[shift + d, x] - pairs[reverse, x]
                r = sign * data.vectors[h, x]
                virials[i, x] += r * pairs[shift + d, x]
                virials[i, 3 + x] += r * pairs[shift + d, (x + 1) % 3]


@jit
def changes(first, last, shape, data, batch, force_bar, virial_bar, out):
    """v = dL/dF_i - dL/dF_j - (dL/dW)^T r of the batch's half pairs, and v . r/|r|: (H, 4)."""
    for slot in range(len(batch.atom_shift)):
        shift, atom_shift = batch.pair_shift[slot] // 2, batch.atom_shift[slot]
        start, stop = batch.half_start[slot], batch.half_start[slot + 1]
        for t in range(max(first, start), min(last, stop)):
            h = t - shift
            a, b = data.center[h] + atom_shift, data.neighbor[h] + atom_shift
            r, unit, w = data.vectors[h], data.unit[h], virial_bar[slot]
            v_0 = force_bar[a, 0] - force_bar[b, 0] - w[0] * r[0] - w[5] * r[2]
            v_1 = force_bar[a, 1] - force_bar[b, 1] - w[1] * r[1] - w[3] * r[0]
            v_2 = force_bar[a, 2] - force_bar[b, 2] - w[2] * r[2] - w[4] * r[1]
            out[t, 0], out[t, 1], out[t, 2] = v_0, v_1, v_2
            out[t, 3] = v_0 * unit[0] + v_1 * unit[1] + v_2 * unit[2]


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
    odd = np.empty(k_angular * n_components, real)
    for i in range(first, last):
        atom, slot = batch.atom[i], batch.slot[i]
        shift = batch.pair_shift[slot] // 2
        rate = s_dot[i]
        rate[:] = zero
        q_dot[i] = zero
        for row in range(data.row_start[atom], data.row_start[atom + 1]):
            group, place = data.group[row], row + batch.row_shift[slot]
            density = radial_rows[place]
            density[:] = zero
            for d in range(data.radial_start[row], data.radial_start[row + 1]):
                code = data.radial_code[d]
                h = code if code >= 0 else ~code
                stretch = change[h + shift, 3]
                for k in range(k_radial):
                    density[k] += stretch * data.radial_slope[h, k]
            for n in range(n_radial):
                for k in range(k_radial):
                    q_dot[i, n] += radial_c[group, n, k] * density[k]
            if data.angular_start[row] == data.angular_start[row + 1]:
                continue
            even = angular_rows[place]
            even[:] = zero
            odd[:] = zero
            for d in range(data.angular_start[row], data.angular_start[row + 1]):
                code = data.angular_code[d]
                h = code if code >= 0 else ~code
                v = change[data.angular_half[h] + shift]
                basis, y = data.angular_basis[h], data.harmonics[h]
                target = even if code >= 0 else odd
                v_0, v_1, v_2, stretch = v[0], v[1], v[2], v[3]
                for m in range(n_components):
                    turned = (
                        v_0 * y[n_components + m]
                        + v_1 * y[2 * n_components + m]
                        + v_2 * y[3 * n_components + m]
                    )
                    stretched = stretch * y[m]
                    for k in range(k_angular):
                        target[k * n_components + m] += (
                            basis[k] * turned + basis[k_angular + k] * stretched
                        )
            c = angular_c[group]
            for m in range(n_components):
                for k in range(k_angular):
                    even[k * n_components + m] += data.parity[m] * odd[k * n_components + m]
            for m in range(n_components):
                for n in range(n_angular):
                    total = zero
                    for k in range(k_angular):
                        total += c[n, k] * even[k * n_components + m]
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
            density, rate = data.angular_density[row], angular_rows[place]
            for n in range(n_angular):
                b = bar[n * n_components : (n + 1) * n_components]
                w = slope[n * n_components : (n + 1) * n_components]
                for k in range(k_angular):
                    a = density[k * n_components : (k + 1) * n_components]
                    t = rate[k * n_components : (k + 1) * n_components]
                    total = zero
                    for m in range(len(data.parity)):
                        total += b[m] * a[m] + w[m] * t[m]
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
