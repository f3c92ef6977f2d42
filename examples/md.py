"""Warm atoms up, then leave them alone: python examples/md.py NEP_TXT STRUCTURE [KELVIN [STEPS]]

STEPS of 1 fs of Langevin dynamics at KELVIN (300), then as many at constant energy. Both go to
md.traj, one frame in ten; ``ase gui md.traj`` shows it, ``ase convert md.traj md.xyz`` converts it.
"""

import sys

import numpy as np
from ase import units
from ase.io import read
from ase.io.trajectory import Trajectory
from ase.md.langevin import Langevin
from ase.md.verlet import VelocityVerlet

from nepkit import NEPCalculator

if len(sys.argv) < 3:
    sys.exit(__doc__)
model, structure, kelvin, steps = [*sys.argv[1:], *("300", "1000")[len(sys.argv) - 3 :]][:4]

atoms = read(structure)
atoms.calc = NEPCalculator(model)
width = np.sqrt(units.kB * float(kelvin) * atoms.get_masses())[:, None]
momenta = width * np.random.default_rng(0).normal(size=(len(atoms), 3))
atoms.set_momenta(momenta - momenta.mean(0))
trajectory = Trajectory("md.traj", "w", atoms)


def report():
    energy = atoms.get_total_energy() / len(atoms)
    print(f"{dynamics.nsteps:7d} fs {atoms.get_temperature():7.0f} K {energy:12.5f} eV/atom")


for dynamics in (
    Langevin(atoms, units.fs, temperature_K=float(kelvin), friction=0.01 / units.fs, fixcm=False),
    VelocityVerlet(atoms, units.fs),
):
    print(type(dynamics).__name__)
    dynamics.attach(report, interval=max(int(steps) // 10, 1))
    dynamics.attach(trajectory.write, interval=10)
    dynamics.run(int(steps))
trajectory.close()
