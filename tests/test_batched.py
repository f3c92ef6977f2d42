"""Many structures at once: a list of Atoms, and torch-sim."""

import warnings

import numpy as np
import pytest
import torch
from ase import Atoms, units
from structures import largest
from test_calculator import KINDS, as_atoms, bulk, calculator, model  # noqa: F401

from nepkit import NEPCalculator, UserError, predict_structures
from nepkit.calculator import batched

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    try:
        import torch_sim
    except ImportError:
        torch_sim = None
needs_torch_sim = pytest.mark.skipif(
    torch_sim is None, reason="torch-sim-atomistic is not installed"
)


@pytest.mark.parametrize("at_once", [20_000, 9])
def test_a_list_is_as_good_as_one_by_one(calculator, at_once, monkeypatch):  # noqa: F811
    monkeypatch.setattr(batched, "ATOMS_AT_ONCE", at_once)
    structures = [as_atoms(frame) for frame in KINDS.values()] + [Atoms(), bulk()]
    found = predict_structures(calculator, iter(structures))
    assert len(found.forces) == len(structures) == len(found.energy)
    for k, atoms in enumerate(structures):
        energy, forces = (calculator.get_property(what, atoms) for what in ("energy", "forces"))
        assert found.energy[k] == pytest.approx(energy, abs=1e-10)
        assert found.forces[k] == pytest.approx(forces, abs=1e-10)
        if atoms.cell.rank == 3:
            stress = calculator.get_property("stress", atoms)
            assert found.stress[k] == pytest.approx(stress, abs=1e-10)
        else:
            assert np.isnan(found.stress[k]).all()


def test_a_list_from_a_file_and_its_mistakes(model):  # noqa: F811
    found = predict_structures(model, [bulk(), bulk(seed=1)], device="cpu", precision="float64")
    wanted = NEPCalculator(model, device="cpu", precision="float64")
    assert found.energy[1] == pytest.approx(wanted.get_property("energy", bulk(seed=1)), abs=1e-9)
    assert len(predict_structures(model, [], device="cpu").energy) == 0
    with pytest.raises(UserError, match="structure 1: the model has no Au"):
        predict_structures(model, [bulk(), Atoms("Au")], device="cpu")
    with pytest.raises(UserError, match="structure 2: atoms 0 and 1"):
        predict_structures(model, [bulk(), bulk(), Atoms("Te2")], device="cpu", precision="float64")


@pytest.fixture
def sim_model(model):  # noqa: F811
    from nepkit.calculator.torchsim import NEPModel

    return NEPModel(model, device="cpu", precision="float64")


@needs_torch_sim
@pytest.mark.filterwarnings("ignore")
def test_torch_sim_sees_the_same(sim_model, model):  # noqa: F811
    structures = [
        as_atoms(KINDS[kind]) for kind in ("bulk", "triclinic", "left-handed", "two atoms")
    ]
    state = torch_sim.initialize_state(structures, torch.device("cpu"), torch.float64)
    found = sim_model(state)
    wanted = predict_structures(model, structures, device="cpu", precision="float64")
    assert found["energy"].numpy() == pytest.approx(wanted.energy, abs=1e-9)
    assert found["forces"].numpy() == pytest.approx(np.concatenate(wanted.forces), abs=1e-9)
    voigt = found["stress"].numpy()[:, [0, 1, 2, 1, 0, 0], [0, 1, 2, 2, 2, 1]]
    assert voigt == pytest.approx(wanted.stress, abs=1e-9)
    # Tensors changed in place are seen.
    state.positions[0, 0] += 0.1
    structures[0].positions[0, 0] += 0.1
    moved = predict_structures(model, structures[:1], device="cpu", precision="float64")
    assert sim_model(state)["energy"][0].item() == pytest.approx(moved.energy[0], abs=1e-9)
    with pytest.raises(UserError, match="system 1: the model has no Au"):
        gold = [structures[1], Atoms("Au", cell=3 * np.eye(3), pbc=True)]
        sim_model(torch_sim.initialize_state(gold, torch.device("cpu"), torch.float64))


@needs_torch_sim
@pytest.mark.filterwarnings("ignore")
def test_a_relaxation_of_torch_sim(sim_model, model):  # noqa: F811
    structures = [bulk(seed=k, repeat=2) for k in range(2)]
    before = predict_structures(model, structures, device="cpu", precision="float64")
    final = torch_sim.optimize(
        structures, sim_model, optimizer=torch_sim.frechet_cell_fire, max_steps=80,
        convergence_fn=torch_sim.generate_force_convergence_fn(force_tol=1e-3),
    )  # fmt: skip
    relaxed = [
        Atoms(
            part.atomic_numbers.numpy(), part.positions.numpy(),
            cell=part.row_vector_cell[0].numpy(), pbc=True,
        )
        for part in final.split()
    ]  # fmt: skip
    after = predict_structures(model, relaxed, device="cpu", precision="float64")
    assert final.energy.numpy() == pytest.approx(after.energy, abs=1e-8)
    assert (after.energy < before.energy - 0.1).all()
    for one, other in ((after.forces, before.forces), (after.stress, before.stress)):
        assert largest(one) < 0.2 * largest(other)


@needs_torch_sim
@pytest.mark.filterwarnings("ignore")
def test_dynamics_of_torch_sim_conserve_the_energy(sim_model):
    structures = [bulk(seed=k, repeat=2) for k in range(2)]
    state = torch_sim.initialize_state(structures, torch.device("cpu"), torch.float64)
    time = torch.tensor(2e-4, dtype=torch.float64)  # ps
    kelvin = torch.tensor(300.0 * units.kB, dtype=torch.float64)
    # torch-sim's unit of time is that in which eV, Å and u agree.
    time = time * 1e3 * units.fs
    begin, step = torch_sim.nve(sim_model, dt=time, kT=kelvin, seed=0)
    state, totals = begin(state), []
    for _ in range(150):
        state = step(state)
        kinetic = torch_sim.calc_kinetic_energy(
            momenta=state.momenta, masses=state.masses, system_idx=state.system_idx
        )
        totals.append((state.energy + kinetic).numpy() / 16)
    assert np.std(totals, axis=0).max() < 1e-4
    assert sim_model._field.rebuilds >= 2


def test_one_structure_is_no_list(tmp_path):
    with pytest.raises(UserError, match=r"give \[atoms\]"):
        predict_structures(tmp_path / "nep.txt", Atoms("Si"))
