"""Frames that are mistakes: refused by name, or told of, and never silently believed."""

import os
import re
import subprocess
import sys

import numpy as np
import pytest
import torch

from nepkit import UserError, predict_dataset, train_nep
from nepkit.config import ModelSettings
from nepkit.data.check import told
from nepkit.data.prepared import prepare
from nepkit.data.xyz import read_xyz
from nepkit.model.nep_txt import read_nep_txt
from nepkit.model.zbl import zbl_of
from nepkit.train.log import RunLog
from nepkit.train.targets import reference_energies

NEP_IN = "type 2 Si Ge\ncutoff 4 3\nn_max 2 1\nbasis_size 4 3\nl_max 4 0 0\nneuron 3\n"
SETTINGS = ModelSettings(("Si", "Ge"), (4.0, 4.0), (3.0, 3.0), (1, 1), (3, 3), 2, (), (3,))


def frame(energy=-9.0, positions=((0, 0, 0), (2.3, 0, 0)), symbols="SiGe", extra="", box=8.0):
    lines = [
        str(len(positions)),
        f'Lattice="{box} 0 0 0 {box} 0 0 0 {box}" energy={energy} {extra} '
        "Properties=species:S:1:pos:R:3:forces:R:3",
    ]
    names = [symbols[:2], symbols[2:]] if len(symbols) == 4 else [symbols]
    for name, (x, y, z) in zip(names, positions, strict=True):
        lines.append(f"{name} {x} {y} {z} 0.0 0.0 0.0")
    return "\n".join(lines) + "\n"


def folder_of(tmp_path, *frames, test=()):
    tmp_path.mkdir(exist_ok=True)
    (tmp_path / "nep.in").write_text(NEP_IN)
    (tmp_path / "train.xyz").write_text("".join(frames))
    if test:
        (tmp_path / "test.xyz").write_text("".join(test))
    return tmp_path


TWICE = frame(positions=((1, 1, 1), (1, 1, 1)))


def test_an_atom_given_twice_is_refused(tmp_path):
    run_dir = folder_of(tmp_path, frame(), frame(), TWICE)
    with pytest.raises(UserError, match=r"train\.xyz, frame 2, line 9: atoms 0 and 1 .* apart"):
        train_nep(run_dir, generation=1, device="cpu")


def test_an_atom_given_twice_is_refused_in_test_and_prediction(tmp_path):
    run_dir = folder_of(tmp_path, frame(), test=[frame(), TWICE])
    with pytest.raises(UserError, match=r"test\.xyz, frame 1, line 5"):
        train_nep(run_dir, generation=1, device="cpu")
    (tmp_path / "test.xyz").unlink()
    train_nep(run_dir, generation=1, device="cpu", out=tmp_path / "out")
    (tmp_path / "twice.xyz").write_text(TWICE)
    with pytest.raises(UserError, match=r"twice\.xyz, frame 0, line 1"):
        predict_dataset(tmp_path / "out" / "nep.txt", tmp_path / "twice.xyz", device="cpu")


def test_a_cell_in_another_unit_is_refused_at_once(tmp_path):
    tiny = frame(positions=((0, 0, 0),), symbols="Si", box=0.01)
    with pytest.raises(UserError, match=r"frame 1, line 5: 1 atoms .* is Lattice in Å\?"):
        train_nep(folder_of(tmp_path, frame(), tiny), generation=1, device="cpu")


def test_energies_of_elements_follow_the_weights(tmp_path):
    """A frame that hardly counts in the loss hardly counts here."""
    good = [frame(-9.0), frame(-10.0, symbols="GeGe"), frame(-8.0, symbols="SiSi")]
    path = tmp_path / "train.xyz"
    for extra in ("weight=0.0001", "energy_weight=1e-8"):
        path.write_text("".join([*good, frame(-400.0, extra=extra)]))
        data = prepare(read_xyz(path), SETTINGS, device="cpu", dtype=torch.float64)
        found = reference_energies(data, zbl_of(data, SETTINGS).energy, len(SETTINGS.elements))
        np.testing.assert_allclose(found, [-4.0, -5.0], atol=1e-4)


