"""What users run into, through the command: a line or two with the place, never a traceback."""

import gzip
import os
import re
from pathlib import Path

import pytest
from run_files import contents, make_run, random_frame, random_frames

from nepkit.cli import main

# Five frames of 2 3 4 2 3 atoms, from lines 1 5 10 16 20; frame 2 has lines 10 to 15.
FRAMES = random_frames(5)
TEXT = "".join(frame.text() for frame in FRAMES)


def in_frame_2(old: str, new: str):
    """train.xyz with the first ``old`` (a regular expression) of frame 2 replaced."""
    texts = [frame.text() for frame in FRAMES]
    changed = re.sub(old, new, texts[2], count=1)
    assert changed != texts[2]
    return "".join([*texts[:2], changed, *texts[3:]]).encode()


def swapped(text: str) -> str:
    """Columns of the first atom in another order."""
    words = text.splitlines()[12].split()
    return text.replace(text.splitlines()[12], " ".join([*words[1:], words[0]]))


# name: (what train.xyz holds, where the message places it, what else it says)
DATA = {
    "an element that is not in type": (
        in_frame_2(r"\nGe ", "\nXe "), "frame 2, line 13", "type 3 Si Ge Xe"),
    "a symbol in lower case": (in_frame_2(r"\nGe ", "\nge "), "frame 2, line 13", "ge"),
    "an energy of stars": (in_frame_2(r"energy=\S+", "energy=****"), "frame 2, line 11", "****"),
    "an energy of nan": (in_frame_2(r"energy=\S+", "energy=nan"), "frame 2, line 11", "nan"),
    "an energy of 1e308": (in_frame_2(r"energy=\S+", "energy=1e308"), "frame 2, line 11", "1e308"),
    "a force of inf": (in_frame_2(r"\nGe (\S+)", r"\nGe inf"), "frame 2, line 13", "inf"),
    "a number with D": (in_frame_2(r"\nGe (\S+)", r"\nGe 1.5D0"), "frame 2, line 13", "1.5D0"),
    "two energies": (in_frame_2("energy=", "energy=1 energy="), "frame 2, line 11", "twice"),
    "a cut line": (in_frame_2(r"\nGe (\S+) .*", r"\nGe \1"), "frame 2, line 13", "atom 2 of 4"),
    "columns in another order": (swapped(TEXT).encode(), "frame 2, line 13", "atom 2 of 4"),
    "a wrong number of atoms": (in_frame_2(r"^4", "3"), "line 15", "number of atoms"),
    "too large a number of atoms": (in_frame_2(r"^4", "5"), "frame 2, line 16", "atom 5 of 5"),
    "a cut file": (TEXT[:-60].encode(), "frame 4", "line 24"),
    "six virials": (
        in_frame_2(r'virial="[^"]*"', 'virial="1 2 3 4 5 6"'), "frame 2, line 11", "nine"),
    "a virial that is not symmetric": (
        in_frame_2(r'virial="[^"]*"', 'virial="1 9 9 -9 1 9 -9 -9 1"'),
        "frame 2, line 11", "not symmetric"),
    "virial and stress that disagree": (
        in_frame_2("energy=", 'stress="1 0 0 0 1 0 0 0 1" energy='), "frame 2, line 11",
        "virial and stress disagree"),
    "no Properties": (in_frame_2("Properties=", "Propertys="), "frame 2, line 11", "Properties"),
    "no Lattice": (in_frame_2(r'Lattice="[^"]*"', 'pbc="T T T"'), "frame 2, line 11", "Lattice"),
    "a flat Lattice": (
        in_frame_2(r'Lattice="[^"]*"', 'Lattice="3 0 0 0 3 0 3 3 0"'), "frame 2, line 11",
        "linearly dependent"),
    "a missing quote": (in_frame_2(r'(virial="[^"]*)"', r"\1"), "frame 2, line 11", "quote"),
    "a negative weight": (in_frame_2("energy=", "weight=-1 energy="), "frame 2, line 11", "weight"),
    "one atom twice": (
        in_frame_2(r"\nSi (.*)\nGe .*", r"\nSi \1\nGe \1"), "frame 2, line 10", "take one"),
    "no frame": (b"", "train.xyz", "no frame"),
    "something else": (b"\x89PNG\r\n\x1a\n" * 9, "frame 0, line 1", "is this extended XYZ?"),
}  # fmt: skip
NEP_IN = {
    "an unknown keyword": ({"tail": "neurons 30\n"}, "line 10", "neuron"),
    "no type": ({"type": None}, "nep.in", 'no line begins with "type"'),
    "a wrong number of types": ({"type": "3 Si Ge"}, "line 1", "2 elements follow, not 3"),
    "an element twice": ({"type": "2 Si Si"}, "line 1", "twice"),
    "a type that is none": ({"type": "2 Si Xx"}, "line 1", "Xx"),
    "angular above radial": ({"cutoff": "4 5"}, "line 2", "above the radial cutoff"),
    "cutoffs for some elements": ({"cutoff": "4 3 5"}, "line 2", "such a pair"),
    "an invariant without its l": ({"l_max": "2 1 0 0 1"}, "line 5", "needs l_max 3"),
    "a word for a number": ({"batch": "many"}, "line 8", "many"),
    "one neuron for two elements": ({"neuron": "1"}, "neuron 1", "at least 2"),
    "charges": ({"tail": "charge_mode 1\n"}, "line 10", "charge_mode"),
    "another version": ({"tail": "version 3\n"}, "line 10", "version"),
}
# Keywords that other trainers know, old forms and files from other systems: nothing is wrong.
ACCEPTED = {
    "keywords of the evolutionary training": {"tail": "population 60\nsigma0 0.1\nversion 4\n"},
    "save_potential with two values": {"tail": "save_potential 100 0\n"},
    "l_max in its short forms": {"l_max": "4 1"},
    "l_max in its long form": {"l_max": "4 1 0 0 0 0 0"},
    "cutoff before type": {"type": None, "tail": "type 2 Si Ge\n"},
    "cutoffs of the elements": {"cutoff": "4 3 3.5 3"},
}  # fmt: skip
SAME = {
    "DOS line ends": TEXT.replace("\n", "\r\n").encode(),
    "a byte-order mark": b"\xef\xbb\xbf" + TEXT.encode(),
    "tabs": TEXT.replace("Si ", "Si\t").replace("Ge ", "Ge\t").encode(),
    "keys in capitals": TEXT.replace("energy=", "ENERGY=").replace("virial=", "Virial=").encode(),
    "force for forces": TEXT.replace(":forces:", ":force:").encode(),
    "keys of others": TEXT.replace(
        "energy=", 'free_energy=1e9 ref_virial="1 2" mace_stress="9 9 9" energies=no energy='
    ).encode(),
}


