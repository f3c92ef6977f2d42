"""What a run writes, and how it answers to what it is given."""

import gzip
import logging
import os
import shutil
import signal
import time
import warnings
from dataclasses import replace

import numpy as np
import pytest
import torch
from run_files import Labelled, contents, make_run, random_frame, random_frames, write_xyz

from nepkit import UserError, predict_dataset, train_nep
from nepkit.config import read_nep_in
from nepkit.model.nep_txt import read_nep_txt
from nepkit.model.nep_txt_write import parameter_vector, write_nep_txt
from nepkit.train import checkpoint, gradient, loop, run
from nepkit.units import GPA_PER_EV_PER_CUBIC_ANGSTROM

ORDER = [(0, 0), (1, 1), (2, 2), (0, 1), (1, 2), (2, 0)]  # xx yy zz xy yz zx
MISSING = -1e6
EVERYTHING = {
    "checkpoint.pt", "history.csv", "loss.out", "nep.in", "nep.restart", "nep.txt", "nep_best.txt",
    "nepkit.lock", "nepkit.log", "nepkit_resolved.in", "nepkit_run.json", "train.xyz",
    "errors.csv", "largest_errors.csv",
    *(f"{name}_train.out" for name in ("energy", "force", "virial", "stress")),
}  # fmt: skip


def train(folder, **settings):
    return train_nep(folder, **{"device": "cpu", **settings})


def table(path) -> np.ndarray:
    return np.loadtxt(path, ndmin=2)


def partly_labelled() -> list[Labelled]:
    """A label missing in some frames, in the middle of the file."""
    frames = random_frames(5)
    return [
        frames[0], replace(frames[1], virial=None), replace(frames[2], energy=None),
        replace(frames[3], forces=None), replace(frames[4], extra="energy_weight=0"),
    ]  # fmt: skip


def test_outputs_hold_prediction_and_label_in_the_order_of_the_file(tmp_path):
    frames = partly_labelled()
    folder = make_run(tmp_path / "run", frames)
    found = train(folder)["train"]
    assert set(os.listdir(folder)) == EVERYTHING
    predicted = predict_dataset(folder / "nep.txt", folder / "train.xyz", device="cpu").prediction
    n_atoms = np.array([len(frame.symbols) for frame in frames])
    energy, force, virial, stress = (
        table(folder / f"{name}_train.out") for name in ("energy", "force", "virial", "stress")
    )
    volume = np.array([abs(np.linalg.det(frame.cell)) for frame in frames])
    to_stress = (n_atoms / volume * GPA_PER_EV_PER_CUBIC_ANGSTROM)[:, None]
    close = {"rtol": 1e-8, "atol": 1e-9}
    np.testing.assert_allclose(energy[:, 0], predicted.energy / n_atoms, **close)
    np.testing.assert_allclose(force[:, :3], predicted.forces, **close)
    np.testing.assert_allclose(virial[:, :6], predicted.virial / n_atoms[:, None], **close)
    np.testing.assert_allclose(stress[:, :6], virial[:, :6] * to_stress, rtol=1e-7, atol=1e-6)
    first = np.cumsum(n_atoms) - n_atoms
    for k, frame in enumerate(frames):
        atoms = slice(first[k], first[k] + n_atoms[k])
        label = MISSING if frame.energy is None else frame.energy / n_atoms[k]
        assert energy[k, 1] == pytest.approx(label, rel=1e-9)
        label = MISSING if frame.forces is None else frame.forces
        np.testing.assert_allclose(
            force[atoms, 3:], np.broadcast_to(label, (n_atoms[k], 3)), **close
        )
        if frame.virial is None:
            assert (virial[k, 6:] == MISSING).all() and (stress[k, 6:] == MISSING).all()
        else:
            label = [frame.virial[place] / n_atoms[k] for place in ORDER]
            np.testing.assert_allclose(virial[k, 6:], label, **close)
            np.testing.assert_allclose(stress[k, 6:], label * to_stress[k], rtol=1e-7)

    def rms(values, rows):
        return pytest.approx(np.sqrt(np.mean(values[rows] ** 2)), rel=1e-6)

    assert found.energy == rms(
        energy[:, 0] - energy[:, 1], [0, 1, 3]
    )  # energy_weight=0: not judged
    known = force[:, 3] != MISSING
    assert found.force == rms(force[:, :3] - force[:, 3:], known)
    assert found.virial == rms(virial[:, :6] - virial[:, 6:], [0, 2, 3, 4])


