"""A potential as a model of torch-sim: relaxations and dynamics of many systems at once.

    from nepkit.calculator.torchsim import NEPModel
    torch_sim.optimize(structures, NEPModel("nep.txt"), optimizer=...)

Needs torch-sim-atomistic (the extra ``torchsim``).
"""

from __future__ import annotations

import os

import numpy as np
import torch
from torch import Tensor
from torch_sim.models.interface import ModelInterface

from .ase import NEPCalculator
from .frames import checked


class NEPModel(ModelInterface):
    """The systems of a state side by side: energy (B,) eV, forces (N, 3) eV/Å, stress (B, 3, 3) eV/Å^3.

    Results are on the state's device in ``dtype``, that of ``precision``; sums are made in float64.
    The stress of a system whose cell has no volume is NaN. Neighbours are kept between calls as
    NEPCalculator keeps them.

    Raises:
        UserError: as NEPCalculator.
    """

    def __init__(
        self,
        model: str | os.PathLike,
        *,
        device: str = "auto",
        precision: str = "float64",
        skin: float = 1.0,
    ):
        super().__init__()
        calculator = NEPCalculator(model, device=device, precision=precision, skin=skin)
        self._field, self._elements = calculator.new_field(skin), calculator.elements
        self._device, self._dtype = calculator.device, calculator.dtype
        self._compute_stress = self._compute_forces = True
        self._memory_scales_with = "n_atoms_x_density"

    def forward(self, state, **_) -> dict[str, Tensor]:
        """Evaluate a SimState, or a dictionary of its fields."""
        given = state if isinstance(state, dict) else vars(state)
        positions, cells, numbers, system = (
            given[name] for name in ("positions", "cell", "atomic_numbers", "system_idx")
        )
        n_systems, home = len(cells), positions.device
        if system is None:
            system = torch.zeros(len(positions), dtype=torch.int64)
        ends = np.cumsum(np.bincount(system.cpu().numpy(), minlength=n_systems))[:-1]
        pbc = np.broadcast_to(torch.as_tensor(given["pbc"]).cpu().numpy().astype(bool), 3).copy()
        # Columns are torch-sim's cell vectors.
        arrays = [
            np.split(_on_host(numbers, torch.int64), ends),
            np.split(_on_host(positions, torch.float64), ends),
            _on_host(cells, torch.float64).transpose(0, 2, 1),
        ]
        frames = [
            checked(*of, pbc, self._elements, f"system {k}") for k, of in enumerate(zip(*arrays))
        ]
        found = self._field(frames)
        volumes = np.array([frame.volume for frame in frames])
        volumes[volumes == 0.0] = np.nan
        virial = found.virials[:, [0, 3, 5, 3, 1, 4, 5, 4, 2]].reshape(-1, 3, 3)
        energy = [energies.sum() for energies in np.split(found.energies, ends)]
        results = {
            "energy": np.array(energy),
            "forces": found.forces,
            "stress": -virial / volumes[:, None, None],
        }
        return {
            name: torch.as_tensor(values, device=home, dtype=self._dtype)
            for name, values in results.items()
        }


def _on_host(values: Tensor, dtype: torch.dtype) -> np.ndarray:
    # A copy, as integrators change their tensors in place and lists remember where atoms were.
    return values.detach().to("cpu", dtype, copy=True).numpy()
