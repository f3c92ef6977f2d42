"""Extended XYZ against independent readers, real files, and arbitrary damage."""

import re
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from nepkit.data.xyz import read_xyz
from nepkit.errors import UserError
from nepkit.units import ATOMIC_NUMBERS, ELEMENTS

SHARED = Path(__file__).resolve().parents[2] / "shared" / "data"


def write_random(path, seed, num_frames, num_atoms=None, decimals=8):
    """Frames as a user writes them; returns the path."""
    random = np.random.default_rng(seed)

    def numbers(values):
        return " ".join(f"{value:.{decimals}f}" for value in np.ravel(values))

    with open(path, "w") as file:
        for index in range(num_frames):
            size = num_atoms or int(random.integers(1, 80))
            cell = 10 * np.eye(3) + random.normal(size=(3, 3))
            virial = random.normal(size=(3, 3))
            file.write(
                f'{size}\nenergy={-500 * random.random():.6f} Lattice="{numbers(cell)}" '
                f'virial="{numbers(virial + virial.T)}" config_type=set/{index} pbc="T T F" '
                "Properties=species:S:1:pos:R:3:forces:R:3\n"
            )
            for symbol in random.choice(ELEMENTS, size):
                file.write(f"{symbol} {numbers(random.normal(size=6) * [9, 9, 99, 1, 1, 10])}\n")
    return path


@pytest.mark.parametrize("decimals", [1, 3, 8, 12, 17])
def test_same_as_ase(tmp_path, decimals):
    """Bit for bit, also where numbers have more digits than the fast path takes."""
    io = pytest.importorskip("ase.io")
    path = write_random(tmp_path / "random.xyz", decimals, 60, decimals=decimals)
    frames, witnesses = read_xyz(path), io.read(path, ":")
    assert len(frames) == len(witnesses) == 60
    for frame, atoms in zip(frames, witnesses):
        assert np.array_equal(frame.numbers, atoms.numbers)
        assert np.array_equal(frame.positions, atoms.positions)
        assert np.array_equal(frame.forces, atoms.get_forces())
        assert np.array_equal(frame.cell, atoms.cell[:])
        assert np.array_equal(frame.pbc, atoms.pbc)
        assert frame.energy == atoms.get_potential_energy()
        assert np.array_equal(frame.virial, np.reshape(atoms.info["virial"], (3, 3)))
        assert frame.source == atoms.info["config_type"]


def test_same_as_extxyz(tmp_path):
    extxyz = pytest.importorskip("extxyz")
    path = write_random(tmp_path / "random.xyz", 0, 60)
    frames, witnesses = read_xyz(path), list(extxyz.read_dicts(str(path)))
    assert len(frames) == len(witnesses) == 60
    for frame, witness in zip(frames, witnesses):
        symbols = [ELEMENTS[number - 1] for number in frame.numbers]
        assert symbols == np.ravel(witness.arrays["species"]).tolist()
        shape = (-1, 3)  # extxyz squeezes frames of one atom
        assert np.array_equal(frame.positions, np.reshape(witness.arrays["pos"], shape))
        assert np.array_equal(frame.forces, np.reshape(witness.arrays["forces"], shape))
        assert np.array_equal(frame.cell, np.transpose(witness.cell))
        assert frame.energy == witness.info["energy"]
        assert np.array_equal(frame.virial, np.reshape(witness.info["virial"], (3, 3)))


def test_ase_writes_and_we_read(tmp_path):
    """Stress in ASE's own form; virial = -volume x stress."""
    ase = pytest.importorskip("ase")
    from ase.calculators.singlepoint import SinglePointCalculator
    from ase.io import write

    atoms = ase.Atoms("SiGe", [[0, 0, 0], [1, 2, 3]], cell=[[4, 1, 2], [0, 5, 3], [0, 0, 6]])
    atoms.pbc = [True, True, False]
    atoms.info = {"config_type": "two words", "flag": True, "d": {"a": [1, 2]}, 'k"y': 'a "b" =1'}
    forces = np.arange(6.0).reshape(2, 3)
    stress = np.array([0.1, 0.2, 0.3, 0.4, 0.5, 0.6])
    atoms.calc = SinglePointCalculator(atoms, energy=-1.5, forces=forces, stress=stress)
    write(tmp_path / "ase.xyz", [atoms, atoms])
    for frame in read_xyz(tmp_path / "ase.xyz"):
        full = [[0.1, 0.6, 0.5], [0.6, 0.2, 0.4], [0.5, 0.4, 0.3]]
        assert np.allclose(frame.virial, -atoms.get_volume() * np.array(full), rtol=1e-14)
        assert frame.source == "two words" and frame.pbc.tolist() == [True, True, False]
        assert np.array_equal(frame.forces, forces) and np.array_equal(frame.cell, atoms.cell[:])


@pytest.mark.parametrize(
    "name, num_frames, num_virials",
    [
        ("a_pbte/train.xyz", 25, 0),
        ("a_mos2_finetune/train.xyz", 104, 104),
        ("b_alloy/nbmotaw_train.xyz", 536, 536),
        ("b_alloy/nbmotaw_test.xyz", 92, 92),
        ("b_alloy/crconi/CrCoNi.xyz", 5, 0),
        ("c_multi/subset89_train.xyz", 1572, 1414),
        ("c_multi/subset89_test.xyz", 240, 232),
        ("c_multi/subset32_train.xyz", 438, 438),
        ("d_molecules/3bpa_train.xyz", 100, 0),
        ("d_molecules/carbon4_smallbox_train.xyz", 70, 70),
        ("d_molecules/ethanol.xyz", 80, 0),
        ("d_molecules/mixed_virial.xyz", 102, 87),
        ("d_molecules/water192.xyz", 7, 0),
        ("own_dft/sige_train.xyz", 146, 146),
        ("t_teacher89/teacher89_train.xyz", 412, 412),
        ("t_teacher89/unep16_train.xyz", 90, 90),
    ],
)
def test_real_files(name, num_frames, num_virials):
    path = SHARED / name
    if not path.exists():
        pytest.skip(f"no shared data: {path}")
    frames = read_xyz(path)
    assert len(frames) == num_frames
    assert sum(frame.virial is not None for frame in frames) == num_virials
    has_labels = "CrCoNi" not in name
    for frame in frames:
        assert (frame.energy is not None) == (frame.forces is not None) == has_labels
        assert frame.pbc.all() == (frame.volume < 120_000 and "ethanol" not in name)
    assert_same_lines(path.read_bytes(), frames)


