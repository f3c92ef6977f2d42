"""The calculator on published potentials, against nep-adapters, and NVE of PbTe. Long: -m slow."""

import lzma

import numpy as np
import pytest
from ase import Atoms, units
from ase.build import bulk
from ase.md.verlet import VelocityVerlet
from structures import largest, shared
from test_calculator import as_atoms, warm

from nepkit import NEPCalculator
from nepkit.data.xyz import read_xyz
from nepkit.ops.policy import reference_path

pytestmark = pytest.mark.slow
CASES = {
    "PbTe": ("a_pbte/gpumd/nep.txt", "a_pbte/train.xyz", 5),
    "MoS2": ("a_mos2_finetune/gpumd/nep_gen11000.txt", "a_mos2_finetune/train.xyz", 10),
    "CrCoNi": ("b_alloy/crconi/nep_CrCoNi.txt", "b_alloy/crconi/CrCoNi.xyz", 1),
    "NEP89": ("models/nep89_20250409.txt.xz", "t_teacher89/teacher89_test.xyz", 1),
}


@pytest.mark.parametrize("path", ["kernels", "plain torch"])
@pytest.mark.parametrize("case", CASES)
def test_same_as_nep_adapters(case, path, tmp_path):
    """1e-9 eV/Å."""
    nep_adapters = pytest.importorskip("nep_adapters")
    model, data, every = CASES[case]
    model, frames = shared(f"data/{model}"), read_xyz(shared(f"data/{data}"))[::every]
    if model.suffix == ".xz":
        (tmp_path / "nep.txt").write_bytes(lzma.decompress(model.read_bytes()))
        model = tmp_path / "nep.txt"
    if path == "kernels":
        calculator = NEPCalculator(model, precision="float64", device="cpu")
    else:
        with reference_path():
            calculator = NEPCalculator(model, precision="float64", device="cpu")
    with nep_adapters.NEPCalculator(str(model), backend="cpu") as other:
        for frame in frames:
            atoms = as_atoms(frame)
            wanted = other.predict_structures([atoms])
            forces = np.array(wanted.forces).reshape(-1, 3)
            energy = calculator.get_property("energy", atoms)
            assert energy / len(atoms) == pytest.approx(wanted.energy[0] / len(atoms), abs=1e-9)
            assert largest(calculator.get_property("forces", atoms) - forces) < 1e-9
            virials = np.array(wanted.virials).reshape(-1, 3, 3)
            assert largest(calculator.virials(atoms) - virials) < 1e-8


def pbte() -> Atoms:
    """250 atoms on their places, with twice the motion of 300 K, half of which goes to springs."""
    atoms = bulk("PbTe", "rocksalt", a=6.57).repeat(5)
    warm(atoms, 600)
    return atoms


@pytest.mark.parametrize(("precision", "limit"), [("float64", 1e-5), ("float32", 1e-4)])
def test_drift_of_the_energy(precision, limit):
    """1,000 steps of 1 fs: the slope of a line through the total energy, eV/atom in 1 ps."""
    atoms, totals = pbte(), []
    model = shared("data/a_pbte/gpumd/nep.txt")
    atoms.calc = NEPCalculator(model, precision=precision, device="cpu")
    dynamics = VelocityVerlet(atoms, units.fs)
    dynamics.attach(lambda: totals.append(atoms.get_total_energy() / len(atoms)))
    dynamics.run(1000)
    drift = np.polyfit(1e-3 * np.arange(len(totals)), totals, 1)[0]
    print(f"{precision}: drift {drift:.2e} eV/atom in 1 ps, spread {np.std(totals):.2e} eV/atom")
    assert abs(drift) < limit
    assert 250 < atoms.get_temperature() < 350


def test_skin_and_no_skin_take_the_same_way():
    ends = []
    for skin in (0.0, 1.0):
        atoms = pbte()
        model = shared("data/a_pbte/gpumd/nep.txt")
        atoms.calc = NEPCalculator(model, precision="float64", device="cpu", skin=skin)
        VelocityVerlet(atoms, units.fs).run(100)
        ends.append(atoms.positions)
    print(f"largest difference {largest(ends[1] - ends[0]):.2e} Å")
    assert largest(ends[1] - ends[0]) < 1e-8
