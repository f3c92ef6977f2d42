"""Predictions against other programs: GPUMD's stored outputs, NEP89 in double precision, nep-adapters."""

import lzma
from itertools import chain, combinations

import numpy as np
import pytest
import torch
from ase import Atoms
from structures import (
    COLUMNS,
    ROWS,
    evaluate,
    largest,
    make_frame,
    model_settings,
    random_file,
    shared,
    zbl_forms,
)

from nepkit.config import HIGHER_INVARIANTS
from nepkit.data.xyz import read_xyz
from nepkit.model.conversion import model_from_file
from nepkit.model.nep_txt import read_nep_txt
from nepkit.model.nep_txt_write import write_nep_txt

PRECISIONS = {"float32": torch.float32, "float64": torch.float64}
# The fused kernels are compiled for every size of model first, half a minute each.
on_both_paths = pytest.mark.parametrize(
    "path", ["reference", pytest.param("fused", marks=pytest.mark.slow)]
)


def load(path, precision="float64"):
    return model_from_file(read_nep_txt(path), device="cpu", dtype=PRECISIONS[precision])


def assert_near(found, wanted, absolute, relative=0.0):
    assert found.shape == wanted.shape
    error = np.abs(found - wanted)
    excess = error / (absolute + relative * np.abs(wanted))
    assert excess.max(initial=0.0) <= 1.0, f"largest error {error.max():.3g}"


def assert_like_gpumd(found, n_atoms, energy, forces, virial):
    assert_near(found.energy / n_atoms, energy, 1e-5)
    assert_near(found.forces, forces, 3e-4, 5e-6)
    assert_near(found.virial / n_atoms[:, None], virial, 5e-5, 5e-6)


@on_both_paths
@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize(
    ("folder", "model"), [("a_pbte", "nep.txt"), ("a_mos2_finetune", "nep_gen11000.txt")]
)
def test_gpumd_outputs(folder, model, precision, path):
    source = shared(f"data/{folder}")
    energy, forces, virial = (
        np.loadtxt(source / "gpumd" / f"{what}_train.out") for what in ("energy", "force", "virial")
    )
    frames = read_xyz(source / "train.xyz")
    found = evaluate(load(source / "gpumd" / model, precision), frames, path)
    n_atoms = np.array([len(frame) for frame in frames])
    assert_like_gpumd(found, n_atoms, energy[:, 0], forces[:, :3], virial[:, :6])


@on_both_paths
@pytest.mark.parametrize("precision", PRECISIONS)
def test_typewise_zbl_and_descriptors_of_gpumd(precision, path):
    """CrCoNi: typewise ZBL, q222 and q1111."""
    folder = shared("data/b_alloy/crconi")
    wanted = np.load(folder / "CrCoNi.gpumd.npz")
    frames = read_xyz(folder / "CrCoNi.xyz")
    found = evaluate(load(folder / "nep_CrCoNi.txt", precision), frames, path, descriptors=True)
    n_atoms = np.array([len(frame) for frame in frames])
    assert_like_gpumd(found, n_atoms, wanted["E_per_atom"], wanted["F"], wanted["V_per_atom"])
    assert_near(found.descriptors, wanted["D_per_atom"], 2e-5)


@pytest.fixture(scope="module")
def nep89(tmp_path_factory):
    path = tmp_path_factory.mktemp("nep89") / "nep.txt"
    path.write_bytes(lzma.decompress(shared("data/models/nep89_20250409.txt.xz").read_bytes()))
    file = read_nep_txt(path)
    return {
        name: model_from_file(file, device="cpu", dtype=dtype) for name, dtype in PRECISIONS.items()
    }


NEP89_TOLERANCES = {"float64": (1e-10, 1e-9, 1e-9), "float32": (5e-6, 2e-4, 5e-5)}


@on_both_paths
@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize(
    ("folder", "name"), [("c_multi", "subset89_test"), ("d_molecules", "water192")]
)
def test_nep89_in_double_precision(nep89, folder, name, precision, path):
    wanted = np.load(shared(f"data/t_teacher89/nep89_on_{name}.npz"))
    frames = read_xyz(shared(f"data/{folder}/{name}.xyz"))
    n_atoms = wanted["natoms"]
    found = evaluate(nep89[precision], frames, path)
    energy, force, virial = NEP89_TOLERANCES[precision]
    assert_near(found.energy / n_atoms, wanted["energy"] / n_atoms, energy)
    assert_near(found.forces, wanted["forces"], force)
    tensors = wanted["virial_per_atom"].reshape(-1, 3, 3)
    assert_near(found.virial / n_atoms[:, None], tensors[:, ROWS, COLUMNS], virial)


