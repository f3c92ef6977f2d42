"""Energies, forces and virials of moving atoms: one pass, atom by atom, that keeps nothing.

An atom's neighbours are looked up, its densities, descriptors, energy and the forces on its pairs are
computed while they lie in the processor's first cache, and the forces are added to both ends. Each
thread has an array of forces of its own, and the sum over threads follows: no result depends on
chance, and in float64 next to nothing on the number of threads. Formulas are those of ops/geometry.py
and model/, the definitions; ``shape`` as in forward.py.

A kernel kept on disk is compiled anew only when its own file changes: change this one with what it
calls (near.py, angular.py, repulsion.py, atoms.py, network.py).
"""

from __future__ import annotations

import math

import numpy as np

from . import angular, near
from .atoms import pull, values
from .jit import inlined, inner, jit
from .network import evaluate
from .records import Work
from .repulsion import pair_energy


@inner
def workspace(shape, model, pairs, first, last):
    """Room for the atom of first to last that has most neighbours."""
    pairs_at_most, rows_at_most, real = 0, 0, model.scaler.dtype
    for i in range(first, last):
        begin, end = pairs.row_start[i], pairs.row_start[i + 1]
        rows_at_most = max(rows_at_most, end - begin)
        pairs_at_most = max(pairs_at_most, pairs.pair_start[end] - pairs.pair_start[begin])
    n, m = pairs_at_most + 1, rows_at_most + 1
    return Work(
        np.empty(n, np.int32), np.empty(n, real), np.empty(n, real), np.empty(n, real),
        np.empty(n, real), np.empty(n, np.int32), np.empty(m, np.int64), np.empty(m, np.int64),
        np.empty(n, real), np.empty(3 * near.CHUNK, real), np.empty(len(shape.k_radial), real),
        np.empty(len(shape.k_radial), real), np.empty(len(shape.k_angular), real),
        np.empty(len(shape.k_angular), real), np.empty(2 * len(shape.l_max) + 1, real),
        np.empty((n, 2 * len(shape.n_angular)), real),
        np.empty((n, 4 * len(shape.components)), real),
    )  # fmt: skip


@inlined
def descriptors(i, first_row, n_rows, shape, model, pairs, types, work, s, q):
    """Descriptors of atom i, not scaled, and its sums over neighbours s (n L,)."""
    n_radial, k_radial, n_types = (
        len(shape.n_radial),
        len(shape.k_radial),
        len(model.element_energy),
    )
    zero = q.dtype.type(0)
    s[:] = zero
    q[:] = zero
    begin, near_begin = 0, 0
    for row in range(n_rows):
        pair_type = types[i] * n_types + pairs.row_type[first_row + row]
        end, near_end = work.row_end[row], work.near_end[row]
        cutoff = model.radial_cutoff[pair_type]
        near.radial_sums(begin, end, cutoff, work.square, work.chunk, work.sums)
        for k in range(k_radial):
            for n in range(n_radial):
                q[n] += model.radial_c[pair_type, n, k] * work.sums[k]
        angular.sums(pair_type, near_begin, near_end, shape, model, work, s)
        begin, near_begin = end, near_end
    values(shape, model, s, q)


@inlined
def radial_pulls(i, first_row, n_rows, shape, model, pairs, types, work, q_slope):
    """The radial part of dU_i/dr_ij, as a factor of the vector."""
    n_radial, k_radial, n_types = (
        len(shape.n_radial),
        len(shape.k_radial),
        len(model.element_energy),
    )
    begin = 0
    for row in range(n_rows):
        pair_type = types[i] * n_types + pairs.row_type[first_row + row]
        for k in range(k_radial):
            total = q_slope.dtype.type(0)
            for n in range(n_radial):
                total += q_slope[n] * model.radial_c[pair_type, n, k]
            work.weights[k] = total
        cutoff, end = model.radial_cutoff[pair_type], work.row_end[row]
        near.radial_forces(begin, end, cutoff, shape, work.weights, work.square, work.radial)
        begin = end


