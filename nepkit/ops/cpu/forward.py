"""The passes over pairs of a training step, compiled by numba for CPUs.

Each kernel works on a range of a batch's atoms and writes only what belongs to them, so that
ranges run side by side in threads and no result depends on their number. Signs and formulas are
those of ops/geometry.py and model/invariants.py, the definitions. ``data`` and ``batch`` are
PairData and Place of launch.py; ``shape`` holds sizes as the lengths of its tuples, which are
constants to the compiler. ``code`` tells a directed pair by its half pair: h for i -> j, ~h for
j -> i, where r and all odd harmonics change sign.

How the loops are written decides their speed. Sums over neighbours of one atom or row are kept as
flat arrays, component m of function k at k * L + m with a constant L; then numba turns the loop
over m into vector instructions, with the loops over k and n unrolled inside it. With arrays of two
dimensions or the loops the other way round it stays scalar, up to eight times slower. So it does
where the innermost loop is short and of constant length, for it is unrolled first, and where an
index may be negative for all that the compiler knows, as the difference of two others may.

A kernel kept on disk is compiled anew only when its own file changes: change this one with what it
calls.
"""

from __future__ import annotations

import numpy as np

from .atoms import pull, values
from .crowd import meet
from .jit import inner, jit
from .network import evaluate


@jit
def densities(first, last, shape, data, radial, radial_out, angular_out):
    """a_R (R, K) and a_A (R, K L) of the rows first to last."""
    k_radial = len(shape.k_radial)
    k_angular = len(shape.k_angular)
    n_components = len(shape.components)
    real = data.parity.dtype.type
    zero = real(0)
    half = k_angular * n_components
    work = np.empty(2 * half, real)  # sums over i -> j, then over j -> i
    for row in range(first, last):
        for k in range(k_radial):
            radial_out[row, k] = zero
        for d in range(data.radial_start[row], data.radial_start[row + 1]):
            code = data.radial_code[d]
            h = code if code >= 0 else ~code
            for k in range(k_radial):
                radial_out[row, k] += radial[h, k]
        work[:] = zero
        for d in range(data.angular_start[row], data.angular_start[row + 1]):
            code = data.angular_code[d]
            h, side = (code, 0) if code >= 0 else (~code, half)
            for m in range(n_components):
                for k in range(k_angular):
                    work[side + k * n_components + m] += (
                        data.angular_basis[h, k] * data.harmonics[h, m]
                    )
        for m in range(n_components):
            for k in range(k_angular):
                place = k * n_components + m
                angular_out[row, place] = work[place] + data.parity[m] * work[half + place]


@inner
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
            for m in range(n_components):
                for n in range(n_angular):
                    total = zero
                    for k in range(k_angular):
                        density = data.angular_density[row, k * n_components + m]
                        total += angular_c[group, n, k] * density
                    s[n * n_components + m] += total
        values(shape, data, s, q)


@inner
def pair_forces(first, last, shape, data, batch, radial_c, angular_c, s, q_slope, s_slope, out):
    """dU/ds (N, n L), and dU_i/dr_ij (P, 3) of the directed pairs, from dU/dq (N, D)."""
    n_radial = len(shape.n_radial)
    k_radial = len(shape.k_radial)
    n_angular = len(shape.n_angular)
    k_angular = len(shape.k_angular)
    n_components = len(shape.components)
    real = data.parity.dtype.type
    zero = real(0)
    half = k_angular * n_components
    work = np.empty(2 * half, real)  # dU/da seen along i -> j, then along j -> i
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
            for m in range(n_components):
                for k in range(k_angular):
                    total = zero
                    for n in range(n_angular):
                        total += angular_c[group, n, k] * slope[n * n_components + m]
                    work[k * n_components + m] = total
                    work[half + k * n_components + m] = -data.parity[m] * total
            for d in range(data.angular_start[row], data.angular_start[row + 1]):
                code = data.angular_code[d]
                h, side = (code, 0) if code >= 0 else (~code, half)
                force, p_0, p_1, p_2 = zero, zero, zero, zero
                for m in range(n_components):
                    along, outward = zero, zero
                    for k in range(k_angular):
                        seen = work[side + k * n_components + m]
                        along += data.angular_basis[h, k] * seen
                        outward += data.angular_basis[h, k_angular + k] * seen
                    force += outward * data.harmonics[h, m]
                    p_0 += along * data.harmonics[h, n_components + m]
                    p_1 += along * data.harmonics[h, 2 * n_components + m]
                    p_2 += along * data.harmonics[h, 3 * n_components + m]
                pair = data.angular_half[h]
                target = shift + (data.first[pair] if code >= 0 else data.second[pair])
                out[target, 0] += p_0 + force * data.unit[pair, 0]
                out[target, 1] += p_1 + force * data.unit[pair, 1]
                out[target, 2] += p_2 + force * data.unit[pair, 2]


@inner
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


@inner
def sum_frames(first, last, atom_start, energies, virials, frame_energies, frame_virials):
    """Energies (B,) and virials (B, 6) of the frames whose first atom is first or comes before last."""
    for frame in range(len(frame_energies)):
        if first <= atom_start[frame] < last:
            for i in range(atom_start[frame], atom_start[frame + 1]):
                frame_energies[frame] += energies[i]
                for x in range(6):
                    frame_virials[frame, x] += virials[i, x]


@jit
def forward(
    part, n_parts, crowd, ends, shape, data, batch, atom_start, radial_c, angular_c, types, weights,
    biases, output, element, scaler, s, q, scaled, values, energies, slopes, q_slope, s_slope, pairs,
    force, virials, frame_energies, frame_virials,
):  # fmt: skip
    """Energies, forces and virials, by atom and frame; those of the frames must hold 0."""
    first, last = ends[part], ends[part + 1]
    descriptors(first, last, shape, data, batch, radial_c, angular_c, s, q)
    # Written out: the compiler would spend seconds on the errors of assigning arrays.
    for i in range(first, last):
        for d in range(len(scaler)):
            scaled[i, d] = q[i, d] * scaler[d]
    evaluate(first, last, types, weights, biases, output, scaled, values, energies, slopes, q_slope)
    for i in range(first, last):
        energies[i] += element[types[i]]
        for d in range(len(scaler)):
            q_slope[i, d] *= scaler[d]
    pair_forces(first, last, shape, data, batch, radial_c, angular_c, s, q_slope, s_slope, pairs)
    meet(crowd)
    forces(first, last, shape, data, batch, pairs, force, virials)
    meet(crowd)
    sum_frames(first, last, atom_start, energies, virials, frame_energies, frame_virials)
