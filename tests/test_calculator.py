"""The ASE calculator: equal to other programs and to differences of its energy, and ASE's rules."""

import copy
import pickle

import numpy as np
import pytest
import torch
from ase import Atoms, units
from ase.calculators.calculator import PropertyNotImplementedError
from ase.md.verlet import VelocityVerlet
from ase.stress import full_3x3_to_voigt_6_stress
from structures import (
    COLUMNS,
    ROWS,
    STENCIL,
    TWO,
    evaluate,
    largest,
    model_settings,
    odd_frames,
    random_file,
    zbl_forms,
)

from nepkit import NEPCalculator, UserError
from nepkit.model.conversion import model_from_file
from nepkit.model.nep_txt_write import write_nep_txt
from nepkit.ops.policy import reference_path

# One size of model for all tests here, as kernels are compiled for each.
SETTINGS = model_settings(
    TWO, radial=(4.5, 3.9), angular=(3.0, 3.6), invariants=("q222", "q1111", "q112"),
    neuron=(5, 4), zbl=zbl_forms(TWO)["universal"],
)  # fmt: skip
KINDS = odd_frames()


def as_atoms(frame) -> Atoms:
    return Atoms(frame.numbers, frame.positions, cell=frame.cell, pbc=frame.pbc)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    path = tmp_path_factory.mktemp("calculator") / "nep.txt"
    write_nep_txt(path, random_file(SETTINGS))
    return path


@pytest.fixture(params=["kernels", "plain torch"])
def calculator(model, request):
    """By the kernels for CPUs, and by what GPUs run, in plain torch."""
    if request.param == "kernels":
        return NEPCalculator(model, precision="float64", device="cpu")
    with reference_path():
        return NEPCalculator(model, precision="float64", device="cpu")


def warm(atoms: Atoms, kelvin: float):
    """Give the atoms the momenta of a temperature."""
    width = np.sqrt(units.kB * kelvin * atoms.get_masses())[:, None]
    momenta = width * np.random.default_rng(0).normal(size=(len(atoms), 3))
    atoms.set_momenta(momenta - momenta.mean(0))


def bulk(seed=0, repeat=3) -> Atoms:
    """A jittered crystal of both elements."""
    atoms = Atoms(TWO, [[0, 0, 0], [1.6, 1.6, 1.6]], cell=3.2 * np.eye(3), pbc=True)
    atoms = atoms.repeat(repeat)
    atoms.rattle(0.05, seed=seed)
    return atoms


@pytest.mark.parametrize("kind", KINDS)
def test_same_as_the_definition(calculator, kind):
    """Every kind of cell and pbc, against plain torch."""
    frame, atoms = KINDS[kind], as_atoms(KINDS[kind])
    atoms.calc = calculator
    reference = model_from_file(random_file(SETTINGS), device="cpu", dtype=torch.float64)
    wanted = evaluate(reference, [frame], descriptors=True)
    assert atoms.get_potential_energy() == pytest.approx(wanted.energy[0], abs=1e-10)
    assert atoms.get_forces() == pytest.approx(wanted.forces, abs=1e-10)
    assert calculator.descriptors() == pytest.approx(wanted.descriptors, abs=1e-10)
    of_atoms = calculator.virials().sum(0)
    assert of_atoms == pytest.approx(of_atoms.T, abs=1e-9)
    assert of_atoms[ROWS, COLUMNS] == pytest.approx(wanted.virial[0], abs=1e-10)
    if atoms.cell.rank == 3:
        stress = -full_3x3_to_voigt_6_stress(of_atoms) / atoms.get_volume()
        assert atoms.get_stress() == pytest.approx(stress, abs=1e-10)
        assert atoms.get_stresses().sum(0) == pytest.approx(stress, abs=1e-10)


@pytest.mark.parametrize("kind", ["slab", "wire", "molecule", "thin", "two atoms"])
def test_forces_and_stress_are_differences_of_the_energy(calculator, kind):
    atoms = as_atoms(KINDS[kind])
    atoms.calc = calculator
    forces, step = atoms.get_forces(), 5e-5
    for atom in range(len(atoms)):
        for axis in range(3):
            moved, slope = atoms.copy(), 0.0
            moved.calc = calculator
            for place, weight in STENCIL.items():
                moved.positions = atoms.positions
                moved.positions[atom, axis] += place * step
                slope -= weight * moved.get_potential_energy() / step
            assert forces[atom, axis] == pytest.approx(slope, abs=1e-6)
    if atoms.cell.rank == 3:
        slopes = np.zeros((3, 3))
        for row, column in np.ndindex(3, 3):
            for place, weight in STENCIL.items():
                strain = np.eye(3)
                strain[row, column] += place * step
                strained = atoms.copy()
                strained.calc = calculator
                strained.set_cell(atoms.cell @ strain, scale_atoms=True)
                slopes[row, column] += weight * strained.get_potential_energy() / step
        assert slopes == pytest.approx(slopes.T, abs=1e-6)
        stress = full_3x3_to_voigt_6_stress(slopes) / atoms.get_volume()
        assert atoms.get_stress() == pytest.approx(stress, abs=1e-6)


