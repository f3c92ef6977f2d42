"""Many structures at once."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from ase import Atoms
from tqdm import tqdm

from ..errors import UserError
from .ase import VOIGT, NEPCalculator
from .frames import frame_of

# Atoms evaluated side by side.
ATOMS_AT_ONCE = 20_000


@dataclass(frozen=True, eq=False)
class StructurePredictions:
    """What a potential says of F structures, in their order; float64."""

    energy: np.ndarray  # (F,) eV
    forces: list[np.ndarray]  # (N, 3) eV/Å each
    stress: np.ndarray  # (F, 6) eV/Å^3, ASE's sign and order; NaN where the cell has no volume


def predict_structures(
    model: str | os.PathLike | NEPCalculator,
    structures: Iterable[Atoms],
    *,
    device: str = "auto",
    precision: str = "float32",
) -> StructurePredictions:
    """Energies, forces and stresses of many structures of any kind and size, side by side.

    ``model`` is a nep.txt, or a calculator, which then says device and precision. A bar shows the
    progress of long work.

    Raises:
        UserError: as NEPCalculator, with the place of the structure in the list, from 0.
    """
    if isinstance(structures, Atoms):
        raise UserError("predict_structures takes a list of Atoms: give [atoms]")
    calculator = model
    if not isinstance(model, NEPCalculator):
        calculator = NEPCalculator(model, device=device, precision=precision, skin=0.0)
    field = calculator.new_field(skin=0.0)
    frames = [
        frame_of(atoms, calculator.elements, f"structure {k}")
        for k, atoms in enumerate(structures)
    ]  # fmt: skip
    sizes = np.array([len(frame) for frame in frames], dtype=int)
    energy, stress, forces = np.zeros(len(frames)), np.full((len(frames), 6), np.nan), []
    first = 0
    with tqdm(total=len(frames), unit=" structures", disable=None, delay=1.0, leave=False) as bar:
        while first < len(frames):
            room = int(np.searchsorted(np.cumsum(sizes[first:]), ATOMS_AT_ONCE, side="right"))
            members = range(first, min(first + max(room, 1), len(frames)))
            found = field([frames[k] for k in members])
            ends = np.cumsum(sizes[members.start : members.stop])[:-1]
            forces += np.split(found.forces, ends)
            for k, energies, virial in zip(members, np.split(found.energies, ends), found.virials):
                energy[k] = energies.sum()
                if frames[k].volume > 0.0:
                    stress[k] = -virial[VOIGT] / frames[k].volume
            bar.update(len(members))
            first = members.stop
    return StructurePredictions(energy, forces, stress)