def test_ten_digits(tmp_path):
    frames = [replace(frame, energy=frame.energy - 6000.123456789) for frame in random_frames(3)]
    folder = make_run(tmp_path / "run", frames)
    train(folder)
    digits = [len(word.strip("-").replace(".", "")) for word in
              (folder / "energy_train.out").read_text().split()]  # fmt: skip
    assert max(digits) == 10


def test_loss_out_and_history(tmp_path):
    folder = make_run(
        tmp_path / "run", lambda_1=0.01, lambda_2=0.02, loss_form="rmse", lambda_v=0.5
    )
    found = train(folder, generation=8)["train"]
    loss_out = table(folder / "loss.out")
    assert loss_out.shape == (3, 10) and loss_out[:, 0].tolist() == [3, 6, 8]
    assert not loss_out[:, 7:].any()  # no test set
    total = loss_out[:, 2] + loss_out[:, 3] + loss_out[:, 4:7] @ [1, 1, 0.5]
    np.testing.assert_allclose(loss_out[:, 1], total, rtol=1e-8)
    last = [found.energy, found.force, found.virial]
    np.testing.assert_allclose(loss_out[-1, 4:7], last, rtol=1e-6)
    head, *rows = (folder / "history.csv").read_text().splitlines()
    assert all(len(row.split(",")) == len(head.split(",")) for row in rows) and len(rows) == 3


def test_best_model_is_kept(tmp_path):
    folder = make_run(tmp_path / "run", test=random_frames(2, first_seed=40))
    train(folder, generation=30)
    loss_out = table(folder / "loss.out")
    best = loss_out[:, 7:] ** 2 @ [1, 1, 0.1]
    predicted = predict_dataset(folder / "nep_best.txt", folder / "test.xyz", device="cpu")
    row = loss_out[best.argmin()]
    np.testing.assert_allclose(
        row[7:9], [predicted.errors.energy, predicted.errors.force], rtol=1e-5
    )


def test_restart_file_of_gpumd(tmp_path):
    folder = make_run(tmp_path / "run")
    train(folder)
    rows = table(folder / "nep.restart")
    parameters = parameter_vector(read_nep_txt(folder / "nep.txt"))
    np.testing.assert_allclose(rows[:, 0], parameters, rtol=1e-7)
    assert (rows[:, 1] == 0.02).all() and len(rows) == len(parameters)


def test_resolved_nep_in_trains_the_same(tmp_path):
    folder = make_run(tmp_path / "run", generation=None, batch=1000, ema=0.5)
    first, second = tmp_path / "first", tmp_path / "second"
    train(folder, out=first, epoch=3, seed=5)
    assert not (folder / "nep.txt").exists()
    second.mkdir()
    shutil.copy(folder / "train.xyz", second)
    shutil.copy(first / "nepkit_resolved.in", second / "nep.in")
    train(second)
    for name in ("nep.txt", "loss.out", "nepkit_resolved.in", "force_train.out"):
        assert (second / name).read_bytes() == (first / name).read_bytes()
    again = read_nep_in(second / "nepkit_resolved.in")
    assert again.seed == 5 and again == replace(read_nep_in(second / "nep.in"), notes=again.notes)


def test_zbl_in_lies_beside_the_resolved_nep_in(tmp_path):
    numbers = "1 2 0.18175 3.1998 0.50986 0.94229 0.28022 0.4029 0.02817 0.20162\n"
    folder = make_run(tmp_path / "run", zbl=2)
    (folder / "zbl.in").write_text(3 * numbers)
    train(folder, out=tmp_path / "out")
    model = read_nep_in(folder / "nep.in").model
    assert read_nep_in(tmp_path / "out" / "nepkit_resolved.in").model == model
    train(folder)  # here zbl.in is the user's own
    assert (folder / "zbl.in").read_text() == 3 * numbers
    assert read_nep_in(folder / "nepkit_resolved.in").model == model