def test_same_as_nep_adapters(calculator, model):
    """Random triclinic cells, and the virial of every atom."""
    nep_adapters = pytest.importorskip("nep_adapters")
    generator = np.random.default_rng(0)
    structures = [as_atoms(KINDS[kind]) for kind in ("bulk", "triclinic", "left-handed", "thin")]
    for n_atoms in (2, 3, 5, 7):
        cell = 0.3 * generator.normal(size=(3, 3)) + np.eye(3) * (n_atoms * 16.0) ** (1 / 3)
        atoms = Atoms([TWO[k % 2] for k in range(n_atoms)], cell=cell, pbc=True)
        atoms.set_scaled_positions((np.arange(n_atoms)[:, None] * [0.5, 0.31, 0.77]) % 1.0)
        atoms.rattle(0.1, seed=n_atoms)
        structures.append(atoms)
    with nep_adapters.NEPCalculator(str(model), backend="cpu") as other:
        for atoms in structures:
            wanted = other.predict_structures([atoms])
            atoms.calc = calculator
            forces = np.array(wanted.forces).reshape(-1, 3)
            assert largest(forces) > 1e-2
            assert atoms.get_potential_energy() == pytest.approx(wanted.energy[0], abs=1e-9)
            assert atoms.get_forces() == pytest.approx(forces, abs=1e-9)
            virials = np.array(wanted.virials).reshape(-1, 3, 3)
            assert calculator.virials() == pytest.approx(virials, abs=1e-9)


def test_lists_with_a_skin_miss_nobody(model):
    """A walk of atoms and cell, through the walls of the cell, with and without a skin."""
    generator = np.random.default_rng(1)
    atoms, strain = bulk(repeat=2), np.zeros((3, 3))
    lazy, eager = (
        NEPCalculator(model, precision="float64", device="cpu", skin=skin) for skin in (0.8, 0.0)
    )
    drift = generator.normal(size=(len(atoms), 3))
    for step in range(60):
        atoms.positions += 0.03 * generator.normal(size=(len(atoms), 3)) + 0.02 * drift
        strain = 0.004 * generator.normal(size=(3, 3))
        atoms.set_cell(atoms.cell @ (np.eye(3) + strain), scale_atoms=step % 3 > 0)
        if step % 20 == 19:
            atoms.wrap()
        for kind in ("energy", "forces", "stress"):
            found, wanted = (c.get_property(kind, atoms) for c in (lazy, eager))
            assert found == pytest.approx(wanted, rel=1e-10, abs=1e-8), (step, kind)
    assert 3 < lazy._field.rebuilds < 50
    assert eager._field.rebuilds == 60


def test_settings_can_be_changed(model, tmp_path):
    calculator, atoms = NEPCalculator(model, precision="float64", device="cpu"), bulk()
    exact = calculator.get_property("forces", atoms)
    assert calculator.set(skin=0.3, precision="float32") == {"skin": 0.3, "precision": "float32"}
    assert calculator._field.skin == 0.3 and calculator.set(skin=0.3) == {}
    rounded = calculator.get_property("forces", atoms)
    assert 0 < largest(rounded - exact) < 1e-4
    for wrong, said in (({"skin": -1.0}, "skin -1.0"), ({"skim": 1}, "no setting skim")):
        with pytest.raises(UserError, match=said):
            calculator.set(**wrong)
    assert calculator.parameters.skin == 0.3
    other = tmp_path / "other.txt"
    write_nep_txt(other, random_file(SETTINGS, seed=9))
    with pytest.raises(UserError, match="skin -2.0"):
        calculator.set(model=str(other), skin=-2.0)
    again = pickle.loads(pickle.dumps(calculator))  # which reads its potential from what is kept
    assert largest(again.get_property("forces", atoms) - exact) < 1e-4
    calculator.set(model=str(other))
    assert largest(calculator.get_property("forces", atoms) - exact) > 1e-3


