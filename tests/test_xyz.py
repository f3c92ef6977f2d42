"""Extended XYZ: what is read, and what is refused with its place."""

import gzip
import lzma

import numpy as np
import pytest

from nepkit.data.xyz import check_elements, iter_xyz, read_xyz
from nepkit.errors import UserError

PROPERTIES = "Properties=species:S:1:pos:R:3:forces:R:3"
LATTICE = 'Lattice="4 0 0 0 5 0 0 0 6"'
ATOMS = "Si 0.5 1.0 1.5 0.1 -0.2 0.3\nGe 2.0 2.5 3.0 -0.1 0.2 -0.3\n"
SLAB = 'Lattice="4 0 0 0 5 0 0 0 0"'
VIRIAL = "virial='1 2 3 2 5 6 3 6 9'"


def frame_text(comment=f"energy=-3.5 {LATTICE} {PROPERTIES}", atoms=ATOMS, count=2):
    return f"{count}\n{comment}\n{atoms}"


def read(tmp_path, text, name="train.xyz"):
    path = tmp_path / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return read_xyz(path)


def read_comment(tmp_path, comment):
    (frame,) = read(tmp_path, frame_text(comment))
    return frame


def fault(tmp_path, text, name="train.xyz"):
    with pytest.raises(UserError) as error:
        read(tmp_path, text, name)
    message = str(error.value)
    assert str(tmp_path / name) in message
    assert message.count("\n") <= 1
    return message


def test_all_fields(tmp_path):
    comment = (
        f'energy=-3.5 {LATTICE} {VIRIAL} pbc="T F T" weight=2 energy_weight=0 '
        f'config_type="bulk \\"a\\"" {PROPERTIES}'
    )
    first, second = read(tmp_path, frame_text() + frame_text(comment))
    assert (first.index, first.line, second.index, second.line) == (0, 1, 1, 5)
    assert second.path == str(tmp_path / "train.xyz")
    assert second.numbers.dtype == np.int16 and second.numbers.tolist() == [14, 32]
    assert second.positions.tolist() == [[0.5, 1.0, 1.5], [2.0, 2.5, 3.0]]
    assert second.forces.tolist() == [[0.1, -0.2, 0.3], [-0.1, 0.2, -0.3]]
    assert second.cell.tolist() == [[4, 0, 0], [0, 5, 0], [0, 0, 6]]
    assert second.virial.tolist() == [[1, 2, 3], [2, 5, 6], [3, 6, 9]]
    assert second.pbc.dtype == bool and second.pbc.tolist() == [True, False, True]
    assert (second.energy, second.weight, second.energy_weight) == (-3.5, 2.0, 0.0)
    assert second.source == 'bulk "a"'
    assert first.virial is None and first.source == "" and first.weight == 1.0
    assert first.pbc.all()


@pytest.mark.parametrize(
    "comment",
    [
        f"ENERGY=-3.5 lattice='4 0 0 0 5 0 0 0 6' {PROPERTIES.upper()}",
        f'energy = -3.5 Lattice = " 4 0 0  0 5 0 0 0 6 " Properties ={PROPERTIES[11:]}',
        f"energy=\t-3.5\tLattice={{4 0 0 0 5 0 0 0 6}}\t{PROPERTIES}",
        f'  {PROPERTIES} "Energy"="-3.5" Lattice="4,0,0,0,5,0,0,0,6" flag "quoted word" d="J {{}}"',
        f'free_energy=1 energies=2 note="energy=3" {LATTICE} {PROPERTIES} energy=-3.5 ref_energy=4',
        f'name= energy=-3.5 url=a=b {LATTICE} pbc=[T, T, T] {PROPERTIES} "q\\"x"="\\" energy=1"',
    ],
)
def test_comment_forms(tmp_path, comment):
    frame = read_comment(tmp_path, comment)
    assert frame.energy == -3.5
    assert np.array_equal(frame.cell, np.diag([4.0, 5, 6]))
    assert frame.pbc.all() and frame.forces is not None and frame.virial is None


def test_other_peoples_labels(tmp_path):
    others = 'ref_virial="9 0 0 0 9 0 0 0 9" mace_stress="1 0 0 0 1 0 0 0 1" free_energy=1'
    frame = read_comment(tmp_path, f"{others} {LATTICE} Properties=species:S:1:pos:R:3:mace:R:3")
    assert frame.energy is None and frame.virial is None and frame.forces is None


