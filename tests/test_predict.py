"""Predictions of a nep.txt on a file of frames."""

import gzip
import os
from dataclasses import replace

import numpy as np
import pytest
import torch
from run_files import contents, make_run, random_frame, random_frames, write_xyz

from nepkit import UserError, predict_dataset, train_nep
from nepkit.model.conversion import model_from_file
from nepkit.model.nep_txt import read_nep_txt
from nepkit.train import outputs, prediction


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = make_run(tmp_path_factory.mktemp("model") / "run")
    train_nep(folder, device="cpu")
    return folder / "nep.txt"


@pytest.fixture
def data(tmp_path):
    frames = random_frames(7, first_seed=30)
    frames[3] = replace(frames[3], energy=None, virial=None)
    write_xyz(tmp_path / "liquid.xyz", frames)
    return tmp_path / "liquid.xyz"


def arrays(found) -> list[np.ndarray]:
    values = (found.prediction, found.targets)
    return [
        getattr(value, name)
        for value in values
        for name in value.__dataclass_fields__
        if getattr(value, name) is not None
    ]


def test_files_are_named_after_the_data(model, data, tmp_path):
    found = predict_dataset(model, data, out=tmp_path / "a" / "b")
    names = [f"{name}_liquid.out" for name in ("energy", "force", "stress", "virial")]
    written = sorted(name for name in os.listdir(tmp_path / "a" / "b") if name.endswith(".out"))
    assert written == names
    energy = np.loadtxt(tmp_path / "a" / "b" / "energy_liquid.out")
    np.testing.assert_allclose(energy[:, 0], found.prediction.energy / found.targets.n_atoms)
    assert energy[3, 1] == -1e6 and np.isnan(found.targets.energy[3])
    assert len(np.loadtxt(tmp_path / "a" / "b" / "force_liquid.out")) == found.targets.n_atoms.sum()
    predict_dataset(model, data, out=tmp_path / "a" / "b")  # over our own


@pytest.mark.parametrize("name", ["x.xyz.gz", "x.extxyz", "x.xyz", "x.tar.xyz"])
def test_other_names(model, data, tmp_path, name):
    text = data.read_bytes()
    (tmp_path / name).write_bytes(gzip.compress(text) if name.endswith(".gz") else text)
    predict_dataset(model, tmp_path / name, out=tmp_path / "out")
    stem = "x.tar" if "tar" in name else "x"
    assert (tmp_path / "out" / f"energy_{stem}.out").exists()


def test_chunks_change_nothing(model, data, monkeypatch):
    whole = predict_dataset(model, data, descriptors=True)
    sizes, prepare = [], prediction.prepare

    def watched(frames, *arguments, **named):
        sizes.append(sum(map(len, frames)))
        return prepare(frames, *arguments, **named)

    monkeypatch.setattr(prediction, "prepare", watched)
    monkeypatch.setattr(prediction, "ATOMS_AT_ONCE", 5)
    parts = predict_dataset(model, data, descriptors=True)
    assert len(sizes) > 3 and max(sizes) <= 5
    for first, second in zip(arrays(whole), arrays(parts), strict=True):
        np.testing.assert_allclose(first, second, atol=1e-5)
    assert parts.errors.force == pytest.approx(whole.errors.force)


def test_precisions_agree(model, data):
    single, double = (predict_dataset(model, data, precision=p) for p in ("float32", "float64"))
    np.testing.assert_allclose(single.prediction.energy, double.prediction.energy, atol=2e-5)
    np.testing.assert_allclose(single.prediction.forces, double.prediction.forces, atol=2e-4)
    np.testing.assert_allclose(single.prediction.virial, double.prediction.virial, atol=1e-3)


def test_errors(model, data, tmp_path):
    found = predict_dataset(model, data)
    error = (found.prediction.energy - found.targets.energy) / found.targets.n_atoms
    assert found.errors.energy == pytest.approx(np.sqrt(np.mean(np.delete(error, 3) ** 2)))
    bare = [replace(random_frame(0), energy=None, forces=None, virial=None)]
    write_xyz(tmp_path / "bare.xyz", bare)
    errors = predict_dataset(model, tmp_path / "bare.xyz", out=tmp_path / "out").errors
    assert (errors.energy, errors.force, errors.virial) == (None, None, None)
    assert (np.loadtxt(tmp_path / "out" / "force_bare.out")[:, 3:] == -1e6).all()


