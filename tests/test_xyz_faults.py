"""Extended XYZ that must be refused: every message names file, frame and line."""

import pytest
from test_xyz import ATOMS, LATTICE, PROPERTIES, SLAB, VIRIAL, fault, frame_text

from nepkit.data.xyz import read_xyz
from nepkit.errors import UserError

COMMENT_FAULTS = {
    "energy=**** {L} {P}": ["energy", "****"],
    "energy=nan {L} {P}": ["energy", "nan"],
    "energy=-inf {L} {P}": ["energy", "inf"],
    "energy=1e308 {L} {P}": ["energy", "1e308"],
    "energy=1_0 {L} {P}": ["energy", "1_0"],
    "energy=1D+03 {L} {P}": ["energy", "1D+03"],
    "energy=-5, {L} {P}": ["energy", "-5,"],
    "energy=١ {L} {P}": ["energy"],
    'energy="1 2" {L} {P}': ["energy", "1 2"],
    "energy= {L} {P}": ["energy", "no value"],
    "energy=1 Energy=1 {L} {P}": ["energy", "twice"],
    "{L} {L} {P}": ["lattice", "twice"],
    "energy==1 {L} {P}": ["cannot read", "=1"],
    'energy=1 Lattice="4 0 0 0 5 0 0 0 6 {P}': ["cannot read", "quote"],
    'energy=1 Lattice="4 0 0 0 5 0 0 0" {P}': ["Lattice", "8 of 9"],
    "energy=1 Lattice=4 0 0 0 5 0 0 0 6 {P}": ["Lattice", "1 of 9"],
    'energy=1 Lattice="4 0 0 0 x 0 0 0 6" {P}': ["Lattice", "x"],
    "Lattice=[[4, 0, 0], [0, 5, 0], [0, 0, 6]] {P}": ["Lattice", "[4"],
    'energy=1 Lattice="4 0 0 0 nan 0 0 0 6" {P}': ["Lattice", "nan"],
    'Lattice="4 0 0 0 5 0 0 0 0" {P}': ["zero", "periodic"],
    'Lattice="4 0 0 0 0 0 0 0 6" pbc="T T F" {P}': ["zero", "periodic"],
    'Lattice="4 0 0 0 5 0 4 5 0" {P}': ["linearly dependent"],
    'Lattice="4 0 0 8 0 0 0 0 6" pbc="T T F" {P}': ["linearly dependent"],
    'pbc="T F F" {P}': ["pbc", "no Lattice"],
    '{L} pbc="T T" {P}': ["pbc", "T T"],
    '{L} pbc="yes no no" {P}': ["pbc", "yes no no"],
    "{L} weight=0 {P}": ["weight=0"],
    "{L} weight=100.5 {P}": ["weight=100.5"],
    "{L} weight=heavy {P}": ["weight", "heavy"],
    "{L} energy_weight=-1 {P}": ["energy_weight=-1"],
    '{L} virial="1 2 3 4 5 6" {P}': ["virial", "6 of 9", "ambiguous", "xx xy xz yx"],
    '{L} stress="1 2 3 4 5 6" {P}': ["stress", "6 of 9", "ambiguous"],
    '{L} virial="1 2 3 4 5 6 7 8 ****" {P}': ["virial", "****"],
    '{L} virial="1 2 3 4 5 6 7 8 9" {P}': ["virial", "symmetric"],
    '{S} pbc="T T F" stress="0 0 0 0 0 0 0 0 0" {P}': ["stress", "volume"],
    'stress="1 0 0 0 1 0 0 0 1" {P}': ["stress", "volume"],
    '{L} {V} stress="0.1 0 0 0 0 0 0 0 0" {P}': ["disagree", "eV/atom", "-6", "0.5"],
    "": ["no Properties"],
    "energy=1 {L}": ["no Properties"],
    "{L} Properties=species:S:1:pos:R:3:forces:R": ["Properties", "name:type:count"],
    "{L} Properties=species:S:1:pos:R:3:x:Q:1": ["Properties", "x:Q:1"],
    "{L} Properties=species:S:1:pos:R:3:x:R:0": ["Properties", "x:R:0"],
    "{L} Properties=species:S:1:pos:R:2": ["pos:R:3", "pos:R:2"],
    "{L} Properties=species:S:1:forces:R:3": ["no pos"],
    "{L} Properties=Z:I:1:pos:R:3": ["no species"],
    "{L} Properties=species:S:1:pos:R:3:force:R:3:forces:R:3": ["forces", "twice"],
}


@pytest.mark.parametrize("comment", COMMENT_FAULTS)
def test_comment_faults(tmp_path, comment):
    wanted = COMMENT_FAULTS[comment]
    comment = comment.format(L=LATTICE, P=PROPERTIES, S=SLAB, V=VIRIAL) if comment else ""
    message = fault(tmp_path, frame_text() + frame_text(comment))
    assert "frame 1, line 6:" in message
    for words in wanted:
        assert words in message


