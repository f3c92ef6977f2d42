"""What any potential must obey: forces and virials derive from the energy, symmetries, smoothness."""

from dataclasses import replace

import numpy as np
import plain_nep
import pytest
import torch
from scipy.spatial.transform import Rotation
from structures import (
    COLUMNS,
    ROWS,
    TWO,
    differentiated_energy,
    evaluate,
    make_frame,
    model_settings,
    odd_frames,
    random_model,
    zbl_forms,
)

from nepkit.config import HIGHER_INVARIANTS

KINDS = odd_frames()
MODELS = {
    "plain": model_settings(),
    "full": model_settings(
        radial=(4.5, 3.9), angular=(3.0, 3.6), invariants=tuple(HIGHER_INVARIANTS),
        neuron=(5, 4), zbl=zbl_forms(TWO)["universal"],
    ),
}  # fmt: skip


@pytest.fixture(scope="module", params=MODELS.values(), ids=MODELS)
def model(request):
    return random_model(request.param)


def full(virial):
    """(6,) as a symmetric (3, 3)."""
    tensor = np.empty((3, 3))
    tensor[ROWS, COLUMNS] = tensor[COLUMNS, ROWS] = virial
    return tensor


@pytest.mark.parametrize("kind", KINDS)
def test_forces_and_virials_by_finite_differences(model, kind):
    frame = KINDS[kind]
    found = evaluate(model, [frame])
    forces, virial = differentiated_energy(lambda frames: evaluate(model, frames).energy, frame)
    assert found.forces == pytest.approx(forces, rel=1e-7, abs=1e-7)
    assert found.virial[0] == pytest.approx(virial, rel=1e-7, abs=1e-7)


@pytest.mark.parametrize("kind", KINDS)
def test_same_as_the_plain_formulas(model, kind):
    settings = replace(model.settings, zbl=None)
    bare = random_model(settings)
    pairs = plain_nep.PlainPairs([KINDS[kind]], settings)
    energies, forces, virials = (v.detach().numpy() for v in plain_nep.evaluate(bare, pairs))
    found = evaluate(bare, [KINDS[kind]])
    own = bare.element_energy.numpy()[pairs.types].sum()
    assert found.energy[0] == pytest.approx(energies.sum() + own, rel=1e-12, abs=1e-11)
    assert found.forces == pytest.approx(forces, rel=1e-10, abs=1e-10)
    assert found.virial == pytest.approx(virials, rel=1e-10, abs=1e-10)


@pytest.mark.parametrize("kind", KINDS)
def test_translation_rotation_permutation(model, kind):
    frame = KINDS[kind]
    generator = np.random.default_rng(1)
    rotation = Rotation.random(random_state=2).as_matrix()
    order = generator.permutation(len(frame))
    changed = [
        replace(frame, positions=frame.positions + [0.7, -31.0, 2.2]),
        replace(frame, positions=frame.positions @ rotation.T, cell=frame.cell @ rotation.T),
        replace(frame, positions=-frame.positions, cell=-frame.cell),
        replace(frame, positions=frame.positions[order], numbers=frame.numbers[order]),
    ]
    found = evaluate(model, [frame, *changed], descriptors=True)
    assert found.energy == pytest.approx(np.full(5, found.energy[0]), rel=1e-11, abs=1e-11)
    plain, moved, turned, mirrored, permuted = found.forces.reshape(5, -1, 3)
    assert moved == pytest.approx(plain, abs=1e-10)
    assert turned == pytest.approx(plain @ rotation.T, abs=1e-10)
    assert mirrored == pytest.approx(-plain, abs=1e-10)
    assert permuted == pytest.approx(plain[order], abs=1e-10)
    assert plain.sum(0) == pytest.approx(np.zeros(3), abs=1e-10)
    virial = [full(v) for v in found.virial]
    for same in (virial[1], rotation.T @ virial[2] @ rotation, virial[3], virial[4]):
        assert same == pytest.approx(virial[0], abs=1e-10)
    q = found.descriptors.reshape(5, len(frame), -1)
    assert q[1:4] == pytest.approx(np.broadcast_to(q[0], q[1:4].shape), rel=1e-10, abs=1e-10)
    assert q[4] == pytest.approx(q[0][order], rel=1e-10, abs=1e-10)
    # A force field in equilibrium under rotation: no torque on a molecule.
    if not frame.pbc.any():
        torque = np.cross(frame.positions, plain).sum(0)
        assert torque == pytest.approx(np.zeros(3), abs=1e-9)


