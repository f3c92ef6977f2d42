"""Energies, forces and virials of whole data sets, in bounded memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch

from ..data.prepared import Prepared
from ..ops.segment import segment_sum
from .evaluator import Evaluator
from .nep import Nep
from .zbl import zbl_terms

# Atoms evaluated at once: some tens of thousands of pairs, a few hundred MB at most.
ATOMS_AT_ONCE = 2000


@dataclass(frozen=True, eq=False)
class Prediction:
    """What a model says of F frames with A atoms in all, in their order; float64."""

    energy: np.ndarray  # (F,) eV, total
    forces: np.ndarray  # (A, 3) eV/Å
    virial: np.ndarray  # (F, 6) eV, xx yy zz xy yz zx
    descriptors: np.ndarray | None = None  # (A, D), scaled


def predict(model: Nep, prepared: Prepared, *, descriptors: bool = False) -> Prediction:
    """Evaluate ``model`` on all frames of ``prepared``, ZBL and element energies included."""
    n_atoms = prepared.n_atoms
    energy = np.empty(len(prepared))
    virial = np.empty((len(prepared), 6))
    forces = np.empty((n_atoms.sum(), 3))
    features = np.empty((n_atoms.sum(), model.settings.descriptor_length)) if descriptors else None
    first_atom = np.concatenate([[0], np.cumsum(n_atoms)])
    evaluate = Evaluator(model, prepared.structures)
    for start, stop in chunks(n_atoms):
        frames = torch.arange(start, stop, device=prepared.structures.device)
        with evaluate.threads():
            evaluation = evaluate(frames)
            forces_here, virials_here = evaluation.forces_and_virials()
        batch = evaluation.batch
        atom_energies = evaluation.atom_energies.double()
        atom_energies = atom_energies + model.element_energy.index_select(0, batch.types)
        atoms = slice(first_atom[start], first_atom[stop])
        energy[start:stop] = segment_sum(atom_energies, batch.atom_start).cpu()
        forces[atoms] = forces_here.cpu()
        virial[start:stop] = virials_here.cpu()
        if features is not None:
            features[atoms] = (evaluation.q * model.q_scaler).cpu()
    if model.settings.zbl is not None:
        for frame, (types, neighbors) in enumerate(zip(prepared.types, prepared.neighbors)):
            zbl = zbl_terms(types, neighbors, model.settings)
            energy[frame] += zbl.atom_energies.sum()
            forces[first_atom[frame] : first_atom[frame + 1]] += zbl.forces
            virial[frame] += zbl.virial
    return Prediction(energy, forces, virial, features)


def chunks(n_atoms: np.ndarray, limit: int = ATOMS_AT_ONCE) -> Iterator[tuple[int, int]]:
    """Ranges of frames with at most ``limit`` atoms together, or one frame."""
    start = total = 0
    for frame, count in enumerate(n_atoms):
        if frame > start and total + count > limit:
            yield start, frame
            start, total = frame, 0
        total += count
    if len(n_atoms):
        yield start, len(n_atoms)
