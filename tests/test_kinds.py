"""Training of every odd kind of data and model: it works, and the written nep.txt says the same."""

from dataclasses import replace

import numpy as np
import pytest
from run_files import Labelled, make_run, random_frame, random_frames

from nepkit import predict_dataset, train_nep


def isolated(symbol: str, energy: float) -> Labelled:
    """One atom in a box of 20 Å, with an energy alone."""
    return Labelled((symbol,), np.full((1, 3), 1.0), 20 * np.eye(3), energy, None, None)


def molecule(seed: int) -> Labelled:
    return random_frame(seed, cell=None, virial=None)


def shifted(count: int, per_atom: float) -> list[Labelled]:
    """Energies of thousands of eV an atom that differ by some meV an atom."""
    frames = random_frames(count)
    generator = np.random.default_rng(0)
    return [
        replace(frame, energy=len(frame.symbols) * (per_atom + 1e-3 * generator.normal()))
        for frame in frames
    ]


FRAMES = random_frames(5)
KINDS = {
    "one type": (random_frames(4, symbols=("Si",)), {"type": "1 Si"}),
    "one type, one neuron": (random_frames(4, symbols=("Si",)), {"type": "1 Si", "neuron": 1}),
    "one frame": (FRAMES[:1], {}),
    "one atom a cell": ([random_frame(k, n_atoms=1) for k in range(3)], {}),
    "batch of one": (FRAMES, {"batch": 1}),
    "batch larger than the data": (FRAMES, {"batch": 50}),
    "isolated atoms": ([isolated("Si", -5.4), isolated("Ge", -4.5)], {}),
    "isolated atom among others": ([isolated("Si", -5.4), *FRAMES], {"batch": 1}),
    "no forces": ([replace(f, forces=None) for f in FRAMES], {}),
    "no energies": ([replace(f, energy=None) for f in FRAMES], {}),
    "no virials": ([replace(f, virial=None) for f in FRAMES], {}),
    "forces alone": ([replace(f, energy=None, virial=None) for f in FRAMES], {"loss_form": "rmse"}),
    "energies alone": ([replace(f, forces=None, virial=None) for f in FRAMES], {"batch": 1}),
    "virials alone": ([replace(f, energy=None, forces=None) for f in FRAMES], {"batch": 1}),
    "some virials": ([FRAMES[0], replace(FRAMES[1], virial=None), *FRAMES[2:]], {"batch": 1}),
    "some labels": (
        [
            replace(FRAMES[0], energy=None), replace(FRAMES[1], forces=None, virial=None),
            *FRAMES[2:],
        ],
        {"batch": 1, "loss_form": "rmse"},
    ),
    "weights": (
        [
            replace(FRAMES[0], extra="weight=10"), replace(FRAMES[1], extra="energy_weight=0"),
            *FRAMES[2:],
        ],
        {},
    ),
    "-500 eV/atom": (shifted(5, -500.0), {}),
    "-2000 eV/atom": (shifted(5, -2000.0), {}),
    "an element without data": (FRAMES, {"type": "4 C Si H Ge"}),
    "molecules": ([molecule(k) for k in range(4)], {}),
    "molecules and crystals": ([molecule(0), *FRAMES], {}),
    "two layers": (FRAMES, {"neuron": "4 3"}),
    "cutoffs of the elements": (FRAMES, {"cutoff": "4 3 5 3.5"}),
    "equal cutoffs": (FRAMES, {"cutoff": "3.5 3.5"}),
    "no steps": (FRAMES, {"generation": 0}),
    "one step": (FRAMES, {"generation": 1}),
    "no warm-up": (FRAMES, {"warmup": 0, "ema": 0, "max_grad_norm": 1e-9}),
    "adam": (FRAMES, {"optimizer": "adam", "weight_decay": 0.1, "lambda_1": 0.1, "lambda_2": 0.1}),
    "zbl": (FRAMES, {"zbl": 2}),
    "typewise zbl": (FRAMES, {"zbl": 2, "use_typewise_cutoff_zbl": 0.8}),
    "l_max 1": (FRAMES, {"l_max": 1}),
    "every invariant": (FRAMES, {"l_max": "4 1 1 1 1 1 1"}),
    "smallest model": (FRAMES, {"n_max": "0 0", "basis_size": "0 0", "l_max": "2 0", "neuron": 2}),
    "no neighbours at all": ([isolated("Si", -5.4)] * 2, {"type": "1 Si"}),
}  # fmt: skip