@pytest.mark.parametrize("count", [2, 64])
@pytest.mark.parametrize("name", ["force", "Forces"])
def test_columns_by_properties(tmp_path, name, count):
    """Columns in any order, of types S, R, I and L, few or many lines."""
    properties = f"Properties=tag:I:2:{name}:R:3:moving:L:1:species:S:1:charge:R:1:pos:R:3:site:S:1"
    line = "1 -2 0.25 -0.5 0.75 T Cl -1.25 1.5 -2.5 +3.5 a_1.x\n"
    (frame,) = read(tmp_path, frame_text(f"{LATTICE} {properties}", line * count, count))
    assert np.array_equal(frame.forces, [[0.25, -0.5, 0.75]] * count)
    assert np.array_equal(frame.positions, [[1.5, -2.5, 3.5]] * count)
    assert set(frame.numbers) == {17} and len(frame) == count


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text.replace("\n", "\r\n"),
        lambda text: "\ufeff" + text,
        lambda text: "\n \n" + text.replace("Ge", "\tGe").replace("2\n", "  2 \n", 1),
        lambda text: text + "\n\n" + text + "\n\n",
        lambda text: text.replace("1.0 1.5", "1.0\t \t1.5").replace("\n", " \n"),
        lambda text: text.rstrip("\n"),
    ],
)
def test_harmless_forms(tmp_path, change):
    frames = read(tmp_path, change(frame_text()))
    for frame in frames:
        assert frame.numbers.tolist() == [14, 32] and frame.energy == -3.5
        assert frame.positions[0].tolist() == [0.5, 1.0, 1.5]
        assert frame.forces[1].tolist() == [-0.1, 0.2, -0.3]


def test_compressed_and_streamed(tmp_path):
    text = (frame_text() * 700).encode()
    for name, data in (("a.xyz.gz", gzip.compress(text)), ("a.xyz.xz", lzma.compress(text))):
        assert len(read(tmp_path, data, name)) == 700
        assert "cannot be read" in fault(tmp_path, data[: len(data) // 2], "cut_" + name)
        assert "cannot be read" in fault(tmp_path, text, "plain_" + name)
    damaged = bytearray(gzip.compress(text))
    damaged[len(damaged) // 2] ^= 255
    fault(tmp_path, bytes(damaged), "damaged.gz")
    frames = iter_xyz(tmp_path / "a.xyz.gz")
    assert [next(frames).line for _ in range(3)] == [1, 5, 9]


def test_good_frames_come_before_a_fault(tmp_path):
    path = tmp_path / "train.xyz"
    path.write_text(frame_text() * 3 + "x\n")
    frames = iter_xyz(path)
    assert [next(frames).index for _ in range(3)] == [0, 1, 2]
    with pytest.raises(UserError, match="frame 3, line 13"):
        next(frames)


@pytest.mark.parametrize(
    "pbc, expected",
    [("T F T", "TFT"), ("1 1 0", "TTF"), ("TTF", "TTF"), ("True false TRUE", "TFT"), ("F", "FFF")],
)
def test_pbc_forms(tmp_path, pbc, expected):
    frame = read_comment(tmp_path, f'{LATTICE} pbc="{pbc}" {PROPERTIES}')
    assert frame.pbc.tolist() == [letter == "T" for letter in expected]


def test_pbc_without_a_full_cell(tmp_path):
    molecule = read_comment(tmp_path, f"energy=1 {VIRIAL} {PROPERTIES}")
    assert not molecule.pbc.any() and not molecule.cell.any() and molecule.virial is not None
    slab = read_comment(tmp_path, f'{SLAB} pbc="T T F" {PROPERTIES}')
    assert slab.cell[2].tolist() == [0, 0, 0]
    left_handed = read_comment(tmp_path, f'Lattice="0 5 0 4 1 0 0 0 6" {PROPERTIES}')
    assert left_handed.volume == pytest.approx(120)


def test_virial_from_stress(tmp_path):
    stress = 'stress="0.01 0.02 0 0.02 0.03 0 0 0 -0.01"'
    expected = -120 * np.array([[0.01, 0.02, 0], [0.02, 0.03, 0], [0, 0, -0.01]])
    frame = read_comment(tmp_path, f'Lattice="0 5 0 4 0 0 0 0 6" {stress} {PROPERTIES}')
    assert np.allclose(frame.virial, expected, rtol=1e-14)
    rows = "virial=[[-1.2, -2.4, 0], [-2.4, -3.6, 0], [0, 0, 1.2001]]"
    both = read_comment(tmp_path, f"{LATTICE} {stress} {rows} {PROPERTIES}")
    assert both.virial[2, 2] == 1.2001
    noisy = read_comment(tmp_path, f'virial="1 2.01 3 2 5 6 3 6 9" {LATTICE} {PROPERTIES}')
    assert noisy.virial[0, 1] == noisy.virial[1, 0] == pytest.approx(2.005)


@pytest.mark.parametrize("count", [2, 64])
@pytest.mark.parametrize("word", ["1e-3", "+.5", "5.", "-0.0", "7", "1E+2", "0.12345678901234567"])
def test_number_forms(tmp_path, word, count):
    atoms = f"Si {word} 0.0 0.0 1.0 {word} 1.0\n" * count
    (frame,) = read(tmp_path, frame_text(atoms=atoms, count=count))
    assert frame.positions[1, 0].tobytes() == frame.forces[0, 1].tobytes()
    assert frame.forces[0, 1] == float(word)


def test_check_elements(tmp_path):
    frames = read(tmp_path, frame_text() * 2)
    assert check_elements(frames, ("C", "Ge", "Si", "H")) == ("C", "H")
    with pytest.raises(UserError) as error:
        check_elements(frames, ["Si", "C"])
    message = str(error.value)
    assert f"{tmp_path / 'train.xyz'}, frame 0, line 4" in message
    assert "Ge" in message and "type 3 Si C Ge" in message