def test_the_same_trajectory_with_and_without_a_skin(model):
    ends = []
    for skin in (0.0, 1.0):
        atoms = bulk()
        atoms.calc = NEPCalculator(model, precision="float64", device="cpu", skin=skin)
        warm(atoms, 300)
        VelocityVerlet(atoms, 0.5 * units.fs).run(100)
        ends.append(atoms.positions)
    assert ends[1] == pytest.approx(ends[0], abs=1e-8)


def test_energy_is_conserved(model):
    """The total energy neither drifts nor jumps where lists are made anew."""
    calculator = NEPCalculator(model, precision="float64", device="cpu", skin=0.2)
    atoms = bulk()
    atoms.calc = calculator
    warm(atoms, 300)
    totals, kinetic, step = [], [], 0.25
    dynamics = VelocityVerlet(atoms, step * units.fs)
    dynamics.attach(lambda: totals.append(atoms.get_total_energy() / len(atoms)))
    dynamics.attach(lambda: kinetic.append(atoms.get_kinetic_energy() / len(atoms)))
    dynamics.run(400)
    assert 3 < calculator._field.rebuilds < 200
    drift = np.polyfit(1e-3 * step * np.arange(len(totals)), totals, 1)[0]
    assert np.std(kinetic) > 1e-3 and np.std(totals) < 0.01 * np.std(kinetic)
    assert abs(drift) < 1e-4, "eV/atom/ps"


def test_number_of_threads_changes_nothing(model):
    found = []
    for count in (1, 2, 3):
        before = torch.get_num_threads()
        torch.set_num_threads(count)
        try:
            calculator = NEPCalculator(model, precision="float64", device="cpu")
            atoms = bulk()
            found.append(
                [calculator.get_property(what, atoms) for what in ("energies", "forces", "stress")]
            )
        finally:
            torch.set_num_threads(before)
    for other in found[1:]:
        for one, same in zip(found[0], other):
            assert same == pytest.approx(one, abs=1e-11)


def test_properties_by_the_rules_of_ase(calculator):
    atoms = bulk()
    atoms.calc = calculator
    assert calculator.calculation_required(atoms, ["energy"])
    assert calculator.get_property("energy", atoms, allow_calculation=False) is None
    energy = atoms.get_potential_energy()
    assert isinstance(energy, float)
    assert not calculator.calculation_required(atoms, ["energy", "forces", "stress", "energies"])
    assert calculator.get_property("free_energy", atoms, allow_calculation=False) == energy
    assert atoms.get_potential_energy(force_consistent=True) == energy
    assert atoms.get_potential_energies().sum() == pytest.approx(energy, rel=1e-13)
    # A caller may do with the forces what it likes.
    atoms.get_forces()[:] = 0.0
    assert atoms.get_forces().any()
    with pytest.raises(PropertyNotImplementedError):
        atoms.get_magnetic_moments()
    elsewhere = atoms.copy()
    elsewhere.positions[0, 0] += 0.01
    assert calculator.calculation_required(elsewhere, ["energy"])
    assert calculator.get_property("energy", elsewhere, allow_calculation=False) is None


def test_lists_remember_where_atoms_were(calculator):
    """And results what they were, whatever becomes of the atoms later."""
    atoms = bulk()
    before = calculator.descriptors(atoms)
    kept = before.copy()
    atoms.positions[0] += 1.2
    found = calculator.descriptors(atoms)
    assert found == pytest.approx(copy.deepcopy(calculator).descriptors(atoms), abs=1e-11)
    assert np.array_equal(before, kept) and largest(found - kept) > 1e-3


@pytest.mark.parametrize(
    "change",
    [
        lambda atoms: atoms.positions.__setitem__((0, 0), 0.2),
        lambda atoms: atoms.numbers.__setitem__(0, atoms.numbers[1]),
        lambda atoms: atoms.set_cell(1.02 * atoms.cell),
        lambda atoms: atoms.set_cell(1.02 * atoms.cell, scale_atoms=True),
        lambda atoms: atoms.set_pbc((True, False, True)),
        lambda atoms: atoms.__delitem__(0),
        lambda atoms: atoms.extend(Atoms("Te", [[0.8, 0.8, 2.4]])),
    ],
    ids=["positions", "numbers", "cell", "strain", "pbc", "one less", "one more"],
)
def test_whatever_changes_is_noticed(model, change):
    atoms = bulk()
    atoms.calc = NEPCalculator(model, precision="float64", device="cpu")
    before = atoms.get_potential_energy()
    change(atoms)
    fresh = NEPCalculator(model, precision="float64", device="cpu")
    energy = atoms.get_potential_energy()
    assert energy == pytest.approx(fresh.get_property("energy", atoms), abs=1e-10)
    assert abs(energy - before) > 1e-6
    assert atoms.get_forces() == pytest.approx(fresh.get_property("forces", atoms), abs=1e-10)


