"""The ASE calculator."""

from __future__ import annotations

import os

import numpy as np
from ase import Atoms
from ase.calculators.calculator import Calculator, PropertyNotImplementedError, all_changes

from ..errors import UserError
from ..model.conversion import model_from_file
from ..model.nep_txt import read_nep_txt
from ..ops.policy import fused_on
from ..train.device import choose_device, precision_type
from .device import DeviceField
from .evaluated import Evaluated
from .frames import frame_of, unchecked

# GPUMD's order of a virial, xx yy zz xy yz zx, in ASE's of a stress, xx yy zz yz xz xy.
VOIGT = [0, 1, 2, 4, 5, 3]


class NEPCalculator(Calculator):
    """A NEP4 potential for ASE: ``atoms.calc = NEPCalculator("nep.txt")``.

    Energies (eV), forces (eV/Å), stress (eV/Å^3, ASE's sign and order), and energies and stresses of
    atoms, for any cell and any ``pbc``. A stress is defined where the three cell vectors span a
    volume, which ASE takes for slabs too. Energies are float64 in either precision.

    Neighbours within the cutoff and ``skin`` (Å) are kept until atoms have moved, or the cell has
    changed, so far that one could be missing; results do not depend on it.

    Raises:
        UserError: the potential cannot be read; no such device or precision; later, elements that the
            model does not have, positions that are not finite, atoms at one place.
    """

    name = "nep"
    implemented_properties = ["energy", "free_energy", "energies", "forces", "stress", "stresses"]

    def __init__(
        self,
        model: str | os.PathLike,
        *,
        device: str = "auto",
        precision: str = "float32",
        skin: float = 1.0,
    ):
        super().__init__()
        given = {"model": os.fspath(model), "device": device, "precision": precision, "skin": skin}
        self.parameters.update(given)
        self._file = read_nep_txt(model)
        self._start()

    def set(self, **changes) -> dict:
        """Change what the constructor takes; returns what has changed."""
        if unknown := changes.keys() - {"model", "device", "precision", "skin"}:
            raise UserError(
                f"no setting {', '.join(sorted(unknown))}: there are model, device, precision, skin"
            )
        before, file = dict(self.parameters), getattr(self, "_file", None)
        changed = super().set(**changes)
        try:
            if "model" in changed:
                self._file = read_nep_txt(self.parameters.model)
            if changed:
                self._start()
                self.reset()
        except UserError:
            self.parameters.update(before)
            self._file = file
            raise
        return changed

    def _start(self):
        options = self.parameters
        if not 0.0 <= options.skin < np.inf:
            raise UserError(f"skin {options.skin}: give a length in Å, 0 or more")
        self.device, self.dtype = choose_device(options.device), precision_type(options.precision)
        self._model = model_from_file(self._file, device=self.device, dtype=self.dtype)
        self._field = self.new_field(options.skin)

    @property
    def elements(self) -> tuple[str, ...]:
        """The elements that the model has."""
        return self._file.settings.elements

    def new_field(self, skin: float):
        """What evaluates frames with this model and remembers neighbours: CpuField or DeviceField."""
        if not fused_on(self.device):
            return DeviceField(self._model, skin)
        from .cpu import CpuField  # without numba plain torch does it

        return CpuField(self._model, skin)

    def check_state(self, atoms: Atoms, tol: float = 1e-15) -> list[str]:
        """What has changed since the last calculation, exactly and of what a potential sees.

        ASE compares more, and within ``tol``, which takes longer than evaluating a small system.
        """
        if self.atoms is None:
            return list(all_changes)
        pairs = {
            "positions": (atoms.positions, self.atoms.positions),
            "numbers": (atoms.numbers, self.atoms.numbers),
            "cell": (atoms.cell.array, self.atoms.cell.array),
            "pbc": (atoms.pbc, self.atoms.pbc),
        }
        return [name for name, pair in pairs.items() if not same(*pair)]

    def calculate(self, atoms=None, properties=("energy",), system_changes=all_changes):
        """Compute everything but ``stresses`` at once, those only where asked for."""
        # The device begins while the host copies and looks at what it was given.
        begun = self._field.begin([unchecked(self.atoms if atoms is None else atoms)])
        super().calculate(atoms, properties, system_changes)
        frame = frame_of(self.atoms, self.elements)
        volume = frame.volume
        if volume == 0.0 and {"stress", "stresses"} & set(properties):
            raise PropertyNotImplementedError(
                "a stress needs a cell with a volume; give these atoms three cell vectors"
            )
        found = self._field([frame], "stresses" in properties, begun=begun)
        energy = float(found.energies.sum())
        self.results = {
            "energy": energy, "free_energy": energy, "energies": found.energies,
            "forces": found.forces,
        }  # fmt: skip
        if volume > 0.0:
            self.results["stress"] = -found.virials[0, VOIGT] / volume
        if found.atom_virials is not None:
            both = found.atom_virials + found.atom_virials.transpose(0, 2, 1)
            rows, columns = [0, 1, 2, 1, 0, 0], [0, 1, 2, 2, 2, 1]
            self.results["stresses"] = -0.5 * both[:, rows, columns] / volume

    def descriptors(self, atoms: Atoms | None = None) -> np.ndarray:
        """Descriptors of the atoms as the network sees them, scaled, ``(N, D)``."""
        return self._evaluate(atoms, descriptors=True).descriptors

    def virials(self, atoms: Atoms | None = None) -> np.ndarray:
        """Virial of each atom, ``(N, 3, 3)`` eV: W_i = sum_j r_ij (x) dU_j/dr_ji, as GPUMD has it.

        This is the form that the heat current asks for (Fan et al., Phys. Rev. B 104, 104309 (2021)).
        Their sum is the virial, minus the volume times the stress; one by one they are not symmetric.
        """
        return self._evaluate(atoms, per_atom=True).atom_virials

    def _evaluate(self, atoms: Atoms | None, **more: bool) -> Evaluated:
        if atoms is None and self.atoms is None:
            raise UserError("no atoms yet: give some")
        return self._field(
            [frame_of(self.atoms if atoms is None else atoms, self.elements)], **more
        )

    def __getstate__(self) -> dict:
        # The rest is made again: compiled kernels, graphs and threads do not travel.
        made = ("_model", "_field", "device", "dtype")
        return {name: value for name, value in self.__dict__.items() if name not in made}

    def __setstate__(self, state: dict):
        self.__dict__.update(state)
        self._start()


def same(one: np.ndarray, other: np.ndarray) -> bool:
    """Whether arrays are equal: where all atoms have moved, the first of them tell."""
    return np.array_equal(one[:64], other[:64]) and np.array_equal(one, other)
