"""What the trainable part of the model has to reproduce: labels less all that is fixed."""

from __future__ import annotations

import numpy as np
import torch

from ..data.batch import VIRIAL_COLUMNS, VIRIAL_ROWS
from ..data.prepared import Prepared
from ..model.zbl import ZblTerms


def reference_energies(prepared: Prepared, known: np.ndarray, n_types: int) -> np.ndarray:
    """Energy of each element (T,) eV: least squares of the energies per atom, float64.

    ``known`` (F,) eV is what the frames hold without them.

    Frames count as in the loss, by weight and energy_weight.

    Where compositions leave a combination of elements undetermined it gets the smallest change;
    an element without data gets 0.
    """
    rows, values = [], []
    for frame, types, energy in zip(prepared.frames, prepared.types, known):
        if frame.energy is not None and frame.energy_weight > 0:
            factor = frame.weight * frame.energy_weight**0.5 / len(frame)
            rows.append(factor * np.bincount(types, minlength=n_types))
            values.append(factor * (frame.energy - energy))
    if not rows:
        return np.zeros(n_types)
    return np.linalg.lstsq(np.array(rows), np.array(values), rcond=1e-10)[0]


def fixed_energies(
    prepared: Prepared, zbl: list[ZblTerms], element_energy: np.ndarray
) -> np.ndarray:
    """What the energy of each frame (F,) eV holds without any trainable number."""
    pairs = zip(prepared.types, zbl, strict=True)
    return np.array(
        [terms.atom_energies.sum() + element_energy[types].sum() for types, terms in pairs]
    )


def attach_targets(prepared: Prepared, zbl: list[ZblTerms], element_energy: np.ndarray):
    """Give every batch its targets and their weights, 0 where a label is missing.

    tables: ``energy`` (B,) eV, ``energy_weight`` (B,) on the squared error of the total,
    ``virial`` (B, 6) eV, ``virial_weight`` (B,), ``forces`` (N, 3) eV/Å, ``force_weight`` (N,),
    and ``force_norm`` (N,) |F| of the label itself, for force_delta. Energies and virials are
    judged per atom: their weights hold 1/N^2.
    """
    energy, energy_weight, virial, virial_weight = [], [], [], []
    forces, force_weight, force_norm = [], [], []
    fixed_energy = fixed_energies(prepared, zbl, element_energy)
    for frame, fixed, terms in zip(prepared.frames, fixed_energy, zbl):
        n_atoms, weight = len(frame), frame.weight**2
        per_atom = weight / n_atoms**2
        energy.append(0.0 if frame.energy is None else frame.energy - fixed)
        energy_weight.append(0.0 if frame.energy is None else per_atom * frame.energy_weight)
        known = frame.virial is not None
        virial.append(
            frame.virial[VIRIAL_ROWS, VIRIAL_COLUMNS] - terms.virial if known else np.zeros(6)
        )
        virial_weight.append(per_atom if known else 0.0)
        known = frame.forces is not None
        forces.append(frame.forces - terms.forces if known else np.zeros((n_atoms, 3)))
        force_norm.append(np.linalg.norm(frame.forces, axis=1) if known else np.zeros(n_atoms))
        force_weight.append(np.full(n_atoms, weight if known else 0.0))
    structures = prepared.structures

    def attach(kind, **arrays):
        for name, values in arrays.items():
            tensor = torch.as_tensor(values, device=structures.device).to(structures.dtype)
            structures.attach(kind, name, tensor)

    attach(
        "frames", energy=np.array(energy), energy_weight=np.array(energy_weight),
        virial=np.array(virial), virial_weight=np.array(virial_weight),
    )  # fmt: skip
    attach(
        "atoms", forces=np.concatenate(forces), force_norm=np.concatenate(force_norm),
        force_weight=np.concatenate(force_weight),
    )  # fmt: skip