def test_seed(tmp_path):
    folder = make_run(tmp_path / "run", seed=4)
    models = []
    for name, settings in {"a": {}, "b": {"seed": 4}, "c": {"seed": 0}}.items():
        train(folder, out=tmp_path / name, **settings)
        models.append((tmp_path / name / "nep.txt").read_text())
    assert models[0] == models[1] != models[2]


@pytest.mark.parametrize("name", ["nep.txt", "loss.out", "energy_train.out", "parity.png"])
def test_files_of_others_are_never_changed(tmp_path, name):
    folder = make_run(tmp_path / "run")
    (folder / name).write_text("GPUMD's\n")
    before = contents(folder)
    for restart in (False, True):
        with pytest.raises(UserError, match="--out") as caught:
            train(folder, restart=restart)
        assert str(folder / name) in str(caught.value)
    assert {k: v for k, v in contents(folder).items() if k != "nepkit.lock"} == before
    train(folder, out=tmp_path / "out")


def test_a_model_put_over_ours_is_kept(tmp_path):
    folder = make_run(tmp_path / "run")
    train(folder)
    (folder / "nep.txt").write_text("GPUMD's\n")
    for settings in ({}, {"generation": 9}, {"restart": True}):
        with pytest.raises(UserError, match="changed since nepkit wrote it"):
            train(folder, **settings)
    assert (folder / "nep.txt").read_text() == "GPUMD's\n"


def test_save_potential(tmp_path):
    folder = make_run(tmp_path / "run", save_potential="2 0 1", output_interval=5)
    (folder / "nep_gen7.txt").write_text("not in the way\n")
    train(folder)
    kept = sorted(path.name for path in folder.glob("nep_gen*"))
    assert kept == sorted(
        ["nep_gen7.txt", *(f"nep_gen{k}.{end}" for k in (2, 4, 6) for end in ("txt", "restart"))]
    )
    assert (folder / "nep_gen6.txt").read_bytes() == (folder / "nep.txt").read_bytes()
    assert table(folder / "loss.out")[:, 0].tolist() == [5, 6]
    train(folder, restart=True)
    assert (folder / "previous-1" / "nep_gen2.txt").exists()


def test_save_potential_named_by_time(tmp_path):
    folder = make_run(tmp_path / "run", save_potential="3 1")
    train(folder)
    names = [path.name for path in folder.glob("nep_y*_m*_d*_h*_m*_s*_generation[36].txt")]
    assert len(names) == 2 and not list(folder.glob("nep_y*.restart"))


def test_save_potential_does_not_overwrite(tmp_path):
    folder = make_run(tmp_path / "run", save_potential="2 0 0")
    (folder / "nep_gen4.txt").write_text("his\n")
    with pytest.raises(UserError, match=r"nep_gen4\.txt: not written by nepkit"):
        train(folder)
    assert not (folder / "loss.out").exists()


def test_import_q_scaler(tmp_path):
    folder = make_run(tmp_path / "run")
    train(folder, out=tmp_path / "first")
    lines = (tmp_path / "first" / "nep.txt").read_text().splitlines()
    width = read_nep_in(folder / "nep.in").model.descriptor_length
    scaler = [f"{0.5 + 0.25 * k:15.7e}" for k in range(width)]
    (folder / "nep.txt").write_text("\n".join(lines[:-width] + scaler) + "\n")
    with pytest.raises(UserError, match="--out"):
        train(folder, import_q_scaler=1)
    train(folder, import_q_scaler=1, out=tmp_path / "second")
    first, second = (read_nep_txt(tmp_path / name / "nep.txt") for name in ("first", "second"))
    assert second.q_scaler.tolist() == [float(number) for number in scaler]
    assert first.q_scaler.tolist() != second.q_scaler.tolist()
    energies = [table(tmp_path / name / "energy_train.out") for name in ("first", "second")]
    np.testing.assert_allclose(*energies, atol=1e-4)
    with pytest.raises(UserError, match=r"nep\.txt: import_q_scaler needs the n_max of nep\.in"):
        train(folder, import_q_scaler=1, n_max="1 1", out=tmp_path / "third")
    (folder / "nep.txt").write_text("\n".join(lines[:-1] + ["0.0"]) + "\n")
    with pytest.raises(UserError, match="not above 0"):
        train(folder, import_q_scaler=1, out=tmp_path / "fourth")