def numbers_after(key, comment):
    """The lists of numbers that follow ``key=``, bare or delimited, wherever it occurs."""
    pattern = rb"(?i)" + key + rb"[\"']?\s*=\s*(?:[\"'{\[]([^\"'}\]]*)|(\S+))"
    for delimited, bare in re.findall(pattern, comment):
        try:
            yield [float(word) for word in (delimited or bare).decode().replace(",", " ").split()]
        except ValueError:
            continue


def assert_same_lines(data, frames):
    """The frames hold what is in the file, word by word, and no line is left out."""
    lines = data.removeprefix(b"\xef\xbb\xbf").split(b"\n")
    for frame in frames:
        count, comment, *atoms = lines[frame.line - 1 : frame.line + 1 + len(frame)]
        assert int(count) == len(frame) == len(atoms)
        properties = re.search(rb"(?i)properties[\"']?\s*=\s*[\"'{\[]?\s*([^\s\"'}\]]+)", comment)
        fields = properties[1].decode().lower().split(":")
        column, columns = 0, {}
        for name, size in zip(fields[::3], map(int, fields[2::3])):
            columns[name.replace("element", "species").replace("forces", "force")] = column
            column += size
        for atom, line in enumerate(atoms):
            words = line.split()
            assert ATOMIC_NUMBERS[words[columns["species"]].decode()] == frame.numbers[atom]
            for name, values in (("pos", frame.positions), ("force", frame.forces)):
                assert (values is not None) == (name in columns)
                if values is not None:
                    numbers = words[columns[name] : columns[name] + 3]
                    assert list(map(float, numbers)) == values[atom].tolist()
        for key, value in ((b"energy", frame.energy), (b"lattice", frame.cell)):
            if value is not None and np.any(value):
                assert np.ravel(value).tolist() in numbers_after(key, comment)
        lines[frame.line - 1 : frame.line + 1 + len(frame)] = [b""] * (2 + len(frame))
    assert not b"".join(lines).strip()


ATOM_LINES = "Si 0.5 1.0 -1.5 0.1 -0.2 0.3\nGe 2.0 2.5 3.0 -0.1 0.2 -0.3\n"
VALID = (
    '2\nenergy=-3.5 Lattice="4 0 0 0 5 0 0 0 6" virial="1 2 3 2 5 6 3 6 9" weight=2.0 '
    f'pbc="T T F" config_type=a/b Properties=species:S:1:pos:R:3:forces:R:3\n{ATOM_LINES}'
    f'2\nenergy = 1e2 stress="0 0 0 0 0 0 0 0 0" Lattice="4 0 0 0 5 0 0 0 6" '
    f"Properties=species:S:1:pos:R:3:forces:R:3\n{ATOM_LINES}"
).encode()
PIECES = st.one_of(
    st.sampled_from([b"", b" ", b"\n", b"\r\n", b"\t", b"=", b'"', b"'", b"-", b".", b"_", b"e"]),
    st.sampled_from([b"\x00", b"\xff", b"\x0b", b"\x1c", b"\x85", b"\xc2\xa0", b"[", b"{"]),
    st.sampled_from([b"nan", b"9" * 30, b"1e400", b"energy="]),
    st.binary(max_size=4),
    st.integers(0, len(VALID)).map(lambda start: VALID[start : start + 60]),
)


@settings(
    max_examples=300,
    derandomize=True,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    st.lists(st.tuples(st.integers(0, len(VALID)), st.integers(0, 5), PIECES), max_size=3),
    st.integers(0, len(VALID)),
)
@example([], len(VALID))
@example([(0, 0, b"\xef\xbb\xbf")], len(VALID))
def test_any_damage(tmp_path, changes, end):
    """Whatever the bytes: the words of the file, or a UserError; never another exception."""
    data = VALID
    for start, length, piece in changes:
        data = data[:start] + piece + data[start + length :]
    if not changes:
        data = data[:end]
    path = tmp_path / "damaged.xyz"
    path.write_bytes(data)
    try:
        frames = read_xyz(path)
    except UserError as error:
        assert str(path) in str(error) and str(error).count("\n") <= 1
    else:
        assert_same_lines(data, frames)


@pytest.mark.slow
def test_speed(tmp_path):
    """Six times as fast as ASE on frames of 64 atoms: processor time, best of several runs."""
    io = pytest.importorskip("ase.io")
    path = write_random(tmp_path / "random.xyz", 0, 300, num_atoms=64)

    def processor_time(read):
        start = time.process_time()
        assert len(read()) == 300
        return (time.process_time() - start) / 300

    ours, theirs = [], []
    for _ in range(10):
        ours += [processor_time(lambda: read_xyz(path)) for _ in range(10)]
        theirs.append(processor_time(lambda: io.read(path, ":")))
    print(f"{min(ours) * 1e6:.0f} us a frame, ASE {min(theirs) * 1e6:.0f} us")
    assert min(theirs) > 6 * min(ours)
