"""`nepkit info`: what a file or folder is said to be."""

import os
import re
import signal

import numpy as np
import pytest
import torch
from run_files import contents, make_run, random_frame, random_frames, write_xyz
from structures import evaluate, make_frame, model_settings, random_file, zbl_forms

from nepkit.cli import main
from nepkit.config import Zbl
from nepkit.info import energies_alone
from nepkit.model.conversion import model_from_file
from nepkit.model.nep_txt_write import write_nep_txt
from nepkit.train import loop
from nepkit.train.folder import OutputFolder


def info(path, capsys) -> dict[str, str]:
    """The rows that are printed, by name; the head under ""."""
    assert main(["info", str(path)]) == 0
    said = capsys.readouterr()
    assert said.err == ""
    lines = said.out.splitlines()
    assert len(lines) <= 16 and max(map(len, lines)) <= 100
    rows, name = {"": lines[0]}, ""
    for line in lines[1:]:
        name = line[:14].strip() or name
        rows[name] = (rows.get(name, "") + " " + line[14:].strip()).strip()
    return rows


@pytest.fixture
def folder(tmp_path):
    return make_run(tmp_path / "run", test=random_frames(2, first_seed=70))


def test_a_model(tmp_path, capsys):
    settings = model_settings(("Te", "Pb"), (5.0, 4.5), 3.4, zbl=Zbl(0.75, 1.5))
    file = random_file(settings)
    write_nep_txt(tmp_path / "nep.txt", file)
    rows = info(tmp_path / "nep.txt", capsys)
    assert rows[""].endswith("nep.txt: a NEP4 potential with ZBL")
    assert rows["elements"] == "2: Te Pb"
    assert rows["cutoffs"] == "4.5 to 5 Å radial, 3.4 Å angular"
    assert rows["neighbours"] == "at most 300 radial, 200 angular"
    assert (
        f"{settings.descriptor_length} components: n_max 2 1, basis_size 4 3, l_max 4"
        in rows["descriptor"]
    )
    numbers = len((tmp_path / "nep.txt").read_text().splitlines()) - 7 - settings.descriptor_length
    assert rows["parameters"] == f"{numbers:,}"
    assert rows["zbl"] == "universal, from 0.75 to 1.5 Å"
    assert rows["q_scaler"] == f"{file.q_scaler.min():.4g} to {file.q_scaler.max():.4g}"
    # The energies are those that the model gives a single atom.
    for element, told in zip(
        settings.elements, rows["atom alone"].removeprefix("eV: ").split(", ")
    ):
        frame = make_frame([element], [[0, 0, 0]])
        model = model_from_file(file, device="cpu", dtype=torch.float64)
        assert told == f"{element} {evaluate(model, [frame]).energy[0]:.3f}"


@pytest.mark.parametrize("form", ["universal", "typewise", "flexible"])
def test_forms_of_zbl(tmp_path, form, capsys):
    settings = model_settings(zbl=zbl_forms(("Te", "Pb"))[form])
    write_nep_txt(tmp_path / "nep.txt", random_file(settings))
    assert info(tmp_path / "nep.txt", capsys)["zbl"].startswith(form)


def test_two_layers(tmp_path):
    file = random_file(model_settings(neuron=(5, 4)))
    model = model_from_file(file, device="cpu", dtype=torch.float64)
    alone = [make_frame([element], [[0, 0, 0]]) for element in file.settings.elements]
    np.testing.assert_allclose(energies_alone(file), evaluate(model, alone).energy, rtol=1e-12)


def interrupt(folder, monkeypatch, after=4):
    """Train until Ctrl-C after so many steps."""
    real = loop.learning_rate
    steps = []

    def rate(*arguments):
        steps.append(arguments)
        if len(steps) == after:
            os.kill(os.getpid(), signal.SIGINT)
        return real(*arguments)

    monkeypatch.setattr(loop, "learning_rate", rate)
    assert main(["train", str(folder), "--device", "cpu"]) == 3
    monkeypatch.undo()