@pytest.mark.parametrize("level", [0, 1, 2])
def test_prediction_mode(tmp_path, level):
    folder = make_run(tmp_path / "run")
    train(folder, out=tmp_path / "out")
    shutil.copy(tmp_path / "out" / "nep.txt", folder)
    found = train(folder, prediction=1, output_descriptor=level)["train"]
    assert found.force > 0
    for name in ("energy", "force", "virial", "stress"):
        name = f"{name}_train.out"
        assert (folder / name).read_bytes() == (tmp_path / "out" / name).read_bytes()
    width = read_nep_txt(folder / "nep.txt").settings.descriptor_length
    if level == 0:
        assert not (folder / "descriptor.out").exists()
    else:
        n_atoms = len(table(folder / "force_train.out"))
        assert table(folder / "descriptor.out").shape == ({1: 5, 2: n_atoms}[level], width)
    assert not (folder / "loss.out").exists()


def test_prediction_mode_wants_the_model_of_nep_in(tmp_path):
    folder = make_run(tmp_path / "run", prediction=1, cutoff="4.1234567 3")
    with pytest.raises(UserError, match=r"nep\.txt: cannot be read"):
        train(folder)
    train(folder, prediction=0, out=tmp_path / "out")
    text = (tmp_path / "out" / "nep.txt").read_text()
    (folder / "nep.txt").write_text(text.replace("4.1234567", "4.12346"))  # as GPUMD writes it
    train(folder)
    with pytest.raises(UserError, match=r"write in nep\.in\nneuron +4\nleave out\nzbl +2\.0$"):
        train(folder, neuron=5, zbl=2)


def test_wrong_calls(tmp_path):
    folder = make_run(tmp_path / "run")
    for settings, words in (
        ({"precision": "float16"}, "use float32 or float64"),
        ({"force_mode": "magic"}, "analytic or autograd"),
        ({"device": "tpu"}, "device tpu"),
        ({"device": "meta"}, "device meta"),
        ({"neurons": 3}, '"neuron"'),
        ({"neuron": 1}, "neuron 1: one neuron of the last layer is set aside"),
        ({"neuron": (3, 1)}, "neuron 3 1: one"),
    ):
        with pytest.raises(UserError, match=".") as caught:
            train(folder, **settings)
        assert words in str(caught.value) and str(caught.value).count("\n") <= 1
    with pytest.raises(UserError, match="no such folder"):
        train(tmp_path / "nowhere")
    (folder / "train.xyz").unlink()
    with pytest.raises(UserError, match=r"train\.xyz: cannot be read"):
        train(folder)
    (folder / "nep.in").unlink()
    with pytest.raises(UserError, match=r"nep\.in: cannot be read"):
        train(folder)
    assert sorted(os.listdir(folder)) == ["nepkit.lock"]


def test_compressed_data(tmp_path):
    folder = make_run(tmp_path / "run")
    expected = train(folder, out=tmp_path / "out")
    with gzip.open(folder / "train.xyz.gz", "wb") as file:
        file.write((folder / "train.xyz").read_bytes())
    (folder / "train.xyz").unlink()
    assert train(folder) == expected


