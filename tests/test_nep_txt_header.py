"""The header of a nep.txt: the plainest is written, all forms of GPUMD are read."""

from dataclasses import replace

import pytest
from nep_files import PLAIN, SMALL, plain_file_lines, random_model, read_lines

from nepkit.config import HIGHER_INVARIANTS, Zbl
from nepkit.model.nep_txt_header import header_lines
from nepkit.model.nep_txt_write import write_nep_txt


@pytest.fixture(scope="module")
def plain_lines(tmp_path_factory) -> list[str]:
    return plain_file_lines(tmp_path_factory.mktemp("plain"))


@pytest.mark.parametrize(
    "changes, lines",
    [
        ({}, ["nep4_zbl 2 Te Pb", "zbl 1.0 2.0", "cutoff 8.0 4.0 7.5 3.5 9 8", "l_max 4 2 1"]),
        ({"zbl": None}, ["nep4 2 Te Pb", "cutoff 8.0 4.0 7.5 3.5 9 8"]),
        ({"zbl": Zbl(1, 2.5, 0.7)}, ["zbl 1.0 2.5 0.7"]),
        ({"zbl": Zbl(0.0, 0.0, None, ())}, ["nep4_zbl 2 Te Pb", "zbl 0 0"]),
        ({"radial_cutoff": (8, 8), "angular_cutoff": (4, 4)}, ["cutoff 8.0 4.0 9 8"]),
        ({"invariants": ()}, ["l_max 4 0 0"]),
        ({"invariants": ("q1111",)}, ["l_max 4 0 1"]),
        ({"invariants": ("q222", "q123")}, ["l_max 4 2 0 0 1"]),
        ({"invariants": tuple(HIGHER_INVARIANTS)}, ["l_max 4 2 1 1 1 1 1"]),
        ({"neuron": (30,)}, ["ANN 30 0"]),
        ({"neuron": (30, 5)}, ["n_max 2 1", "basis_size 3 2", "ANN 30 5"]),
    ],
)
def test_plainest_header(changes, lines):
    assert set(lines) <= set(header_lines(replace(SMALL, **changes), (9, 8)))


@pytest.mark.parametrize(
    "words, invariants",
    [
        ("4", ()),
        ("4 0", ()),
        ("4 0 0", ()),
        ("4 2", ("q222",)),
        ("4 2 0", ("q222",)),
        ("4 1 1", ("q222", "q1111")),
        ("4 0 1", ("q1111",)),
        ("4 1 0 0 0 0 0", ("q222",)),
        ("4 2 0 0 1", ("q222", "q123")),
    ],
)
def test_old_and_new_forms_of_l_max(tmp_path, words, invariants):
    write_nep_txt(tmp_path / "nep.txt", random_model(replace(PLAIN, invariants=invariants)))
    lines = (tmp_path / "nep.txt").read_text().splitlines()
    lines[4] = f"l_max {words}"
    assert read_lines(tmp_path, lines).settings.invariants == invariants


@pytest.mark.parametrize(
    "words, counts",
    [("8 4", (0, 0)), ("8 4 73 8", (73, 8)), ("8 4 8 4 73 8", (73, 8)), ("8. 4e0 73 8", (73, 8))],
)
def test_forms_of_cutoff(tmp_path, plain_lines, words, counts):
    plain_lines = [*plain_lines[:1], f"cutoff {words}", *plain_lines[2:]]
    nep = read_lines(tmp_path, plain_lines)
    assert nep.settings == PLAIN and nep.max_neighbors == counts