def test_an_unfinished_run(folder, capsys, monkeypatch):
    assert info(folder, capsys)["state"] == f"no training yet: nepkit train {folder}"
    interrupt(folder, monkeypatch)
    capsys.readouterr()
    before = contents(folder)
    rows = info(folder, capsys)
    assert rows[""] == f"{folder}: a run directory"
    assert rows["steps"].startswith("4 of 6 done, in ") and "at step 3" in rows["best"]
    assert rows["state"] == f"not finished: nepkit train {folder} goes on"
    assert rows["data"].startswith("train.xyz 3.1 kB, ") and "test.xyz" in rows["data"]
    assert rows["models"] == "nep_best.txt"
    monkeypatch.chdir(folder)  # a long path would be broken into lines
    rows = info("checkpoint.pt", capsys)
    assert rows[""] == "checkpoint.pt: a checkpoint of nepkit"
    assert rows["steps"].startswith("4 of 6 done")
    assert rows["model"].startswith("elements Si Ge, n_max 2 1, basis_size 4 3, l_max 4, neuron 4")
    assert rows["precision"] == "float32, seed 0"
    assert rows["data"] == "train.xyz, as it is now test.xyz, as it is now"
    assert contents(folder) == before
    with OutputFolder(folder):
        assert info(folder, capsys)["state"] == "a run is at work here now"


def test_a_finished_run(folder, tmp_path, capsys):
    assert main(["train", str(folder), "--device", "cpu", "--out", str(tmp_path / "out")]) == 0
    said = capsys.readouterr().out
    ends = [re.match(r"(?:nep.txt )?test  +(\d.*)", line) for line in said.splitlines()]
    ((energy, force, _),) = [end[1].split() for end in ends if end]
    rows = info(tmp_path / "out", capsys)
    assert rows["steps"].startswith("6 of 6 done")
    assert rows["test RMSE"].startswith(f"energy {energy} meV/atom, force {force} meV/Å")
    command = "".join(f"nepkit train {folder} --out {tmp_path / 'out'} goes on".split())
    assert command in "".join(rows["state"].split())  # broken into lines
    (folder / "test.xyz").rename(folder / "elsewhere.xyz")
    data = info(tmp_path / "out" / "checkpoint.pt", capsys)["data"]
    assert data == "train.xyz, as it is now test.xyz, which does not lie here"
    (folder / "elsewhere.xyz").rename(folder / "test.xyz")
    assert info(tmp_path / "out" / "nep.txt", capsys)["elements"] == "2: Si Ge"


def test_data_that_changed(folder, capsys):
    assert main(["train", str(folder), "--device", "cpu"]) == 0
    capsys.readouterr()
    write_xyz(folder / "test.xyz", random_frames(3))
    assert "test.xyz, which has changed since" in info(folder / "checkpoint.pt", capsys)["data"]


def test_data(tmp_path, capsys):
    frames = [
        *random_frames(3, extra="config_type=hot/1"), random_frame(8, n_atoms=2, forces=None),
        random_frame(9, n_atoms=1, cell=None, virial=None),
    ]  # fmt: skip
    write_xyz(tmp_path / "data.xyz", frames)
    rows = info(tmp_path / "data.xyz", capsys)
    assert rows[""].endswith("data.xyz: 5 frames of extended XYZ")
    assert rows["atoms"] == "12; 1 to 4 a frame"
    assert rows["elements"] == "2; in so many frames: Si 5, Ge 4"
    assert rows["labels"] == "energy in 5, forces in 4, virial in 4"
    assert rows["config_type"] == "hot 3, (none) 2"
    assert rows["pbc"] == "1 frames are not periodic in all directions"


MISTAKES = {
    "nothing": (None, "cannot be read"),
    "notes.txt": (b"Dear diary", "neither a nep.txt nor"),
    "empty": (b"", "neither a nep.txt nor"),
    "data.xyz": (b"2\nenergy=1\n", "frame 0, line 2"),
    "data.xyz.gz": (b"no", "cannot be read"),
    "nep.txt": (b"nep4 2 Si Ge\ncutoff 4 3\n", "nep.txt, line 2"),
    "other.txt": (b"nep3 2 Si Ge\n", "NEP3"),
    "checkpoint.pt": (b"PK\x03\x04 and so on", "damaged"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_unknown_and_damaged_files(tmp_path, name, capsys):
    data, text = MISTAKES[name]
    if data is not None:
        (tmp_path / name).write_bytes(data)
    assert main(["info", str(tmp_path / name)]) == 2
    said = capsys.readouterr().err
    assert name in said and text in said and said.count("\n") <= 2


def test_a_folder_that_is_no_run(tmp_path, capsys):
    assert main(["info", str(tmp_path)]) == 2
    assert "neither nep.in nor checkpoint.pt" in capsys.readouterr().err
    torch.save({"version": 1}, tmp_path / "other.pt")
    assert main(["info", str(tmp_path / "other.pt")]) == 2
    assert "checkpoint format 1" in capsys.readouterr().err