def test_steps_that_are_not_finite_are_skipped(tmp_path, monkeypatch):
    folder = make_run(tmp_path / "run")
    real, calls = gradient.loss_by_kernel, []

    def spoilt(*arguments):
        calls.append(arguments)
        result = real(*arguments)
        return (
            replace(result, energy=result.energy * float("nan")) if len(calls) in (2, 3) else result
        )

    monkeypatch.setattr(gradient, "loss_by_kernel", spoilt)
    train(folder)
    assert "2 steps gave no finite gradient and were skipped" in (folder / "nepkit.log").read_text()
    assert torch.isfinite(checkpoint.load(folder)["flat"]).all()


def test_ten_such_steps_end_the_run(tmp_path, monkeypatch):
    folder = make_run(tmp_path / "run")
    real = gradient.loss_by_kernel
    monkeypatch.setattr(
        gradient, "loss_by_kernel",
        lambda *a: replace((r := real(*a)), forces=r.forces * float("inf")),
    )  # fmt: skip
    with pytest.raises(
        UserError, match=r"train\.xyz: 10 steps in a row .* with frames \d"
    ) as caught:
        train(folder, generation=50)
    assert "learning_rate" in str(caught.value)
    monkeypatch.undo()
    train(folder, generation=50)


def test_nothing_global_changes(tmp_path):
    def world():
        return (
            dict(os.environ), list(warnings.filters), torch.get_default_dtype(), os.getcwd(),
            torch.get_num_threads(), torch.is_grad_enabled(), logging.getLogger().level,
            list(logging.getLogger().handlers), np.geterr(), signal.getsignal(signal.SIGINT),
            signal.getsignal(signal.SIGTERM), torch.get_rng_state().tolist(),
            torch.are_deterministic_algorithms_enabled(), np.random.get_state()[1].tolist(),
            np.get_printoptions(),
        )  # fmt: skip

    folder = make_run(tmp_path / "run", generation=1)
    import torch._dynamo  # noqa: F401, as the autograd mode does: what libraries do then is not ours

    train(folder)
    before = world()
    train(folder, generation=3)
    train(folder, out=tmp_path / "out", force_mode="autograd")
    predict_dataset(folder / "nep.txt", folder / "train.xyz", out=tmp_path / "predicted")
    for old, new in zip(before, world(), strict=True):
        assert old == new


def test_log_says_what_matters(tmp_path, capsys):
    frames = [random_frame(0), random_frame(1, extra='pbc="T T F"')]
    folder = make_run(tmp_path / "run", frames, population=50)
    train(folder, type="3 Si Ge C")
    log = (folder / "nepkit.log").read_text()
    printed = capsys.readouterr()
    assert printed.out == log and printed.err == ""  # no bars without a terminal
    for words in (
        "float32, analytic forces", "without effect here: population",
        "train.xyz: 2 frames, 6 atoms; 2 with energy, 2 with forces, 2 with virial",
        "warning: train.xyz has no atom of C",
        "warning: train.xyz: 1 of 2 frames are not periodic in all directions",
        "neighbours of an atom at most", "done: 6 steps",
    ):  # fmt: skip
        assert words in log
    assert "compile" not in log and str(run.__file__) not in log


def test_no_labels_at_all(tmp_path):
    frames = [random_frame(k, energy=None, forces=None, virial=None) for k in range(2)]
    folder = make_run(tmp_path / "run", frames)
    with pytest.raises(UserError, match="no frame has an energy, forces or a virial"):
        train(folder)
    write_xyz(folder / "train.xyz", random_frames(2, symbols=("Si", "C")))
    with pytest.raises(UserError, match=r"train\.xyz, frame 0, line 4: element C"):
        train(folder)


def test_saving_takes_a_small_part_of_a_run(tmp_path, monkeypatch):
    """A large nep.txt takes a second, a report of fast steps less: not each one brings a file."""
    written = []

    def slow(path, file):
        written.append(path.name)
        time.sleep(0.3)
        write_nep_txt(path, file)

    monkeypatch.setattr(loop, "write_nep_txt", slow)
    folder = make_run(tmp_path / "run", random_frames(5))
    train(folder, generation=60, output_interval=2)
    assert 1 <= len(written) <= 5
    assert len((folder / "loss.out").read_text().splitlines()) == 30
