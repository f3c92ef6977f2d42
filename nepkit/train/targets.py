"""What the trainable part of the model has to reproduce: labels less all that is fixed."""

from __future__ import annotations

import numpy as np
import torch

from ..data.check import TOO_CLOSE
from ..data.known import Labels
from ..data.prepared import Prepared
from ..data.ragged import sums
from ..model.zbl import ZblTerms


def reference_energies(prepared: Prepared, known: np.ndarray, n_types: int) -> np.ndarray:
    """Energy of each element (T,) eV: least squares of the energies per atom, float64.

    ``known`` (F,) eV is what the frames hold without them.

    Frames count as in the loss, by weight and energy_weight; those whose atoms are so near that no
    calculation means anything (check.TOO_CLOSE) do not, as their repulsion would move all energies.
    Where compositions leave a combination of elements undetermined it gets the smallest change;
    an element without data gets 0.
    """
    labels = prepared.labels
    counted = ~np.isnan(labels.energy) & (labels.energy_weight > 0)
    if not counted.any():
        return np.zeros(n_types)
    sound = counted & (prepared.surroundings.contact >= TOO_CLOSE)
    counted = sound if sound.any() else counted
    factor = (labels.weight * labels.energy_weight**0.5 / labels.n_atoms)[counted]
    rows = factor[:, None] * labels.counts(n_types)[counted]
    values = factor * (labels.energy - known)[counted]
    return np.linalg.lstsq(rows, values, rcond=1e-10)[0]


def fixed_energies(labels: Labels, zbl: ZblTerms, element_energy: np.ndarray) -> np.ndarray:
    """What the energy of each frame (F,) eV holds without any trainable number."""
    return zbl.energy + sums(element_energy[labels.types], labels.first_atom)


def attach_targets(prepared: Prepared, zbl: ZblTerms, element_energy: np.ndarray):
    """Give every batch its targets and their weights, 0 where a label is missing.

    tables: ``energy`` (B,) eV, ``energy_weight`` (B,) on the squared error of the total,
    ``virial`` (B, 6) eV, ``virial_weight`` (B,), ``forces`` (N, 3) eV/Å, ``force_weight`` (N,),
    and ``force_norm`` (N,) |F| of the label itself, for force_delta. Energies and virials are
    judged per atom: their weights hold 1/N^2.
    """
    labels, structures = prepared.labels, prepared.structures
    weight = labels.weight**2
    per_atom = weight / labels.n_atoms**2
    energy = labels.energy - fixed_energies(labels, zbl, element_energy)
    virial, forces = labels.virial - zbl.virial, labels.forces - zbl.forces
    of_atoms = np.repeat(weight, labels.n_atoms)

    def attach(kind, **arrays):
        for name, values in arrays.items():
            tensor = torch.from_numpy(values).to(structures.device, structures.dtype)
            structures.attach(kind, name, tensor)

    attach(
        "frames", energy=np.nan_to_num(energy),
        energy_weight=np.where(np.isnan(energy), 0.0, per_atom * labels.energy_weight),
        virial=np.nan_to_num(virial), virial_weight=np.where(np.isnan(virial[:, 0]), 0.0, per_atom),
    )  # fmt: skip
    attach(
        "atoms", forces=np.nan_to_num(forces),
        force_norm=np.nan_to_num(np.linalg.norm(labels.forces, axis=1)),
        force_weight=np.where(np.isnan(forces[:, 0]), 0.0, of_atoms),
    )  # fmt: skip