ATOM_FAULTS = {
    "Si 0.5 1.0 1.5 0.1 -0.2": ["7 columns", "found 6"],
    "Si 0.5 1.0 1.5 0.1 -0.2 0.3 0.4": ["7 columns", "found 8"],
    "": ["7 columns", "found 0"],
    "si 0.5 1.0 1.5 0.1 -0.2 0.3": ["si", "letter case"],
    "14 0.5 1.0 1.5 0.1 -0.2 0.3": ["14", "not an element"],
    "Am 0.5 1.0 1.5 0.1 -0.2 0.3": ["Am", "not an element"],
    "0.5 1.0 1.5 0.1 -0.2 0.3 Si": ["0.5", "not an element"],
    "Si nan 1.0 1.5 0.1 -0.2 0.3": ["pos (column 2)", "nan"],
    "Si 0.5 1.0 1.5 0.1 -inf 0.3": ["forces (column 6)", "-inf"],
    "Si 0.5 **** 1.5 0.1 -0.2 0.3": ["pos (column 3)", "****"],
    "Si 0.5 1.0 1e99 0.1 -0.2 0.3": ["pos (column 4)", "1e99"],
    "Si 0.5 1.0 1e999 0.1 -0.2 0.3": ["pos (column 4)", "1e999"],
    "Si 0.5 1_0.0 1.5 0.1 -0.2 0.3": ["pos (column 3)", "1_0.0"],
    "Si 0.5 1D+03 1.5 0.1 -0.2 0.3": ["pos (column 3)", "1D+03"],
    "Si 0.5 1.0 1.5 0.1 0.2-0.3 0.3": ["forces (column 6)", "0.2-0.3"],
    "Si 0.5 1.0 1.5 0.1 0.2.3 1": ["forces (column 6)", "0.2.3"],
    "Si 0.5 1.0 1.5 0.1 --0.2 0.3": ["forces (column 6)", "--0.2"],
    "Si 0.5 1.0 1.5 0.1 . 0.3": ["forces (column 6)", "."],
    "Si 0.5 1.0 1.5 0.1 -. 0.3": ["forces (column 6)", "-."],
    "Si 0.5 1.0 1.5 0.1 \x00-0.2 0.3": ["forces (column 6)", "\\x00-0.2"],
}


@pytest.mark.parametrize("count", [3, 80])
@pytest.mark.parametrize("atom_line", ATOM_FAULTS)
def test_atom_faults(tmp_path, atom_line, count):
    atoms = ATOMS.splitlines() * (count // 2) + ["Si 0 0 0 0 0 0"] * (count % 2)
    atoms[1] = atom_line
    text = frame_text() + frame_text(atoms="\n".join(atoms) + "\n", count=count) + frame_text()
    message = fault(tmp_path, text)
    assert f"frame 1, line 8, atom 2 of {count}:" in message
    for words in ATOM_FAULTS[atom_line]:
        assert words in message


@pytest.mark.parametrize("word", ["0", "-2", "2.0", "2 2", "x", "2_0", "+2", "1" * 5000, "²"])
def test_number_of_atoms(tmp_path, word):
    assert "frame 0, line 1: expected the number" in fault(tmp_path, frame_text(count=word))
    message = fault(tmp_path, frame_text() + "\n" + frame_text(count=word))
    assert "frame 1, line 6: expected the number" in message


@pytest.mark.parametrize(
    "cut, place, words",
    [
        (2, "frame 1, line 5", ["ends here"]),
        (12, "frame 1, line 6", ["ends here", "2 atom lines"]),
        (-len(ATOMS), "frame 1, line 6", ["0 of 2 atom lines"]),
        (-len(ATOMS) // 2 - 10, "frame 1, line 7", ["7 columns", "ends in this line"]),
        (-30, "frame 1, line 7", ["1 of 2 atom lines"]),
        (-9, "frame 1, line 8", ["7 columns", "found 5", "ends in this line"]),
    ],
)
def test_truncated(tmp_path, cut, place, words):
    text = frame_text()
    message = fault(tmp_path, text + text[:cut])
    assert place in message
    for word in words:
        assert word in message


@pytest.mark.parametrize("count", [1, 3, 10**11])
@pytest.mark.parametrize("frames", [2, 6000])
def test_wrong_number_of_atoms(tmp_path, count, frames):
    """The frame that is wrong is named, and not one after it; 6,000 frames exceed a block."""
    message = fault(tmp_path, frame_text() + frame_text(count=count) + frame_text() * frames)
    place = "frame 2, line 8: expected" if count == 1 else "frame 1, line 9, atom 3"
    assert place in message


def test_large_frame(tmp_path):
    path = tmp_path / "train.xyz"
    path.write_text(frame_text(atoms=ATOMS * 12_000, count=24_000))
    assert len(read_xyz(path)[0]) == 24_000
    message = fault(tmp_path, frame_text(atoms=ATOMS * 11_999, count=24_000))
    assert "23998 of 24000" in message and "frame 0, line 24000" in message


@pytest.mark.parametrize(
    "data", [b"", b"\n \n", b"\x7fELF\x02\x01\x00\n\xff\xfe", "2\n".encode("utf-16"), bytes(5000)]
)
def test_not_extended_xyz(tmp_path, data):
    fault(tmp_path, data)


def test_comment_not_utf8(tmp_path):
    text = frame_text(f"{LATTICE} {PROPERTIES} author=Müller").encode("latin-1")
    assert "frame 0, line 2: the comment line is not UTF-8" in fault(tmp_path, text)


@pytest.mark.parametrize("name", ["none.xyz", "none.xyz.gz", "none.xyz.xz", "folder.xyz", "f.gz"])
def test_no_file(tmp_path, name):
    if "f" in name:
        (tmp_path / name).mkdir()
    with pytest.raises(UserError, match=f"{name}: cannot be read"):
        read_xyz(tmp_path / name)
