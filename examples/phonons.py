"""Phonons by finite displacements: python examples/phonons.py NEP_TXT STRUCTURE [REPEAT [PLOT]]

STRUCTURE is a relaxed primitive cell (examples/relax.py). Atoms are displaced by 0.01 Å in REPEAT^3
(3^3) cells; an odd REPEAT keeps the symmetry of the bands. The bands along the standard path go to
PLOT, phonons.png.
"""

import sys
from tempfile import TemporaryDirectory

import matplotlib
from ase import units
from ase.io import read
from ase.phonons import Phonons

from nepkit import NEPCalculator

if len(sys.argv) < 3:
    sys.exit(__doc__)
model, structure, repeat, plot = [*sys.argv[1:], *("3", "phonons.png")[len(sys.argv) - 3 :]][:4]
matplotlib.use("agg")
import matplotlib.pyplot as plt  # noqa: E402

atoms = read(structure)
calculator = NEPCalculator(model, precision="float64")
with TemporaryDirectory() as folder:
    phonons = Phonons(atoms, calculator, supercell=3 * (int(repeat),), delta=0.01, name=folder)
    phonons.run()
    phonons.read(acoustic=True)
bands = phonons.get_band_structure(atoms.cell.bandpath(npoints=100), verbose=False)

# ASE gives energies in eV; a frequency below 0 stands for an imaginary one, an unstable structure.
terahertz = bands.energies[0] / (units._hplanck / units._e * 1e12)
labels = bands.path.get_linear_kpoint_axis()
figure, axes = plt.subplots(figsize=(4, 3), layout="constrained")
axes.plot(labels[0], terahertz, color="C0", linewidth=1)
axes.set_xticks(labels[1], [r"$\Gamma$" if name == "G" else name for name in labels[2]])
axes.set_xlim(labels[0][0], labels[0][-1])
axes.set_ylabel("frequency (THz)")
figure.savefig(plot, dpi=200)

print(f"{terahertz.shape[1]} branches from {terahertz.min():.2f} to {terahertz.max():.2f} THz")