@pytest.mark.parametrize("kind", [k for k, frame in KINDS.items() if frame.pbc.any()])
def test_supercell(model, kind):
    frame = KINDS[kind]
    repeats = np.where(frame.pbc, (2, 1, 3), 1)
    shifts = np.stack(np.meshgrid(*map(np.arange, repeats), indexing="ij"), -1).reshape(-1, 3)
    large = replace(
        frame,
        positions=(frame.positions + (shifts @ frame.cell)[:, None]).reshape(-1, 3),
        numbers=np.tile(frame.numbers, len(shifts)),
        cell=frame.cell * repeats[:, None],
    )
    found = evaluate(model, [frame, large])
    n = len(frame)
    assert found.energy[1] == pytest.approx(len(shifts) * found.energy[0], rel=1e-11, abs=1e-10)
    assert found.virial[1] == pytest.approx(len(shifts) * found.virial[0], rel=1e-10, abs=1e-9)
    wanted = np.tile(found.forces[:n], (len(shifts), 1))
    assert found.forces[n:] == pytest.approx(wanted, abs=1e-9)


@pytest.mark.parametrize("which", ["radial", "angular", "zbl"])
def test_smooth_through_the_cutoff(which):
    """Energy and forces of a trimer, one atom moving through the cutoff of the pair."""
    model = random_model(MODELS["full"])
    # Te has 4.5 and 3.0 Å, Pb 3.9 and 3.6 Å.
    cutoff = {"radial": 4.2, "angular": 3.3, "zbl": 2.8}[which]
    gaps = [-1e-3, -1e-5, -1e-7, 1e-7, 1e-5]
    frames = [
        make_frame(("Te", "Pb", "Te"), [[0, 0, 0], [0, 0, cutoff + gap], [1.9, 0.3, -1.2]])
        for gap in gaps
    ]
    found = evaluate(model, frames)
    before, near, just_inside, just_outside, after = found.forces.reshape(5, 3, 3)
    assert np.abs(just_inside - just_outside).max() < 1e-5
    assert np.abs(near - after).max() < 1e-3
    assert abs(found.energy[2] - found.energy[3]) < 1e-6
    assert np.abs(before - just_inside).max() > 1e-6  # the cutoff is where we think it is


def test_isolated_atoms_have_the_energy_of_an_empty_environment(model):
    frames = [KINDS["isolated"], KINDS["far apart"]]
    found = evaluate(model, frames)
    assert np.isfinite(found.energy).all()
    assert not found.forces.any() and not found.virial.any()
    single = {
        element: evaluate(model, [make_frame((element,), [[0, 0, 0]])]).energy[0] for element in TWO
    }
    symbols = {52: "Te", 82: "Pb"}
    wanted = sum(single[symbols[number]] for number in frames[1].numbers)
    assert found.energy[1] == pytest.approx(wanted, rel=1e-13)


def test_predictions_do_not_depend_on_the_company(model):
    frames = list(KINDS.values())
    together = evaluate(model, frames, descriptors=True)
    alone = [evaluate(model, [frame], descriptors=True) for frame in frames]
    for name in ("energy", "forces", "virial", "descriptors"):
        parts = np.concatenate([getattr(part, name) for part in alone])
        assert getattr(together, name) == pytest.approx(parts, rel=1e-11, abs=1e-11)


def test_single_precision():
    single, double = (random_model(MODELS["full"], dtype=t) for t in (torch.float32, torch.float64))
    frames = list(KINDS.values())
    found, wanted = evaluate(single, frames), evaluate(double, frames)
    assert found.energy == pytest.approx(wanted.energy, abs=1e-4)
    assert found.forces == pytest.approx(wanted.forces, abs=1e-3)
