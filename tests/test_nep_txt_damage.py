"""A damaged nep.txt ends in a UserError that names file and line, never in a wrong model."""

import re
from pathlib import Path

import numpy as np
import pytest
from nep_files import PLAIN, assert_same, plain_file_lines, read_lines

from nepkit.errors import UserError
from nepkit.model.nep_txt import read_nep_txt

NUMBERS = sum([2 * 2 * 12, 1, 16, 16, 10])  # of PLAIN, from line 7 on
assert PLAIN.descriptor_length == 10
LAST = 6 + NUMBERS


@pytest.fixture(scope="module")
def plain_lines(tmp_path_factory) -> list[str]:
    return plain_file_lines(tmp_path_factory.mktemp("plain"))


def fault(tmp_path: Path, lines: list[str]) -> str:
    """The message of the error without the path in front of it."""
    with pytest.raises(UserError) as caught:
        read_lines(tmp_path, lines)
    message = str(caught.value)
    assert message.startswith(f"{tmp_path / 'nep.txt'}, line ") and "\n" not in message
    return message.removeprefix(f"{tmp_path / 'nep.txt'}, ")


@pytest.mark.parametrize(
    "line, text, words",
    [
        (1, "nep3 2 Te Pb", "nep3 is a NEP3 model.*nepkit reads nep4 and nep4_zbl"),
        (1, "nep3_zbl 2 Te Pb", "NEP3"),
        (1, "nep5 2 Te Pb", "nep5 is a NEP5 model"),
        (1, "nep4_temperature 2 Te Pb", "nep4_temperature is a temperature-dependent"),
        (1, "nep4_zbl_temperature 2 Te Pb", "temperature"),
        (1, "nep4_dipole 2 Te Pb", "a dipole model"),
        (1, "nep4_polarizability 2 Te Pb", "a polarizability model"),
        (1, "nep4_charge1 2 Te Pb", "charges"),
        (1, "nep4_zbl_charge2 2 Te Pb", "nep4_zbl_charge2 is a model with charges"),
        (1, "nep4_vdw 2 Te Pb", "dispersion"),
        (1, "nep4_charge_vdw 2 Te Pb", "charges and dispersion"),
        (1, "nep4_new 2 Te Pb", "nep4_new is a model of unknown kind"),
        (1, "type 2 Te Pb", "not a NEP model: the file begins with 'type 2 Te Pb'"),
        (1, "  2.5e-01   2.7e-02", "not a NEP model"),
        (1, "", "not a NEP model"),
        (1, "nep4 3 Te Pb", "found 2 after 'nep4 3'"),
        (1, "nep4 1 Te Pb", "found 2"),
        (1, "nep4 Te Pb", "found 1 after 'nep4 Te'"),
        (1, "nep4", "takes the number of elements"),
        (1, "nep4 0", "takes the number of elements"),
        (1, "nep4 2 Te Xx", "'Xx' is not an element"),
        (1, "nep4 2 Te pb", "'pb' is not an element"),
        (1, "nep4 2 Te Cm", "'Cm' is not an element from H to Pu"),
        (1, "nep4 2 Te Te", "the element Te is repeated"),
        (2, "zbl 1 2", "expected the line 'cutoff', found 'zbl 1 2'"),
        (2, "cutoff 4 8 73 8", "0 < angular <= radial <= 100 Å, found 4 8"),
        (2, "cutoff 8 0 73 8", "found 8 0"),
        (2, "cutoff -8 -9 73 8", "found -8 -9"),
        (2, "cutoff 800 4 73 8", "found 800 4"),
        (2, "cutoff nan 4 73 8", "finite numbers, found 'nan 4'"),
        (2, "cutoff 1_0 4 73 8", "finite numbers"),
        (2, "cutoff 8 x 73 8", "finite numbers, found '8 x'"),
        (2, "cutoff 8 4 73", "found 3 values"),
        (2, "cutoff", "found 0 values"),
        (2, "cutoff 8 4 73.5 8", "integers >= 0 here, found '73.5 8'"),
        (2, "cutoff 8 4 -1 8", "integers >= 0"),
        (2, "cutoff 8 4 8 4 8 4 73 8", "each of 2 elements.*found 8 values"),
        (2, "cutoff 6 5 37 26 2.5 2 0.65", "covalent radii .* not supported"),
        (3, "basis_size 1 1", "expected the line 'n_max', found 'basis_size 1 1'"),
        (3, "n_max 1", "n_max takes 2 integers >= 0 here, found '1'"),
        (3, "n_max 1 1 1", "n_max takes 2"),
        (3, "n_max -1 1", "n_max takes 2 integers >= 0"),
        (3, "n_max 1 1.0", "n_max takes 2 integers"),
        (3, "n_max 1 99999999999999999999", "n_max takes 2 integers"),
        (4, "basis_size 1 one", "basis_size takes 2 integers"),
        (4, "", "expected the line 'basis_size', found ''"),
        (5, "l_max", "found 0 values"),
        (5, "l_max 4 2 1 1 1 1 1 1", "found 8 values"),
        (5, "l_max 0 0 0", "L from 1 to 8, found 0"),
        (5, "l_max 9 2 0", "L from 1 to 8, found 9"),
        (5, "l_max 4 -2 0", "integers >= 0"),
        (5, "l_max 1 2 0", "q222 needs l_max 2, found 1"),
        (5, "l_max 2 2 0 1 1", "q123 needs l_max 3, found 2"),
        (5, "l_max 3 2 0 0 0 0 1", "q134 needs l_max 4, found 3"),
        (6, "ANN 0 0", "at least one neuron"),
        (6, "ANN 0 5", "at least one neuron"),
        (6, "ANN 2", "ANN takes 2 integers"),
        (6, "NN 2 0", "expected the line 'ANN'"),
        (7, "abc", "expected one finite number, found 'abc'"),
        (9, "  nan", "expected one finite number, found 'nan'"),
        (10, "-inf", "expected one finite number"),
        (11, "1e999", "expected one finite number, found '1e999'"),
        (12, "****", "found '\\*\\*\\*\\*'"),
        (13, "1_0", "found '1_0'"),
        (14, "1.0 2.0", "found '1.0 2.0'"),
        (15, "", "found ''"),
        (16, "# 1.0", "found '# 1.0'"),
        (17, "1,0", "found '1,0'"),
        (18, "1.0\ufffd", "expected one finite number"),
        (LAST, "x", "expected one finite number, found 'x'"),
    ],
)
def test_damaged_line(tmp_path, plain_lines, line, text, words):
    message = fault(tmp_path, [*plain_lines[: line - 1], text, *plain_lines[line:]])
    assert message.startswith(f"line {line}: ") and re.search(words, message), message


