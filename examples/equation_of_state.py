"""Energy against volume: python examples/equation_of_state.py NEP_TXT STRUCTURE [PLOT]

The cell is scaled from 94 to 106 % of its volume, all volumes are evaluated at once, and a
Birch-Murnaghan equation is fitted. The plot goes to PLOT, equation_of_state.png.
"""

import sys

import matplotlib
import numpy as np
from ase import units
from ase.eos import EquationOfState
from ase.io import read

from nepkit import predict_structures

if len(sys.argv) < 3:
    sys.exit(__doc__)
model, structure, plot = [*sys.argv[1:], "equation_of_state.png"][:3]
matplotlib.use("agg")

atoms = read(structure)
scaled = []
for factor in np.linspace(0.94, 1.06, 13):
    scaled.append(atoms.copy())
    scaled[-1].set_cell(atoms.cell * factor ** (1 / 3), scale_atoms=True)
found = predict_structures(model, scaled, precision="float64")

volumes = [one.get_volume() / len(atoms) for one in scaled]
equation = EquationOfState(volumes, found.energy / len(atoms), eos="birchmurnaghan")
volume, energy, modulus = equation.fit()
equation.plot(plot)

print(f"volume {volume:.4f} Å^3/atom")
print(f"energy {energy:.5f} eV/atom")
print(f"bulk modulus {modulus / units.GPa:.1f} GPa")