def test_nep89_descriptors(nep89):
    wanted = np.load(shared("data/t_teacher89/nep89_descriptors_teacher89_test.npz"))["descriptor"]
    frames = read_xyz(shared("data/t_teacher89/teacher89_test.xyz"))
    found = evaluate(nep89["float64"], frames, descriptors=True)
    assert_near(found.descriptors, wanted, 1e-7)


# Random models against nep-adapters, which evaluates periodic frames only.
ELEMENTS = ("Te", "O", "Si")
ZBL = zbl_forms(ELEMENTS)
PER_ELEMENT = {"radial": (5.0, 4.2, 4.6), "angular": (3.2, 3.9, 3.4)}
RANDOM_MODELS = {
    f"l_max {l_max} {' '.join(flags)}": {"l_max": l_max, "invariants": flags}
    for l_max in range(2, 9)
    for flags in dict.fromkeys(
        [(), *((name,) for name in HIGHER_INVARIANTS if l_max == 4)]
        + [tuple(name for name, least in HIGHER_INVARIANTS.items() if least <= l_max)]
    )
}
RANDOM_MODELS |= {
    " ".join(flags): {"l_max": 4, "invariants": flags}
    for flags in chain.from_iterable(
        combinations(HIGHER_INVARIANTS, count) for count in (2, 3, 4, 5)
    )
}
RANDOM_MODELS |= {
    "two layers": {"neuron": (5, 4)},
    "per element": PER_ELEMENT,
    "radial equals angular": {"radial": 3.4, "angular": 3.4},
    "large": {"n_max": (6, 5), "basis_size": (10, 8), "neuron": (20,)},
    "least": {"n_max": (0, 0), "basis_size": (0, 0), "neuron": (1,), "l_max": 2},
    "everything": {
        "invariants": tuple(HIGHER_INVARIANTS), "l_max": 5, "neuron": (6, 3),
        "zbl": ZBL["universal"], **PER_ELEMENT,
    },
}  # fmt: skip
RANDOM_MODELS |= {f"{name} ZBL": {"zbl": zbl} for name, zbl in ZBL.items()}
RANDOM_MODELS |= {
    f"{name} ZBL, per element": {"zbl": zbl, **PER_ELEMENT} for name, zbl in ZBL.items()
}


def random_cells(count=5, seed=0):
    """Random periodic cells, the first two with two atoms."""
    generator = np.random.default_rng(seed)
    frames = []
    while len(frames) < count:
        n_atoms = 2 if len(frames) < 2 else int(generator.integers(3, 9))
        cell = generator.normal(size=(3, 3)) + 2.5 * np.eye(3)
        cell *= (n_atoms * 13.0 / abs(np.linalg.det(cell))) ** (1 / 3)
        if len(frames) % 2:
            cell = cell[::-1]
        if 1 / np.linalg.norm(np.linalg.inv(cell), axis=0).max() < 1.6:
            continue
        elements = [ELEMENTS[k] for k in generator.integers(0, 3, n_atoms)]
        positions = generator.uniform(-0.5, 1.5, (n_atoms, 3)) @ cell
        atoms = Atoms(elements, positions, cell=cell, pbc=True)
        distances = atoms.get_all_distances(mic=True)
        if distances[~np.eye(n_atoms, dtype=bool)].min() > 1.2:
            frames.append((atoms, make_frame(elements, positions, cell)))
    return tuple(zip(*frames))


@pytest.mark.parametrize("changes", RANDOM_MODELS.values(), ids=RANDOM_MODELS)
def test_random_models_against_nep_adapters(changes, tmp_path):
    nep_adapters = pytest.importorskip("nep_adapters")
    settings = model_settings(ELEMENTS, **{"radial": 4.8, "angular": 3.7} | changes)
    path = tmp_path / "nep.txt"
    write_nep_txt(path, random_file(settings, seed=1))
    all_atoms, frames = random_cells()
    with nep_adapters.NEPCalculator(str(path), backend="cpu") as calculator:
        wanted = calculator.predict_structures(list(all_atoms))
        energy, forces = np.array(wanted.energy), np.array(wanted.forces)
        virials = np.array(wanted.structure_virials).reshape(-1, 3, 3)[:, ROWS, COLUMNS]
        descriptors = np.array(calculator.predict_descriptors(list(all_atoms)))
    found = evaluate(load(path), frames, descriptors=True)
    n_atoms = np.array([len(frame) for frame in frames])
    assert largest(forces) > 1e-3
    assert_near(found.energy / n_atoms, energy / n_atoms, 1e-10)
    assert_near(found.forces, forces, 1e-10)
    assert_near(found.virial / n_atoms[:, None], virials, 1e-10)
    assert_near(found.descriptors, descriptors.reshape(found.descriptors.shape), 1e-10)