# Descriptors and networks of other sizes, each of which takes some seconds to compile.
LONG = ("l_max 1", "smallest model", "two layers")
IN_FLOAT64 = ("one type", "two layers", "-2000 eV/atom", "isolated atoms", "some labels", "zbl")


@pytest.mark.parametrize(
    "name, precision",
    [
        *(
            pytest.param(name, "float32", marks=[pytest.mark.slow] * (name in LONG))
            for name in KINDS
        ),
        *((name, "float64") for name in IN_FLOAT64),
    ],
)
def test_trains(tmp_path, name, precision):
    frames, settings = KINDS[name]
    folder = make_run(tmp_path / "run", frames, **settings)
    found = train_nep(folder, device="cpu", precision=precision)["train"]
    labels = {"energy": "energy", "forces": "force", "virial": "virial"}
    for label, field in labels.items():
        known = any(getattr(frame, label) is not None for frame in frames)
        error = getattr(found, field)
        assert (error is not None) == known
        assert error is None or np.isfinite(error)
    for what in labels.values():
        assert np.isfinite(np.loadtxt(folder / f"{what}_train.out")).all()
    # The total energies of the nep.txt, in twice the digits, are those of the training.
    again = predict_dataset(folder / "nep.txt", folder / "train.xyz", precision="float64").errors
    tolerance = 2e-6 if precision == "float32" else 1e-9
    for field in labels.values():
        before, after = getattr(found, field), getattr(again, field)
        assert after == (None if before is None else pytest.approx(before, rel=1e-4, abs=tolerance))


@pytest.mark.parametrize("per_atom", [-500.0, -2000.0])
def test_differences_of_mev_survive(tmp_path, per_atom):
    frames = shifted(4, per_atom)
    folder = make_run(tmp_path / "run", frames, lambda_f=0, lambda_v=0, learning_rate="0.02 0.001")
    found = train_nep(folder, device="cpu", generation=150, batch=4, warmup=10, ema=0.9)["train"]
    assert found.energy < 4e-4
    predicted, label = np.loadtxt(folder / "energy_train.out").T
    # Ten digits: 1e-6 eV at -2000.
    assert np.abs(label - [f.energy / len(f.symbols) for f in frames]).max() < 1e-6
    assert np.sqrt(np.mean((predicted - label) ** 2)) == pytest.approx(found.energy, abs=2e-6)


def test_isolated_atoms_are_learnt(tmp_path):
    frames = [isolated("Si", -5.4), isolated("Ge", -4.5)]
    folder = make_run(tmp_path / "run", frames, learning_rate="0.01 0.0001", warmup=10, ema=0.9)
    found = train_nep(folder, device="cpu", generation=150, output_interval=150)["train"]
    assert found.energy < 1e-3 and found.force is None
    assert not np.loadtxt(folder / "force_train.out")[:, :3].any()


def test_an_independent_engine_reads_the_same(tmp_path):
    adapters = pytest.importorskip("nep_adapters")
    ase_io = pytest.importorskip("ase.io")
    frames = shifted(3, -2000.0) + random_frames(3, first_seed=20)
    folder = make_run(tmp_path / "run", frames, zbl=1.5)
    train_nep(folder, device="cpu", generation=40)
    atoms = ase_io.read(folder / "train.xyz", ":")
    with adapters.NEPCalculator(str(folder / "nep.txt"), backend="cpu") as calculator:
        predicted = calculator.predict_structures(atoms)
    n_atoms = np.array([len(frame) for frame in atoms])
    energy = np.loadtxt(folder / "energy_train.out")[:, 0]
    forces = np.loadtxt(folder / "force_train.out")[:, :3]
    virial = np.loadtxt(folder / "virial_train.out")[:, :6]
    np.testing.assert_allclose(energy, predicted.energy / n_atoms, atol=1e-5, rtol=0)
    np.testing.assert_allclose(forces, np.reshape(predicted.forces, (-1, 3)), atol=3e-4, rtol=0)
    columns = np.reshape(predicted.structure_virials, (-1, 9))[:, [0, 4, 8, 1, 5, 6]]
    np.testing.assert_allclose(virial, columns, atol=3e-4, rtol=0)