def test_the_shift_of_the_saved_model_follows_the_weights(tmp_path):
    good = [frame(-9.0), frame(-10.0, symbols="GeGe"), frame(-8.0, symbols="SiSi")]
    run_dir = folder_of(tmp_path, *good, frame(-400.0, extra="weight=0.0001"))
    train_nep(run_dir, generation=1, device="cpu")
    table = np.loadtxt(tmp_path / "energy_train.out")
    assert np.abs(table[:3, 0] - table[:3, 1]).max() < 1.0


def test_suspicious_frames_are_told_of(tmp_path, capsys):
    near = frame(positions=((0, 0, 0), (0.4, 0, 0)))
    frames = [frame(-9.0 - 0.01 * k) for k in range(6)]
    run_dir = folder_of(tmp_path, *frames, near, frame(-900.0, extra="weight=0.001"))
    train_nep(run_dir, generation=1, device="cpu")
    said = capsys.readouterr().out
    assert "train.xyz, frame 6, line 25: atoms 0 and 1 (from 0) are 0.40 Å apart" in said
    assert "train.xyz, frame 7, line 29: the energy is -445" in said
    assert said.count("warning") == 2


def test_repulsion_of_atoms_at_one_place_moves_no_energy(tmp_path, capsys):
    """ZBL of atoms 0.2 Å apart is hundreds of eV: the frame is told of for them alone."""
    frames = [frame(-9.0 - 0.01 * k) for k in range(6)]
    sound = folder_of(tmp_path / "sound", *frames)
    near = frame(-9.0, positions=((0, 0, 0), (0.2, 0, 0)))
    spoiled = folder_of(tmp_path / "spoiled", *frames, near)
    said = []
    for run_dir in (sound, spoiled):
        train_nep(run_dir, generation=1, device="cpu", zbl=2.0)
        said.append(capsys.readouterr().out)
    energies = [re.search("energies of the elements.*", text)[0] for text in said]
    assert energies[0] == energies[1]
    assert "0.20 Å apart" in said[1] and "the energy is" not in said[1]


def test_many_findings_are_counted():
    assert told([]) == []
    assert told(["a", "b", "c", "d", "e"])[-1].startswith("warning: and 2 more frames like these")


def test_values_beyond_float32_are_refused(tmp_path):
    train_nep(folder_of(tmp_path, frame()), generation=0, device="cpu")
    lines = (tmp_path / "nep.txt").read_text().splitlines()
    lines[10] = "1e300"
    (tmp_path / "big.txt").write_text("\n".join(lines) + "\n")
    with pytest.raises(UserError, match=r"big\.txt, line 11: expected one finite number"):
        read_nep_txt(tmp_path / "big.txt")


def test_infinite_parameters_end_the_run_with_a_message(tmp_path):
    with pytest.raises(UserError, match="beyond all bounds; lower learning_rate"):
        train_nep(folder_of(tmp_path, frame()), generation=4, weight_decay=1e30, device="cpu")


def test_new_settings_of_a_longer_run_are_told(tmp_path, capsys):
    run_dir = folder_of(tmp_path, frame())
    train_nep(run_dir, generation=2, device="cpu")
    train_nep(run_dir, generation=4, lambda_e=5, device="cpu")
    said = capsys.readouterr().out
    assert "new in this part of the run: lambda_e" in said
    assert "generation was 2, now 4" in said


def test_prediction_of_open_frames_warns(tmp_path, capsys):
    train_nep(folder_of(tmp_path, frame()), generation=0, device="cpu")
    (tmp_path / "open.xyz").write_text(frame(extra='pbc="T T F"'))
    predict_dataset(tmp_path / "nep.txt", tmp_path / "open.xyz", out=tmp_path / "p", device="cpu")
    assert "warning: open.xyz: 1 frames are not periodic" in capsys.readouterr().out


class Full:
    def write(self, _):
        raise OSError(28, "No space left on device")

    flush = write


@pytest.mark.parametrize("stream", [None, Full()])
def test_a_terminal_that_takes_nothing_is_no_reason_to_stop(stream, monkeypatch):
    monkeypatch.setattr(sys, "stdout", stream)
    RunLog()("3 meV")


def test_a_terminal_without_angstrom(tmp_path):
    run_dir = folder_of(tmp_path, frame())
    environment = os.environ | {"PYTHONIOENCODING": "ascii"}
    done = subprocess.run(
        [sys.executable, "-m", "nepkit.train", str(run_dir), "generation=0", "--device", "cpu"],
        env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "meV/?" in done.stdout