@pytest.mark.parametrize(
    "text, words",
    [
        ("zbl 2 1", "0 <= inner < outer .* found '2 1'"),
        ("zbl -1 2", "found '-1 2'"),
        ("zbl 2 2", "found '2 2'"),
        ("zbl 1", "found '1'"),
        ("zbl", "found ''"),
        ("zbl 1 2 0", "typewise factor > 0, found '1 2 0'"),
        ("zbl 1 2 0.7 3", "found '1 2 0.7 3'"),
        ("zbl 1 inf", "finite numbers"),
        ("cutoff 8 4 73 8", "expected the line 'zbl', found 'cutoff 8 4 73 8'"),
    ],
)
def test_damaged_zbl(tmp_path, plain_lines, text, words):
    lines = ["nep4_zbl 2 Te Pb", text, *plain_lines[1:]]
    message = fault(tmp_path, lines)
    assert message.startswith("line 2: ") and re.search(words, message), message


def test_flexible_zbl_asks_for_its_numbers(tmp_path, plain_lines):
    message = fault(tmp_path, ["nep4_zbl 2 Te Pb", "zbl 0 0", *plain_lines[1:]])
    assert f"the header asks for {NUMBERS + 30} numbers, found {NUMBERS}" in message


@pytest.mark.parametrize("kept", [1, 3, 5, 6, 7, 40, LAST - 1])
def test_cut_short(tmp_path, plain_lines, kept):
    message = fault(tmp_path, plain_lines[:kept])
    assert message.startswith(f"line {kept}: the file is cut short: ")
    if kept >= 6:
        assert f"asks for {NUMBERS} numbers, found {kept - 6}" in message
    else:
        assert "must follow" in message


def test_cut_inside_a_number(tmp_path, plain_lines):
    message = fault(tmp_path, [*plain_lines[:50], plain_lines[50][:-4]])
    assert message.startswith("line 51: the file is cut short")
    lines = [*plain_lines[:-1], "  5.9611837e-"]
    assert fault(tmp_path, lines).startswith(f"line {LAST}: expected one finite number")


def test_extra_numbers(tmp_path, plain_lines):
    message = fault(tmp_path, [*plain_lines, "1.0", "2.0"])
    words = f"the header asks for {NUMBERS} numbers, found {NUMBERS + 2} lines"
    assert message == f"line {LAST + 1}: {words}"


@pytest.mark.parametrize(
    "data, words",
    [(b"", "is empty"), (b"\n \n", "is empty"), (b"\xfd7zXZ\0\0\4", "is not a text file")],
)
def test_empty_and_binary_files(tmp_path, data, words):
    path = tmp_path / "nep.txt"
    path.write_bytes(data)
    with pytest.raises(UserError, match=f"^{re.escape(str(path))}: {words}"):
        read_nep_txt(path)


def test_missing_file_and_folder(tmp_path):
    with pytest.raises(UserError, match="missing.txt: cannot be read: No such file"):
        read_nep_txt(tmp_path / "missing.txt")
    with pytest.raises(UserError, match="cannot be read: Is a directory"):
        read_nep_txt(tmp_path)


def test_truncation(tmp_path, plain_lines):
    """A file cut anywhere is refused, or nothing but its last line end is gone."""
    expected = read_lines(tmp_path, plain_lines)
    path = tmp_path / "nep.txt"
    data = path.read_bytes()
    lengths = set(range(0, len(data), 7)) | set(range(150)) | set(range(len(data) - 50, len(data)))
    for length in sorted(lengths):
        path.write_bytes(data[:length])
        try:
            read = read_nep_txt(path)
        except UserError:
            continue
        assert length == len(data) - 1
        assert_same(expected, read)


def test_mutated_bytes_are_refused_or_make_a_model(tmp_path, plain_lines):
    """No other exception than UserError; and no letter or symbol among the numbers is ignored."""
    expected = read_lines(tmp_path, plain_lines)
    path = tmp_path / "nep.txt"
    data = path.read_bytes()
    body = data.index(b"ANN")
    generator = np.random.default_rng(7)
    symbols = bytes(set(range(256)) - set(b"0123456789.+-"))
    for trial in range(600):
        among_numbers = trial % 2 == 1
        position = int(generator.integers(body if among_numbers else 0, len(data)))
        byte = symbols[generator.integers(len(symbols))] if among_numbers else trial % 256
        # Inserted among the numbers, else inserted or in the place of another.
        rest = position if among_numbers else position + int(generator.integers(2))
        path.write_bytes(data[:position] + bytes([byte]) + data[rest:])
        try:
            read = read_nep_txt(path)
        except UserError as error:
            assert str(error).startswith(str(path))
        else:
            if among_numbers:
                assert_same(expected, read)
