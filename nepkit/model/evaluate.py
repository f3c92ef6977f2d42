"""Energies, forces and virials of whole data sets, in bounded memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch

from ..data.buckets import Ladder
from ..data.feed import moved
from ..data.prepared import Prepared
from ..data.ragged import chunks
from ..data.structures import Structures
from ..ops.policy import kernels_on
from ..ops.stages import stage
from .evaluator import Evaluator
from .nep import Nep
from .zbl import zbl_of

# Atoms evaluated at once: some tens of thousands of pairs, a few hundred MB at most.
ATOMS_AT_ONCE = 2000
# On a GPU, which more atoms keep busy.
ATOMS_ON_GPU = 10_000


@dataclass(frozen=True, eq=False)
class Prediction:
    """What a model says of F frames with A atoms in all, in their order; float64."""

    energy: np.ndarray  # (F,) eV, total
    forces: np.ndarray  # (A, 3) eV/Å
    virial: np.ndarray  # (F, 6) eV, xx yy zz xy yz zx
    descriptors: np.ndarray | None = None  # (A, D), scaled


def predict(
    model: Nep, prepared: Prepared, *, descriptors: bool = False, frames: range | None = None
) -> Prediction:
    """Evaluate ``model`` on ``frames`` of ``prepared``, all by default.

    ZBL and element energies are included.
    """
    frames = range(len(prepared)) if frames is None else frames
    n_atoms = prepared.n_atoms[frames.start : frames.stop]
    energy = np.empty(len(frames))
    virial = np.empty((len(frames), 6))
    forces = np.empty((n_atoms.sum(), 3))
    features = np.empty((n_atoms.sum(), model.settings.descriptor_length)) if descriptors else None
    element_energy, q_scaler = model.element_energy.cpu().numpy(), model.q_scaler.cpu().numpy()
    first_atom = prepared.labels.first_atom[frames.start : frames.stop + 1]
    own_atoms = slice(first_atom[0], first_atom[-1])
    types, first_atom = prepared.labels.types[own_atoms], first_atom - first_atom[0]
    evaluate = _evaluator(model, prepared.structures)
    at_once = ATOMS_ON_GPU if model.flat.device.type == "cuda" else ATOMS_AT_ONCE
    for start, stop in chunks(n_atoms, at_once):
        atoms = slice(first_atom[start], first_atom[stop])
        with stage("evaluation"):
            members = frames[start:stop]
            per_atom, of_atoms, of_frames, q = evaluate(np.arange(members.start, members.stop))
        per_atom = per_atom + element_energy[types[atoms]]
        energy[start:stop] = np.add.reduceat(per_atom, first_atom[start:stop] - first_atom[start])
        forces[atoms], virial[start:stop] = of_atoms, of_frames
        if features is not None:
            features[atoms] = q * q_scaler
    if model.settings.zbl is not None:
        zbl = zbl_of(prepared, model.settings)
        energy += zbl.energy[frames.start : frames.stop]
        forces += zbl.forces[own_atoms]
        virial += zbl.virial[frames.start : frames.stop]
    return Prediction(energy, forces, virial, features)


def _evaluator(model: Nep, structures: Structures) -> Callable[[np.ndarray], tuple]:
    """From frames (B,) to atom energies (N,), float64, forces, virials and descriptors."""
    device = model.flat.device
    if kernels_on(device):
        return partial(_fused_outputs, model, Ladder(structures))
    evaluate = Evaluator(model, structures)

    def outputs(frames: np.ndarray) -> tuple:
        with evaluate.threads():
            evaluation = evaluate(torch.as_tensor(frames, device=device))
            found = evaluation.atom_energies.double(), *evaluation.forces_and_virials()
        return tuple(values.cpu().numpy() for values in (*found, evaluation.q))

    return outputs


def _fused_outputs(model: Nep, ladder: Ladder, frames: np.ndarray) -> tuple:
    """The same by Triton's kernels, on a batch that is filled up to its rung."""
    from .fused import FusedEvaluation

    evaluation = FusedEvaluation(model, moved(ladder.batch(frames), model.flat.device), model.flat)
    found = evaluation.atom_energies.double(), *evaluation.forces_and_virials(), evaluation.q
    n_atoms = ladder.structures.counts[frames, 0].sum()
    sizes = n_atoms, n_atoms, len(frames), n_atoms
    return tuple(values[:size].cpu().numpy() for size, values in zip(sizes, found))