def told(capsys, monkeypatch, *words) -> str:
    """What is said of a mistake: one or two lines, and the traceback with NEPKIT_DEBUG alone."""
    assert main([*words]) == 2
    said = capsys.readouterr().err
    assert said.startswith("nepkit: ") and said.count("\n") <= 2 and "Traceback" not in said
    monkeypatch.setenv("NEPKIT_DEBUG", "1")
    assert main([*words]) == 2
    with_trace = capsys.readouterr().err
    assert "Traceback" in with_trace and with_trace.endswith(said)
    return said


@pytest.mark.parametrize("name", DATA)
def test_mistakes_in_the_data(tmp_path, name, capsys, monkeypatch):
    data, place, text = DATA[name]
    folder = make_run(tmp_path / "run")
    (folder / "train.xyz").write_bytes(data)
    said = told(capsys, monkeypatch, "train", str(folder), "--device", "cpu")
    assert "train.xyz" in said and place in said and text in said


@pytest.mark.parametrize("name", NEP_IN)
def test_mistakes_in_nep_in(tmp_path, name, capsys, monkeypatch):
    changes, place, text = NEP_IN[name]
    folder = make_run(tmp_path / "run", **changes)
    said = told(capsys, monkeypatch, "train", str(folder), "--device", "cpu")
    assert "nep.in" in said and place in said and text in said