def test_no_cell_no_stress(model, tmp_path):
    write_xyz(tmp_path / "molecule.xyz", [random_frame(0, cell=None, virial=None)])
    predict_dataset(model, tmp_path / "molecule.xyz", out=tmp_path / "out")
    assert (np.loadtxt(tmp_path / "out" / "stress_molecule.out") == -1e6).all()
    assert (np.loadtxt(tmp_path / "out" / "virial_molecule.out")[:6] != -1e6).all()


def test_descriptors(model, data, tmp_path):
    found = predict_dataset(model, data, out=tmp_path / "out", descriptors=True)
    rows = np.loadtxt(tmp_path / "out" / "descriptor.out")
    np.testing.assert_allclose(rows, found.prediction.descriptors, rtol=1e-8, atol=1e-9)
    assert len(rows) == found.targets.n_atoms.sum()
    write_xyz(tmp_path / "train.xyz", random_frames(5))
    train = predict_dataset(model, tmp_path / "train.xyz", descriptors=True).prediction.descriptors
    assert predict_dataset(model, data).prediction.descriptors is None
    adapters = pytest.importorskip("nep_adapters")
    ase_io = pytest.importorskip("ase.io")
    with adapters.NEPCalculator(str(model), backend="cpu") as calculator:
        expected = calculator.predict_descriptors(ase_io.read(tmp_path / "train.xyz", ":"))
    np.testing.assert_allclose(train, np.reshape(expected, train.shape), atol=2e-5)


def test_mean_descriptors_of_frames(model, data):
    loaded = model_from_file(read_nep_txt(model), device="cpu", dtype=torch.float64)
    means, each = (prediction.predict_file(loaded, data, descriptors=level) for level in (1, 2))
    first = 0
    for row, n_atoms in zip(means.prediction.descriptors, each.targets.n_atoms, strict=True):
        atoms = each.prediction.descriptors[first : first + n_atoms]
        np.testing.assert_allclose(row, atoms.mean(0))
        first += n_atoms


def test_large_tables_are_written_in_parts(tmp_path, monkeypatch):
    table = np.arange(21.0).reshape(7, 3)
    monkeypatch.setattr(outputs, "ROWS_AT_ONCE", 2)
    outputs.write_table(tmp_path / "table.out", table, table[:, :1])
    np.testing.assert_array_equal(
        np.loadtxt(tmp_path / "table.out"), np.hstack([table, table[:, :1]])
    )


def test_mistakes(model, data, tmp_path):
    write_xyz(tmp_path / "carbon.xyz", [random_frame(0), random_frame(1, symbols=("Si", "C"))])
    place = r"carbon\.xyz, frame 1, line 9: the model has no C, only Si Ge"
    with pytest.raises(UserError, match=place):
        predict_dataset(model, tmp_path / "carbon.xyz")
    with pytest.raises(UserError, match="cannot be read"):
        predict_dataset(tmp_path / "none.txt", data)
    with pytest.raises(UserError, match="cannot be read"):
        predict_dataset(model, tmp_path / "none.xyz")
    (tmp_path / "energy_liquid.out").write_text("his\n")
    with pytest.raises(UserError, match=r"energy_liquid\.out: not written by nepkit"):
        predict_dataset(model, data, out=tmp_path)


def test_results_of_a_training_stay(tmp_path):
    folder = make_run(tmp_path / "run", random_frames(3))
    train_nep(folder, device="cpu", generation=2)
    before = contents(folder)
    with pytest.raises(UserError, match=r"a training lies there, and energy_train\.out"):
        predict_dataset(folder / "nep.txt", folder / "train.xyz", out=folder, device="cpu")
    assert contents(folder) == before
    (folder / "other.xyz").write_bytes((folder / "train.xyz").read_bytes())
    predict_dataset(folder / "nep.txt", folder / "other.xyz", out=folder, device="cpu")
    assert (folder / "energy_other.out").exists()