def test_copies_and_pickles_work_on_their_own(calculator, model):
    atoms = bulk()
    atoms.calc = calculator
    forces = atoms.get_forces()
    for twin in (copy.deepcopy(calculator), pickle.loads(pickle.dumps(calculator))):
        other = bulk(seed=3)
        other.calc = twin
        other.get_forces()
        assert calculator.results["forces"] is not twin.results["forces"]
        assert twin.get_property("forces", atoms) == pytest.approx(forces, abs=1e-11)
        assert twin.parameters == calculator.parameters
    assert atoms.get_forces() is not None
    assert not calculator.calculation_required(atoms, ["forces"])
    both = pickle.loads(pickle.dumps(atoms))
    assert both.get_forces() == pytest.approx(forces, abs=1e-11)


def test_stress_needs_a_volume(calculator):
    molecule = as_atoms(KINDS["molecule"])
    molecule.calc = calculator
    molecule.get_forces()
    for ask in (molecule.get_stress, molecule.get_stresses):
        with pytest.raises(PropertyNotImplementedError, match="cell vectors"):
            ask()
    # ASE's rule for slabs: whatever volume the three vectors span.
    slab = as_atoms(KINDS["slab"])
    with pytest.raises(PropertyNotImplementedError):
        calculator.get_property("stress", slab)
    virial = calculator.virials(slab).sum(0)
    slab.cell[2] = [0, 0, 40.0]
    wanted = -full_3x3_to_voigt_6_stress(virial) / slab.get_volume()
    assert calculator.get_property("stress", slab) == pytest.approx(wanted, abs=1e-12)


def test_no_atoms_and_lonely_ones(calculator):
    nothing = Atoms()
    assert calculator.get_property("energy", nothing) == 0.0
    assert calculator.get_property("forces", nothing).shape == (0, 3)
    lonely = Atoms("Te")
    energy = calculator.get_property("energy", lonely)
    assert np.isfinite(energy)
    assert not calculator.get_property("forces", lonely).any()
    apart = Atoms("Te2", [[0, 0, 0], [0, 0, 50.0]], cell=100 * np.eye(3), pbc=True)
    assert calculator.get_property("energy", apart) == pytest.approx(2 * energy)


def with_position(value) -> Atoms:
    atoms = bulk()
    atoms.positions[5, 1] = value
    return atoms


def with_cell(cell) -> Atoms:
    return Atoms(TWO, [[0, 0, 0], [1.6, 1.6, 1.6]], cell=cell, pbc=True)


@pytest.mark.parametrize(
    ("atoms", "words"),
    [
        (Atoms("TeAu2", np.diag([1.0, 3, 5])), "no Au (atom 1, from 0), only Te Pb"),
        (Atoms("TeX", [[0, 0, 0], [0, 0, 2]]), "no X (atom 1"),
        (with_position(np.nan), "position of atom 5 (from 0) is not finite"),
        (with_position(np.inf), "position of atom 5 (from 0) is not finite"),
        (with_cell(np.diag([3.2, 3.2, np.nan])), "the cell has numbers that are not finite"),
        (with_cell(np.diag([3.2, 3.2, 0])), "periodic along a direction without a cell vector"),
        (with_cell([[3.2, 0, 0], [0, 3.2, 0], [3.2, 3.2, 0]]), "without a cell vector"),
        (Atoms("Te2", [[0, 0, 0], [0, 0, 0]]), "atoms 0 and 1 (from 0) are 0 Å apart"),
        (with_cell(0.05 * np.eye(3)), "is Lattice in Å?"),
    ],
)  # fmt: skip
def test_mistakes_are_named(calculator, atoms, words):
    good = bulk()
    energy = calculator.get_property("energy", good)
    with pytest.raises(UserError) as error:
        calculator.get_property("energy", atoms)
    assert words in str(error.value)
    # And nothing of them stays.
    assert calculator.get_property("energy", good) == pytest.approx(energy, abs=1e-11)


def test_mistakes_in_the_options(model, tmp_path):
    for options, words in (
        ({"skin": -1.0}, "skin -1.0"),
        ({"skin": np.nan}, "skin nan"),
        ({"precision": "half"}, "use float32 or float64"),
        ({"device": "nowhere"}, "device nowhere"),
    ):
        with pytest.raises(UserError, match=words):
            NEPCalculator(model, **options)
    with pytest.raises(UserError, match="cannot be read"):
        NEPCalculator(tmp_path / "none.txt")
    with pytest.raises(UserError, match="no atoms yet"):
        NEPCalculator(model, device="cpu").descriptors()