@inlined
def give(i, p, x, y, z, work, forces, own, virial, atom_virials):
    """Add dU_i/dr_ij = (x, y, z) to both ends of pair p and to the virials."""
    j = work.neighbor[p]
    forces[j, 0] -= x
    forces[j, 1] -= y
    forces[j, 2] -= z
    own[0] += x
    own[1] += y
    own[2] += z
    r_x, r_y, r_z = work.x[p], work.y[p], work.z[p]
    virial[0] -= r_x * x
    virial[1] -= r_y * y
    virial[2] -= r_z * z
    virial[3] -= r_x * y
    virial[4] -= r_y * z
    virial[5] -= r_z * x
    if len(atom_virials):
        pull_of = (x, y, z)
        for b in range(3):
            atom_virials[j, 0, b] -= r_x * pull_of[b]
            atom_virials[j, 1, b] -= r_y * pull_of[b]
            atom_virials[j, 2, b] -= r_z * pull_of[b]


@inlined
def pair_pulls(i, first_row, n_rows, shape, model, zbl, pairs, types, work, slope, out):
    """The forces on the pairs of atom i to its forces and virials; returns its ZBL energy."""
    forces, own, virial, atom_virials = out
    n_types, energy, near_begin = len(model.element_energy), 0.0, 0
    for p in range(work.row_end[n_rows - 1] if n_rows else 0):
        scale = work.radial[p]
        give(
            i, p, scale * work.x[p], scale * work.y[p], scale * work.z[p],
            work, forces, own, virial, atom_virials,
        )  # fmt: skip
    for row in range(n_rows):
        pair_type = types[i] * n_types + pairs.row_type[first_row + row]
        for k in range(near_begin, work.near_end[row]):
            p = work.near[k]
            x, y, z = angular.forces(k, shape, slope, work)
            if len(zbl.outer):
                r = math.sqrt(work.square[p])
                repelled, rate = pair_energy(r, pair_type, zbl)
                energy += 0.5 * repelled
                scale = 0.5 * rate / r
                x, y, z = x + scale * work.x[p], y + scale * work.y[p], z + scale * work.z[p]
            give(i, p, x, y, z, work, forces, own, virial, atom_virials)
        near_begin = work.near_end[row]
    return energy


@jit
def field(
    first, last, out, layer, shape, model, zbl, pairs, positions, shifts, types, frame,
    energies, q_out,
):  # fmt: skip
    """Energies (N,) eV and descriptors (N, D) of atoms first to last, and what they add to ``out``.

    ``frame`` (N,) is the structure of each atom, of B that lie side by side.
    """
    work = workspace(shape, model, pairs, first, last)
    scaler, real = model.scaler, model.scaler.dtype
    length = len(shape.n_angular) * len(shape.components)
    s, slope, q_slope = np.empty(length, real), np.empty(length, real), layer.q_slope[0]
    forces, virials, atom_virials, own = out.forces, out.virials, out.atom_virials, np.empty(3)
    forces[:] = 0.0
    virials[:] = 0.0
    atom_virials[:] = 0.0
    for i in range(first, last):
        n_rows = near.collect(i, model, pairs, positions, shifts, types, work)
        first_row, q = pairs.row_start[i], q_out[i]
        descriptors(i, first_row, n_rows, shape, model, pairs, types, work, s, q)
        for d in range(len(scaler)):
            layer.q[0, d] = q[d] * scaler[d]
        layer.type[0] = types[i]
        evaluate(
            0, 1, layer.type, model.weights, model.biases, model.output, layer.q,
            layer.values, layer.energy, layer.slopes, layer.q_slope,
        )  # fmt: skip
        for d in range(len(scaler)):
            q_slope[d] *= scaler[d]
        pull(shape, model, s, q_slope, slope)
        radial_pulls(i, first_row, n_rows, shape, model, pairs, types, work, q_slope)
        own[:] = 0.0
        sums = forces, own, virials[frame[i]], atom_virials
        repelled = pair_pulls(
            i, first_row, n_rows, shape, model, zbl, pairs, types, work, slope, sums
        )
        energies[i] = layer.energy[0] + model.element_energy[types[i]] + repelled
        for a in range(3):
            forces[i, a] += own[a]
