"""The loss of a batch and its derivatives: the sums of train/loss.py in two launches.

First, a program a frame: its energy and virial from its atoms, and its weighted squares of errors.
Then, atoms and frames: slopes from the sums of all frames, and the derivatives.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from .launch import options, padded
from .sums import of_products

# Labels and weights of a batch (train/targets.py), and what the kernels call their strides.
LABELS = (
    "energy", "energy_weight", "virial", "virial_weight", "forces", "force_weight", "force_norm",
)  # fmt: skip
STRIDES = ("E", "EW", "V", "VW", "F", "FW", "FN")


@triton.jit
def _force_weight(weight, norm, type_weight, delta):
    """GPUMD's weight of a force: without force_delta there is no damping."""
    damping = tl.where(delta > 0, delta / tl.where(delta > 0, delta + norm, 1.0), 1.0)
    return weight * type_weight * damping


@triton.jit
def frames_kernel(
    atom_energy, sums, start, types, energy_at, energy_weight, virial_at, virial_weight,
    force_at, force_weight, force_norm, type_weight, component_weight, force_delta,
    energy, virial, parts, n_frames,
    E: tl.constexpr, EW: tl.constexpr, V: tl.constexpr, VW: tl.constexpr,
    F: tl.constexpr, FW: tl.constexpr, FN: tl.constexpr, ATOMS: tl.constexpr,
):  # fmt: skip
    """energy (B,), virial (B, 6) and parts (B, 6): squares of E, F, V and their label counts.

    E to FN: strides of the labels and weights, in the order of LABELS.
    """
    frame = tl.program_id(0)
    first, last = tl.load(start + frame), tl.load(start + frame + 1)
    delta = tl.load(force_delta)
    c = tl.arange(0, 8)
    is_c = c < 6
    zero = tl.zeros((ATOMS,), dtype=energy.dtype.element_ty)
    total, square, count = zero, zero, zero
    stress = tl.zeros((ATOMS, 8), dtype=energy.dtype.element_ty)
    for step in range(first, last, ATOMS):
        atom = step + tl.arange(0, ATOMS)
        real = atom < last
        at = atom.to(tl.int64)
        total += tl.load(atom_energy + at, mask=real, other=0.0)
        cell = at[:, None] * 9 + 3 + c[None, :]
        stress += tl.load(sums + cell, mask=real[:, None] & is_c[None, :], other=0.0)
        labelled = tl.load(force_weight + at * FW, mask=real, other=0.0)
        norm = tl.load(force_norm + at * FN, mask=real, other=0.0)
        kind = tl.load(types + at, mask=real, other=0)
        of_type = tl.load(type_weight + kind, mask=real, other=0.0)
        weight = _force_weight(labelled, norm, of_type, delta)
        for axis in tl.static_range(3):
            error = tl.load(sums + at * 9 + axis, mask=real, other=0.0)
            error -= tl.load(force_at + at * F + axis, mask=real, other=0.0)
            square += weight * error * error
        count += tl.where(labelled > 0, 3.0, 0.0).to(count.dtype)
    value = tl.sum(total, 0)
    tl.store(energy + frame, value)
    pressure = tl.sum(stress, 0)
    tl.store(virial + frame * 6 + c, pressure, mask=is_c)
    label = frame.to(tl.int64)
    weight = tl.load(energy_weight + label * EW)
    error = value - tl.load(energy_at + label * E)
    out = parts + frame * 6
    tl.store(out, weight * error * error)
    tl.store(out + 1, tl.sum(square, 0))
    of_frame = tl.load(virial_weight + label * VW)
    error6 = pressure - tl.load(virial_at + label * V + c, mask=is_c, other=0.0)
    weight6 = of_frame * tl.load(component_weight + c, mask=is_c, other=0.0)
    tl.store(out + 2, of_products(weight6 * error6, error6, 0))
    tl.store(out + 3, tl.where(weight > 0, 1.0, 0.0))
    tl.store(out + 4, tl.sum(count, 0))
    tl.store(out + 5, tl.where(of_frame > 0, 6.0, 0.0))


@triton.jit
def _slope(
    parts, factor, which, n_frames, RMSE: tl.constexpr, TINY: tl.constexpr, FRAMES: tl.constexpr
):
    """Mean square of one kind of label, its share of the loss, and d loss / d (weight error)."""
    square = tl.zeros((FRAMES,), dtype=parts.dtype.element_ty)
    count = tl.zeros((FRAMES,), dtype=parts.dtype.element_ty)
    for step in range(0, n_frames, FRAMES):
        frame = step + tl.arange(0, FRAMES)
        here = frame < n_frames
        square += tl.load(parts + frame * 6 + which, mask=here, other=0.0)
        count += tl.load(parts + frame * 6 + which + 3, mask=here, other=0.0)
    labels = tl.maximum(tl.sum(count, 0), 1.0)
    mean = tl.sum(square, 0) / labels
    weight = tl.load(factor + which)
    slope = 2.0 * weight / labels
    share = weight * mean
    if RMSE:
        root = tl.sqrt(mean)
        share = weight * root
        slope = slope / (2.0 * tl.maximum(root, TINY))
    return mean, share, slope


