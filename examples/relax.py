"""Relax atoms and cell: python examples/relax.py NEP_TXT STRUCTURE [OUT]

STRUCTURE is any file that ASE reads; the relaxed one goes to OUT, relaxed.xyz.
"""

import sys

from ase import units
from ase.filters import FrechetCellFilter
from ase.io import read, write
from ase.optimize import BFGS

from nepkit import NEPCalculator

if len(sys.argv) < 3:
    sys.exit(__doc__)
model, structure, out = [*sys.argv[1:], "relaxed.xyz"][:3]

atoms = read(structure)
atoms.calc = NEPCalculator(model, precision="float64")

# The filter makes the cell move with the atoms; its stress counts as forces on nine more of them.
relaxation = BFGS(FrechetCellFilter(atoms))
if not relaxation.run(fmax=1e-3, steps=500):
    print("not converged after 500 steps")
write(out, atoms)

print(f"energy {atoms.get_potential_energy() / len(atoms):.5f} eV/atom")
print(f"volume {atoms.get_volume() / len(atoms):.4f} Å^3/atom")
print(f"pressure {-atoms.get_stress()[:3].mean() / units.GPa:.3f} GPa")
print("cell", " ".join(f"{value:.4f}" for value in atoms.cell.cellpar()))
