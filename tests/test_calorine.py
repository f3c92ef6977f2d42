"""What calorine, the Python package for GPUMD, reads from our files: a witness, not a dependency."""

import warnings

import numpy as np
import pytest
from run_files import make_run, random_frames

from nepkit import train_nep
from nepkit.data.xyz import read_xyz
from nepkit.model.nep_txt import read_nep_txt
from nepkit.model.nep_txt_write import parameter_vector

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    calorine = pytest.importorskip("calorine.nep", reason="calorine is not installed")
# Its imports, and what it says of files, are its own affair.
pytestmark = pytest.mark.filterwarnings("ignore")
COMPONENTS = {"xx": (0, 0), "yy": (1, 1), "zz": (2, 2), "yz": (1, 2), "xz": (0, 2), "xy": (0, 1)}


@pytest.fixture(scope="module", params=["one layer", "two layers, typewise cutoffs and zbl"])
def run(request, tmp_path_factory):
    """A run that was longer the second time, and its errors."""
    settings = {"neuron": "4 3", "cutoff": "4 3 3.5 3", "zbl": 2} if "two" in request.param else {}
    folder = tmp_path_factory.mktemp("calorine") / "run"
    make_run(folder, random_frames(5), random_frames(3, first_seed=40), **settings)
    # In float64 the kernels of two layers are those of other tests.
    common = {"device": "cpu", "precision": "float64" if "two" in request.param else "float32"}
    train_nep(folder, **common)
    return folder, train_nep(folder, **common, generation=9)


def rms(table) -> float:
    return float(np.sqrt(np.mean((table.predicted - table.target) ** 2)))


def test_read_loss(run):
    folder, errors = run
    loss = calorine.read_loss(str(folder / "loss.out"))
    rows = np.loadtxt(folder / "loss.out")
    assert loss.index.tolist() == rows[:, 0].astype(int).tolist() == [3, 6, 9]
    np.testing.assert_allclose(loss["total_loss"], rows[:, 1], rtol=1e-9)
    for name, found in errors.items():
        for letter, kind in (("E", "energy"), ("F", "force"), ("V", "virial")):
            last = loss[f"RMSE_{letter}_{name}"].iloc[-1]
            assert last == pytest.approx(getattr(found, kind), rel=1e-5)


def test_structures_and_parity_have_the_errors_that_the_run_tells(run):
    folder, errors = run
    sets = dict(zip(("train", "test"), calorine.read_structures(str(folder)), strict=True))
    for name, members in sets.items():
        frames = read_xyz(folder / f"{name}.xyz")
        assert [len(m) for m in members] == [len(frame) for frame in frames]
        for kind in ("energy", "force", "virial"):
            parity = calorine.get_parity_data(members, kind)
            assert rms(parity) == pytest.approx(getattr(errors[name], kind), rel=1e-6)
        force = calorine.get_parity_data(members, "force", ["y"])
        labels = np.concatenate([frame.forces[:, 1] for frame in frames])
        np.testing.assert_allclose(force.target, labels, rtol=1e-9)
        symbols = [symbol for member in members for symbol in member.symbols]
        assert force.species.tolist() == symbols


def test_components_of_virial_and_stress(run):
    """Their order and sign, by name."""
    folder, _ = run
    members, _ = calorine.read_structures(str(folder))
    frames = read_xyz(folder / "train.xyz")
    for component, place in COMPONENTS.items():
        virial = calorine.get_parity_data(members, "virial", [component]).target
        labels = [frame.virial[place] / len(frame) for frame in frames]
        np.testing.assert_allclose(virial, labels, rtol=1e-9)
        stress = calorine.get_parity_data(members, "stress", [component]).target
        labels = [160.2177 * frame.virial[place] / frame.volume for frame in frames]
        np.testing.assert_allclose(stress, labels, rtol=1e-8)
    # Positive under compression, as our virial.
    pressure = calorine.get_parity_data(members, "stress", ["pressure"]).target
    labels = [160.2177 * np.trace(frame.virial) / 3 / frame.volume for frame in frames]
    np.testing.assert_allclose(pressure, labels, rtol=1e-8)


@pytest.mark.parametrize("name", ["nep.txt", "nep_best.txt"])
def test_read_model(run, name):
    folder, _ = run
    ours = read_nep_txt(folder / name)
    restart = str(folder / "nep.restart") if name == "nep.txt" else None
    model = calorine.read_model(str(folder / name), restart)
    assert tuple(model.types) == ours.settings.elements
    assert (model.n_max_radial, model.n_max_angular) == ours.settings.n_max
    np.testing.assert_allclose(model.q_scaler, ours.q_scaler, rtol=1e-6)
    assert model.n_parameters - len(model.q_scaler) == len(parameter_vector(ours))


def test_read_nepfile(run):
    folder, _ = run
    settings = calorine.read_nepfile(str(folder / "nepkit_resolved.in"))
    assert settings["type"] == [2, "Si", "Ge"] and settings["generation"] == 9
    assert settings["n_max"] == [2, 1] and settings["lambda_v"] == 0.1