@triton.jit
def slopes_kernel(
    parts, factors, sums, types, atom_frame, energy, energy_at, energy_weight,
    virial, virial_at, virial_weight, force_at, force_weight, force_norm,
    type_weight, component_weight, force_delta,
    value, terms, to_atoms, to_energy, to_forces, to_virial, n_parts, n_frames, n_atoms,
    E: tl.constexpr, EW: tl.constexpr, V: tl.constexpr, VW: tl.constexpr,
    F: tl.constexpr, FW: tl.constexpr, FN: tl.constexpr,
    RMSE: tl.constexpr, TINY: tl.constexpr, FRAMES: tl.constexpr, ATOMS: tl.constexpr,
):  # fmt: skip
    """Derivatives to atom energies, forces, energies and virials; one program also the loss."""
    e_mean, e_share, e_slope = _slope(parts, factors, 0, n_parts, RMSE, TINY, FRAMES)
    f_mean, f_share, f_slope = _slope(parts, factors, 1, n_parts, RMSE, TINY, FRAMES)
    v_mean, v_share, v_slope = _slope(parts, factors, 2, n_parts, RMSE, TINY, FRAMES)
    if tl.program_id(0) == 0:
        tl.store(value, e_share + f_share + v_share)
        tl.store(terms, e_mean)
        tl.store(terms + 1, f_mean)
        tl.store(terms + 2, v_mean)
    atom = tl.program_id(0) * ATOMS + tl.arange(0, ATOMS)
    real = atom < n_atoms
    at = atom.to(tl.int64)
    frame = tl.load(atom_frame + at, mask=real, other=0)
    label = frame.to(tl.int64)
    error = tl.load(energy + frame, mask=real, other=0.0)
    error -= tl.load(energy_at + label * E, mask=real, other=0.0)
    tl.store(
        to_atoms + at,
        e_slope * (tl.load(energy_weight + label * EW, mask=real, other=0.0) * error),
        mask=real,
    )
    norm = tl.load(force_norm + at * FN, mask=real, other=0.0)
    kind = tl.load(types + at, mask=real, other=0)
    of_type = tl.load(type_weight + kind, mask=real, other=0.0)
    labelled = tl.load(force_weight + at * FW, mask=real, other=0.0)
    weight = _force_weight(labelled, norm, of_type, tl.load(force_delta))
    for axis in tl.static_range(3):
        error = tl.load(sums + at * 9 + axis, mask=real, other=0.0)
        error -= tl.load(force_at + at * F + axis, mask=real, other=0.0)
        tl.store(to_forces + at * 3 + axis, f_slope * (weight * error), mask=real)
    # There are at least as many atoms as frames.
    here = atom < n_frames
    weight = tl.load(energy_weight + at * EW, mask=here, other=0.0)
    error = tl.load(energy + atom, mask=here, other=0.0)
    error -= tl.load(energy_at + at * E, mask=here, other=0.0)
    tl.store(to_energy + atom, e_slope * (weight * error), mask=here)
    of_frame = tl.load(virial_weight + at * VW, mask=here, other=0.0)
    for c in tl.static_range(6):
        weight = of_frame * tl.load(component_weight + c)
        error = tl.load(virial + atom * 6 + c, mask=here, other=0.0)
        error -= tl.load(virial_at + at * V + c, mask=here, other=0.0)
        tl.store(to_virial + atom * 6 + c, v_slope * (weight * error), mask=here)


class BatchLoss:
    """Both launches on one batch. ``rules`` as in train/loss.py."""

    def __init__(self, batch, rules, atom_energy: Tensor, sums: Tensor):
        """``atom_energy`` (N,) eV; ``sums`` (N, 9): forces and halves of the virials of pairs."""
        self.batch, self.rules, self.sums_of_atoms = batch, rules, sums
        tables, n_frames = batch.tables, len(batch)
        # Cut out on the device labels lie side by side in one table; sent there each has its own.
        self.labels = [tables[name] for name in LABELS]
        self.strides = {key: t.stride(0) for key, t in zip(STRIDES, self.labels)}
        self.energy, self.virial = sums.new_empty(n_frames), sums.new_empty(n_frames, 6)
        # (B, 6) squares of energies, forces, virials and their label counts
        self.parts = sums.new_empty(n_frames, 6)
        frames_kernel[(n_frames,)](
            atom_energy, sums, batch.atom_start, batch.types,
            *self.labels, rules.types, rules.virial, rules.force_delta,
            self.energy, self.virial, self.parts, n_frames, **self.strides, **options("loss_frames"),
        )  # fmt: skip

    def derivatives(self, totals: Tensor | None = None):
        """Loss (), mean squares (3,), and dL/d of atom energies, energies, forces, virials.

        ``totals`` (6,): the sum of ``parts`` of a larger batch.
        """
        batch, rules, sums = self.batch, self.rules, self.sums_of_atoms
        parts = self.parts if totals is None else totals[None]
        n_atoms, n_frames = len(batch.types), len(batch)
        value, terms = sums.new_empty(()), sums.new_empty(3)
        to_atoms, to_energy = sums.new_empty(n_atoms), sums.new_empty(n_frames)
        to_forces, to_virial = sums.new_empty(n_atoms, 3), sums.new_empty(n_frames, 6)
        chosen = options("loss_slopes")
        slopes_kernel[(triton.cdiv(max(n_atoms, n_frames), chosen["ATOMS"]),)](
            parts, rules.factors, sums, batch.types, batch.atom_frame,
            self.energy, *self.labels[:2], self.virial, *self.labels[2:],
            rules.types, rules.virial, rules.force_delta,
            value, terms, to_atoms, to_energy, to_forces, to_virial,
            len(parts), n_frames, n_atoms, **self.strides,
            RMSE=rules.form == "rmse", TINY=torch.finfo(sums.dtype).tiny,
            FRAMES=min(padded(len(parts)), 256), **chosen,
        )  # fmt: skip
        return value, terms, to_atoms, to_energy, to_forces, to_virial
