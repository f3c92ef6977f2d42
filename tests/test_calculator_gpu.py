"""The calculator on a GPU: equal to the CPU in float64, with graphs, in tiles, and in large."""

import numpy as np
import pytest
import torch
from ase import units
from ase.md.verlet import VelocityVerlet
from structures import largest
from test_calculator import KINDS, as_atoms, bulk, model, warm  # noqa: F401

from nepkit import NEPCalculator, predict_structures
from nepkit.calculator import device

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU"),
    pytest.mark.filterwarnings("ignore"),
]
PROPERTIES = ("energy", "energies", "forces", "stress", "stresses")


def both(path, **options):
    return [NEPCalculator(path, device=d, precision="float64", **options) for d in ("cuda", "cpu")]


def agree(found, wanted, structures, tolerance=1e-9):
    for atoms in structures:
        for what in PROPERTIES if atoms.cell.rank == 3 else PROPERTIES[:3]:
            one, other = (c.get_property(what, atoms) for c in (found, wanted))
            assert one == pytest.approx(other, abs=tolerance), what
        assert largest(found.virials(atoms) - wanted.virials(atoms)) < tolerance
        assert largest(found.descriptors(atoms) - wanted.descriptors(atoms)) < tolerance


def test_every_kind_of_cell(model):  # noqa: F811
    agree(*both(model), [as_atoms(frame) for frame in KINDS.values()])


def test_moving_atoms_by_graphs(model):  # noqa: F811
    """Lists made anew and graphs replayed in between, along the way of the CPU."""
    ends = []
    for calculator in both(model, skin=0.2):
        atoms = bulk()
        atoms.calc = calculator
        warm(atoms, 1000)
        VelocityVerlet(atoms, 0.5 * units.fs).run(200)
        ends.append(atoms.positions)
        assert 3 < calculator._field.rebuilds < 100
    assert calculator.device.type == "cpu"
    assert ends[0] == pytest.approx(ends[1], abs=1e-7)


def test_graphs_are_used_and_checked(model):  # noqa: F811
    calculator, _ = both(model)
    atoms = bulk()
    first = calculator.get_property("forces", atoms)
    field = calculator._field
    assert field.graph is not None and field.trusted
    atoms.positions += 0.01
    assert calculator.get_property("forces", atoms) == pytest.approx(first, abs=1e-10)
    assert field.rebuilds == 1


def test_a_graph_that_does_not_repeat_is_not_used(model, monkeypatch):  # noqa: F811
    calculator, other = both(model)
    monkeypatch.setattr(device, "repeats", lambda *_: False)
    agree(calculator, other, [bulk(), bulk(seed=1)])
    assert not calculator._field.trusted


def test_tiles(model, monkeypatch):  # noqa: F811
    monkeypatch.setattr(device, "ATOMS_AT_ONCE", 23)
    monkeypatch.setattr(device, "ATOMS_IN_GRAPH", 0)
    agree(*both(model), [bulk(repeat=4), as_atoms(KINDS["molecule"])])


def test_lists_of_structures(model):  # noqa: F811
    structures = [as_atoms(frame) for frame in KINDS.values()] * 3
    found, wanted = (predict_structures(calculator, structures) for calculator in both(model))
    assert found.energy == pytest.approx(wanted.energy, abs=1e-9)
    assert np.concatenate(found.forces) == pytest.approx(np.concatenate(wanted.forces), abs=1e-9)


def test_single_precision(model):  # noqa: F811
    atoms = bulk(repeat=6)
    single = NEPCalculator(model, device="cuda")
    double = NEPCalculator(model, device="cpu", precision="float64")
    one, other = (c.get_property("forces", atoms) for c in (single, double))
    assert largest(one - other) < 2e-4 * max(1.0, largest(other))
    one, other = (c.get_property("energies", atoms) for c in (single, double))
    assert one.dtype == np.float64 and largest(one - other) < 1e-4