@pytest.mark.parametrize("name", ACCEPTED)
def test_what_is_no_mistake_in_nep_in(tmp_path, name, capsys):
    folder = make_run(tmp_path / "run", **ACCEPTED[name])
    assert main(["train", str(folder), "--device", "cpu", "generation=0"]) == 0
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("name", SAME)
def test_what_is_no_mistake_in_the_data(tmp_path, name, capsys):
    """The check reads the same from all of them."""
    (tmp_path / "train.xyz").write_bytes(TEXT.encode())
    assert main(["check", str(tmp_path / "train.xyz")]) == 0
    expected = capsys.readouterr().out
    (tmp_path / "train.xyz").write_bytes(SAME[name])
    assert main(["check", str(tmp_path / "train.xyz")]) == 0
    assert capsys.readouterr().out == expected


def test_a_compressed_file_cut_short(tmp_path, capsys, monkeypatch):
    folder = make_run(tmp_path / "run")
    (folder / "train.xyz").unlink()
    (folder / "train.xyz.gz").write_bytes(gzip.compress(TEXT.encode())[:-20])
    said = told(capsys, monkeypatch, "check", str(folder))
    assert "train.xyz.gz: cannot be read" in said and "copy or compress it again" in said


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> Path:
    folder = make_run(tmp_path_factory.mktemp("trained") / "run")
    assert main(["train", str(folder), "--device", "cpu", "generation=2"]) == 0
    return folder


def test_data_changed_under_a_run(trained, tmp_path, capsys, monkeypatch):
    folder = tmp_path / "run"
    make_run(folder)
    assert main(["train", str(folder), "--device", "cpu", "generation=2"]) == 0
    capsys.readouterr()
    (folder / "train.xyz").write_text(TEXT + random_frame(9).text())
    before = contents(folder)
    said = told(capsys, monkeypatch, "train", str(folder), "--device", "cpu", "generation=2")
    assert "content of train.xyz has changed" in said and "--restart" in said
    assert contents(folder) == before


MODELS = {
    "cut short": (lambda lines: lines[:-5], "line ", "cut short"),
    "extra numbers": (lambda lines: [*lines, "1.0"], "line ", "found"),
    "another version": (lambda lines: ["nep5 2 Si Ge", *lines[1:]], "line 1", "NEP5"),
    "an element repeated": (lambda lines: ["nep4 2 Si Si", *lines[1:]], "line 1", "repeated"),
    "a word for a number": (lambda lines: [*lines[:20], "x", *lines[21:]], "line 21", "'x'"),
}


@pytest.mark.parametrize("name", MODELS)
def test_damaged_models(trained, tmp_path, name, capsys, monkeypatch):
    change, place, text = MODELS[name]
    lines = (trained / "nep.txt").read_text().splitlines()
    (tmp_path / "nep.txt").write_text("\n".join(change(lines)) + "\n")
    out = str(tmp_path / "out")
    data = str(trained / "train.xyz")
    said = told(capsys, monkeypatch, "predict", str(tmp_path / "nep.txt"), data, "--out", out)
    assert "nep.txt, " + place in said and text in said


def test_prediction_of_another_element(trained, tmp_path, capsys, monkeypatch):
    (tmp_path / "data.xyz").write_text(FRAMES[0].text() + FRAMES[1].text().replace("Ge", "Sn"))
    words = ("predict", str(trained / "nep.txt"), str(tmp_path / "data.xyz"))
    said = told(capsys, monkeypatch, *words, "--out", str(tmp_path / "out"))
    assert "data.xyz, frame 1, line 8: the model has no Sn, only Si Ge" in said


@pytest.mark.skipif(os.name == "nt" or os.geteuid() == 0, reason="needs permissions that bind")
def test_a_folder_that_is_read_only(tmp_path, capsys, monkeypatch):
    folder = make_run(tmp_path / "run")
    folder.chmod(0o500)
    try:
        said = told(capsys, monkeypatch, "train", str(folder), "--device", "cpu")
    finally:
        folder.chmod(0o700)
    assert "cannot be written to" in said and "--out" in said
