"""`nepkit check`: every planted fault is found, with its frame and line, and nothing else is."""

import gzip
import re
import time
from dataclasses import replace

import numpy as np
import pytest
import torch
from run_files import Labelled, contents, make_run, random_frame, write_xyz
from structures import model_settings, shared

from nepkit import train_nep
from nepkit.cli import main
from nepkit.data.prepared import prepare
from nepkit.data.xyz import read_xyz
from nepkit.doctor import check_data
from nepkit.doctor.findings import KINDS, NOTE
from nepkit.doctor.groups import COMPARED
from nepkit.doctor.summary import ANGULAR_BYTES, PAIR_BYTES, ROW_BYTES

# Where a fault is planted among so many sound frames.
PLACE, COUNT = 17, 30


def sound_frames(count: int, first_seed: int = 0, **changes) -> list[Labelled]:
    """Frames that nobody could object to."""
    return [random_frame(first_seed + k, n_atoms=2 + k % 2, **changes) for k in range(count)]


def line_of(frames: list[Labelled], index: int) -> int:
    return 1 + sum(len(frame.symbols) + 2 for frame in frames[:index])


def concerns(checked, *also):
    """(kind, file, frame, line) of all findings but notes, those of kinds ``also`` among them."""
    return [
        (finding.kind, finding.path.rsplit("/", 1)[-1], finding.frame, finding.line)
        for finding in checked.findings
        if finding.severity != NOTE or finding.kind in also
    ]


def unwrapped(checked) -> str:
    return " ".join(checked.text().split())


def near(frame, distance):
    positions = frame.positions.copy()
    positions[1] = positions[0] + [0, 0, distance]
    return replace(frame, positions=positions)


def with_force(frame, size):
    """One large force, balanced by another."""
    forces = frame.forces.copy()
    forces[0] += [size, 0, 0]
    forces[1] -= [size, 0, 0]
    return replace(frame, forces=forces)


FAULTS = {
    "hartree": (lambda f: replace(f, energy=f.energy / 27.2114 - 400), "energy", "eV/atom off"),
    "energy of one atom": (
        lambda f: replace(f, energy=f.energy - 60.0), "energy", "of the whole cell",
    ),
    "odd energy": (lambda f: replace(f, energy=f.energy + 8.0), "odd energy", "eV/atom, +"),
    "huge force": (lambda f: with_force(f, 180.0), "huge force", "the largest force is 1"),
    "large force": (lambda f: with_force(f, 50.0), "large force", "the largest force is "),
    "net force": (
        lambda f: replace(f, forces=f.forces + [0.1, 0, 0]), "net force",
        "the forces add up to 0.100 eV/Å an atom",
    ),
    "huge pressure": (
        lambda f: replace(f, virial=700 * np.eye(3)), "huge pressure", "is it in eV",
    ),
    "large pressure": (lambda f: replace(f, virial=-70 * np.eye(3)), "large pressure", "GPa"),
    "too close": (lambda f: near(f, 0.6), "too close", r"atoms 0 and 1 \(from 0\), Si and Ge, are 0.60"),
    "close": (lambda f: near(f, 1.3), "close", "1.30 Å apart, 0.4"),
    "given twice": (lambda f: near(f, 0.0), "refused", "take one of them out"),
    "cell in nm": (
        lambda f: replace(f, cell=0.01 * f.cell, virial=None), "refused", "is Lattice in Å",
    ),
    "no energy known": (lambda f: replace(f, energy=0.0), "zero", "the energy is exactly 0"),
    "no virial known": (lambda f: replace(f, virial=np.zeros((3, 3))), "zero", "the virial is"),
}  # fmt: skip


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_found_in_its_place(tmp_path, name):
    plant, kind, text = FAULTS[name]
    frames = sound_frames(COUNT)
    frames[PLACE] = plant(frames[PLACE])
    write_xyz(tmp_path / "data.xyz", frames)
    checked = check_data(tmp_path / "data.xyz")
    expected = (kind, "data.xyz", PLACE, line_of(frames, PLACE))
    found = concerns(checked)
    # An energy of 0 is odd too, and atoms in one place may tell more.
    assert expected in found and {entry[2] for entry in found} == {PLACE}
    assert len(found) == 1 or name == "no energy known"
    (said,) = [str(f) for f in checked.findings if f.kind == kind]
    assert said.startswith(f"data.xyz, frame {PLACE}, line {expected[3]}: ")
    assert re.search(text, said)


def test_sound_frames_give_no_findings(tmp_path):
    write_xyz(tmp_path / "data.xyz", sound_frames(COUNT))
    assert concerns(check_data(tmp_path / "data.xyz")) == []


def test_units_of_energy_are_guessed(tmp_path):
    frames = [replace(f, energy=100 * f.energy) for f in sound_frames(COUNT)]
    frames[3] = replace(frames[3], energy=frames[3].energy / 27.2114)
    frames[4] = replace(frames[4], energy=frames[4].energy / 13.6057)
    frames[5] = replace(frames[5], energy=frames[5].energy / len(frames[5].symbols))
    write_xyz(tmp_path / "data.xyz", frames)
    said = {
        f.frame: f.text for f in check_data(tmp_path / "data.xyz").findings if f.kind == "energy"
    }
    assert "it looks like hartree" in said[3] and "it looks like rydberg" in said[4]
    assert "it looks like the energy of one atom" in said[5] and set(said) == {3, 4, 5}


def test_many_wrong_energies_do_not_hide_each_other(tmp_path):
    """A fifth of the frames in another unit, which a plain least-squares fit follows."""
    frames = [replace(f, energy=50 * f.energy) for f in sound_frames(50)]
    wrong = list(range(0, 50, 5))
    for k in wrong:
        frames[k] = replace(frames[k], energy=frames[k].energy / 27.2114)
    write_xyz(tmp_path / "data.xyz", frames)
    found = concerns(check_data(tmp_path / "data.xyz"))
    assert [entry[2] for entry in found if entry[0] == "energy"] == wrong


def test_an_energy_unlike_its_composition(tmp_path):
    """Half an eV that the spread over compositions would hide."""
    generator = np.random.default_rng(3)
    frames = [
        random_frame(k, symbols=("Si",) if k < 20 else ("Si", "Ge"), n_atoms=2 + k % 2)
        for k in range(60)
    ]
    frames = [
        replace(f, energy=len(f.symbols) * (-5 + 0.01 * generator.normal() + 0.6 * (k >= 20) * generator.normal()))
        for k, f in enumerate(frames)
    ]  # fmt: skip
    frames[7] = replace(frames[7], energy=frames[7].energy + 0.8 * len(frames[7].symbols))
    write_xyz(tmp_path / "data.xyz", frames)
    checked = check_data(tmp_path / "data.xyz")
    assert concerns(checked) == [("odd energy", "data.xyz", 7, line_of(frames, 7))]
    assert "from the median of the 20 frames of Si" in unwrapped(checked)


def strained_crystal(seed: int, sign: float = 1.0) -> Labelled:
    """A crystal somewhat compressed or stretched, whose virial answers to that."""
    generator = np.random.default_rng(seed)
    strain = generator.uniform(-0.04, 0.04)
    virial = sign * (-60.0 * strain * np.eye(3) + 0.02 * np.eye(3) * generator.normal())
    cell = (1 + strain) * 4.2 * np.eye(3)
    places = np.array([[0, 0, 0], [0, 0.5, 0.5], [0.5, 0, 0.5], [0.5, 0.5, 0]])
    positions = places @ cell + 0.05 * generator.normal(size=(4, 3))
    return random_frame(seed, n_atoms=4, positions=positions, cell=cell, virial=virial)


def test_a_virial_of_the_wrong_sign_is_found(tmp_path):
    frames = [strained_crystal(k) for k in range(40)]
    write_xyz(tmp_path / "data.xyz", frames)
    assert concerns(check_data(tmp_path / "data.xyz")) == []
    strains = [abs(frame.virial[0, 0]) for frame in frames]
    odd = int(np.argmax(strains))
    frames[odd] = strained_crystal(odd, -1.0)
    write_xyz(tmp_path / "data.xyz", frames)
    assert concerns(check_data(tmp_path / "data.xyz")) == [
        ("sign", "data.xyz", odd, line_of(frames, odd))
    ]


def test_all_virials_of_the_wrong_sign_are_found(tmp_path):
    write_xyz(tmp_path / "data.xyz", [strained_crystal(k, -1.0) for k in range(20)])
    checked = check_data(tmp_path / "data.xyz")
    assert concerns(checked) == [("sign", "data.xyz", None, None)]
    assert "20 frames of SiGe rise with the volume" in next(
        f.text for f in checked.findings if f.kind == "sign"
    )


def moved_about(frame: Labelled) -> Labelled:
    """The same structure: atoms in another order, shifted and wrapped, the crystal turned."""
    turn = np.linalg.qr(np.random.default_rng(1).normal(size=(3, 3)))[0]
    order = np.arange(len(frame.symbols))[::-1]
    fractional = frame.positions @ np.linalg.inv(frame.cell) + [0.3, 0.4, 0.5]
    return Labelled(
        tuple(frame.symbols[k] for k in order), ((fractional % 1.0) @ frame.cell @ turn)[order],
        frame.cell @ turn, frame.energy, (frame.forces @ turn)[order], turn.T @ frame.virial @ turn,
    )  # fmt: skip


@pytest.mark.parametrize("change", [lambda f: f, moved_about])
def test_duplicates_are_found(tmp_path, change):
    frames = sound_frames(COUNT)
    frames.append(change(frames[4]))
    write_xyz(tmp_path / "data.xyz", frames)
    checked = check_data(tmp_path / "data.xyz")
    assert concerns(checked) == [("duplicate", "data.xyz", COUNT, line_of(frames, COUNT))]
    assert "the same structure as frame 4" in checked.text()


def test_a_displaced_atom_makes_another_structure(tmp_path):
    """0.01 Å, as for phonons, in a crystal of such symmetry that distances change by squares."""
    a = 5.6 * np.eye(3)
    fcc = np.array([[0, 0, 0], [0, 0.5, 0.5], [0.5, 0, 0.5], [0.5, 0.5, 0]])
    positions = np.concatenate([fcc + s for s in np.ndindex(2, 2, 2)]) @ a
    frames = []
    for step in (0.0, 0.01, 0.02):
        displaced = positions.copy()
        displaced[0, 0] += step
        forces = np.zeros_like(positions)
        frames.append(Labelled(("Si",) * 32, displaced, 2 * a, -160.0, forces, 0.1 * np.eye(3)))
    write_xyz(tmp_path / "data.xyz", frames)
    found = {f.kind for f in check_data(tmp_path / "data.xyz").findings}
    assert "duplicate" not in found
    write_xyz(
        tmp_path / "data.xyz", [*frames, replace(frames[1], positions=frames[1].positions + 1e-7)]
    )
    checked = check_data(tmp_path / "data.xyz")
    assert [f.frame for f in checked.findings if f.kind == "duplicate"] == [3]


def ordered(sites: str) -> Labelled:
    """An alloy on the 16 sites of a bcc lattice."""
    corners = np.array(list(np.ndindex(2, 2, 2)), float)
    positions = 3.2 * (corners[:, None] + np.array([[0, 0, 0], [0.5, 0.5, 0.5]])).reshape(-1, 3)
    symbols = tuple(("Ta", "W")[int(site)] for site in sites)
    return Labelled(symbols, positions, 6.4 * np.eye(3), -200.0, None, None)


def test_an_alloy_in_another_order_is_another_structure(tmp_path):
    """Orders with equal numbers of pairs of each kind at every distance."""
    frames = [ordered("0011011001110010"), ordered("0111010011101000")]
    frames.append(ordered("0011011001110010"[::-1]))  # the first, inverted
    write_xyz(tmp_path / "data.xyz", frames)
    checked = check_data(tmp_path / "data.xyz")
    marks = checked.facts[0].fingerprint
    assert marks[0, 0] == pytest.approx(marks[1, 0], rel=1e-9)
    found = [f for f in checked.findings if f.kind in ("duplicate", "conflict")]
    assert [(f.frame, f.text) for f in found] == [(2, "the same structure as frame 0")]


def test_one_structure_with_two_energies(tmp_path):
    frames = sound_frames(COUNT)
    frames.append(replace(frames[4], energy=frames[4].energy + 0.1))
    write_xyz(tmp_path / "data.xyz", frames)
    checked = check_data(tmp_path / "data.xyz")
    assert concerns(checked) == [("conflict", "data.xyz", COUNT, line_of(frames, COUNT))]
    assert "the energies differ by +0.050 eV/atom" in unwrapped(checked)


def test_many_copies_are_all_found(tmp_path):
    frames = [*sound_frames(8), *[random_frame(2, n_atoms=2)] * (3 * COMPARED)]
    write_xyz(tmp_path / "data.xyz", frames)
    found = [f.frame for f in check_data(tmp_path / "data.xyz").findings if f.kind == "duplicate"]
    assert sorted(found) == list(range(8, len(frames)))


def test_a_run_directory(tmp_path):
    """nep.in's elements and cutoffs, test.xyz too, and frames that are in both."""
    train = sound_frames(COUNT)
    test = [*sound_frames(4, first_seed=90), train[11], with_force(random_frame(70), 200.0)]
    train.append(random_frame(60, symbols=("Si", "C")))
    folder = make_run(tmp_path / "run", train, test, type="3 Si Ge Sn", cutoff="3.5 3")
    checked = check_data(folder)
    assert sorted(concerns(checked)) == [
        ("huge force", "test.xyz", 5, line_of(test, 5)),
        ("overlap", "test.xyz", 4, line_of(test, 4)),
        ("type", "train.xyz", COUNT, line_of(train, COUNT)),
    ]
    said = unwrapped(checked)
    assert "cutoffs of nep.in: 3.5 and 3 Å" in said
    assert "the same structure as train.xyz, frame 11" in said
    # nep.in says batch 2; the step time is an estimate and says so.
    assert re.search(r"very roughly \d+ ms a step of 2 frames", said)
    assert "C is not in the type line" in said and "in no frame: Sn" in said


def test_notes(tmp_path):
    frames = sound_frames(COUNT, extra='pbc="T T T"')
    frames[3] = replace(frames[3], extra='pbc="T T F"')
    lonely = random_frame(5, symbols=("Si", "Kr"), n_atoms=2, cell=30 * np.eye(3))
    frames[9] = replace(lonely, positions=np.array([[0.0, 0, 0], [15, 15, 15]]))
    write_xyz(tmp_path / "data.xyz", frames)
    said = {f.kind: str(f) for f in check_data(tmp_path / "data.xyz").findings}
    assert said["open"].startswith(f"data.xyz: 1 of {COUNT} frames, the first 3: not periodic")
    assert said["isolated"] == f"data.xyz, frame 9, line {line_of(frames, 9)}: 2 of 2 atoms"
    assert f"{COUNT - 1} of {COUNT} frames" in said["thin"]
    assert "in fewer than 5 frames: Kr 1" in said["rare"]
    assert "3 of 6 pairs: Si-Kr, Ge-Kr, Kr-Kr" in said["unseen"]


def test_crowded_neighbourhoods(tmp_path):
    folder = make_run(tmp_path / "run", cutoff="15 3")
    said = {f.kind: f for f in check_data(folder).findings}
    assert "GPUMD's MD refuses more than 819" in said["neighbors"].text


def test_the_report(tmp_path, capsys):
    frames = [random_frame(k, n_atoms=3) for k in range(60)]
    for k in range(10):
        frames[3 * k] = with_force(frames[3 * k], 120.0 + 10 * k)
    write_xyz(tmp_path / "data.xyz", frames)
    assert main(["check", str(tmp_path / "data.xyz")]) == 0
    told = capsys.readouterr().out
    rows = told.splitlines()
    assert max(map(len, rows)) <= 100
    assert "serious: huge force (10)" in rows and "  and 7 more (--all shows them)" in rows
    # The largest first.
    places = [int(n) for n in re.findall(r"frame (\d+), line \d+: the largest force", told)]
    assert places == [27, 24, 21]
    assert "60 frames, 180 atoms" in told and "cutoffs (no nep.in: the default): 8 and 4 Å" in told
    assert main(["check", str(tmp_path / "data.xyz"), "--all"]) == 0
    assert capsys.readouterr().out.count("the largest force is") == 10


def test_max_force(tmp_path):
    frames = [random_frame(k, n_atoms=3) for k in range(20)]
    frames[8] = with_force(frames[8], 15.0)
    write_xyz(tmp_path / "data.xyz", frames)
    assert concerns(check_data(tmp_path / "data.xyz")) == []
    found = concerns(check_data(tmp_path / "data.xyz", max_force=10.0))
    assert found == [("huge force", "data.xyz", 8, line_of(frames, 8))]


def test_the_worst_kinds_come_first(tmp_path):
    frames = sound_frames(COUNT)
    frames[2], frames[5], frames[7] = (
        near(frames[2], 1.3),
        near(frames[5], 0.0),
        near(frames[7], 0.6),
    )
    write_xyz(tmp_path / "data.xyz", frames)
    titles = re.findall(
        "^(?:serious|suspicious|note): (.*) \\(",
        check_data(tmp_path / "data.xyz").text(),
        re.MULTILINE,
    )
    order = [title for _, title in KINDS.values()]
    assert titles == sorted(titles, key=order.index)
    assert titles[:3] == [
        "training refuses the frame",
        "atoms on top of each other",
        "atoms close to each other",
    ]


@pytest.mark.parametrize("ending", ["\n", "\r\n"])
@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_clean_copies_are_verbatim(tmp_path, ending, suffix, capsys):
    """All bytes of the other frames, odd spacing, comments and blank lines included."""
    frames = sound_frames(12)
    for k in (0, 7, 8):
        frames[k] = near(frames[k], 0.0 if k == 7 else 0.3)
    frames[3] = replace(frames[3], extra='note="a  b"   other=1')
    texts = [frame.text().replace("\n", ending) for frame in frames]
    texts[4] = ending + texts[4].replace("Si ", "Si\t  ")
    source, target = tmp_path / f"data.xyz{suffix}", tmp_path / "new" / f"clean.xyz{suffix}"
    opened = gzip.open if suffix else open
    with opened(source, "wb") as file:
        file.write("".join(texts).encode())
    assert main(["check", str(source), "--write", str(target)]) == 0
    assert "9 of 12 frames (without 0, 7, 8)" in capsys.readouterr().out
    with opened(target, "rb") as file:
        assert file.read() == "".join(t for k, t in enumerate(texts) if k not in (0, 7, 8)).encode()
    assert len(read_xyz(target)) == 9
    # Our own file may be written again; one that was changed since may not.
    assert main(["check", str(source), "--write", str(target)]) == 0
    with opened(target, "ab") as file:
        file.write(b"\n")
    before = contents(target.parent)
    assert main(["check", str(source), "--write", str(target)]) == 2
    assert "changed since nepkit wrote it" in capsys.readouterr().err
    assert contents(target.parent) == before


def test_clean_copies_overwrite_nobodys_file(tmp_path, capsys):
    write_xyz(tmp_path / "data.xyz", sound_frames(5))
    (tmp_path / "mine.xyz").write_text("mine")
    for name, told in (
        ("data.xyz", "is the file that is copied"),
        ("mine.xyz", "not written by nepkit"),
    ):
        before = (tmp_path / name).read_bytes()
        assert main(["check", str(tmp_path / "data.xyz"), "--write", str(tmp_path / name)]) == 2
        said = capsys.readouterr().err
        assert told in said and "--out" not in said and said.count("\n") <= 2
        assert (tmp_path / name).read_bytes() == before


def test_a_clean_copy_is_data_of_the_run_and_not_its_result(tmp_path):
    """--restart moves the files of the old run away, but not the data that were written there."""
    source = make_run(tmp_path / "raw", sound_frames(6))
    folder = tmp_path / "run"
    assert main(["check", str(source), "--write", str(folder / "train.xyz")]) == 0
    (folder / "nep.in").write_bytes((source / "nep.in").read_bytes())
    train_nep(folder, device="cpu")
    train_nep(folder, device="cpu", restart=True)
    assert (folder / "train.xyz").exists()


def test_an_energy_off_by_an_electronvolt_is_found(tmp_path):
    """Where the others lie within some hundredths, and elements have different energies."""
    generator, energies = np.random.default_rng(5), {"Si": -5.4, "Ge": -4.5}
    frames = [random_frame(k, n_atoms=3 + k % 4) for k in range(80)]
    usual = [
        sum(map(energies.get, f.symbols)) + 0.06 * len(f.symbols) * generator.normal()
        for f in frames
    ]
    for shifts in ({}, {11: 1.0, 40: -1.0}):
        shifted = [
            replace(f, energy=usual[k] + shifts.get(k, 0.0) * len(f.symbols))
            for k, f in enumerate(frames)
        ]
        write_xyz(tmp_path / "data.xyz", shifted)
        found = check_data(tmp_path / "data.xyz").findings
        assert sorted(f.frame for f in found if "energy" in f.kind) == sorted(shifts)


def test_clean_copies_lack_suspicious_frames_too(tmp_path, capsys):
    """Of equal structures the first stays; frames that only notes are on stay as well."""
    frames = sound_frames(COUNT)
    frames[9] = frames[2]
    frames[4] = near(frames[4], 0.3)
    alone = random_frame(90, n_atoms=1, symbols=("Si",))
    write_xyz(tmp_path / "data.xyz", [*frames, alone])
    target = tmp_path / "clean.xyz"
    assert main(["check", str(tmp_path / "data.xyz"), "--write", str(target)]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert f"{COUNT - 1} of {COUNT + 1} frames (without 4, 9): 1 serious, 1 suspicious" in said
    assert target.read_text() == "".join(
        frame.text() for k, frame in enumerate([*frames, alone]) if k not in (4, 9)
    )


def test_nothing_is_left_to_write(tmp_path, capsys):
    write_xyz(tmp_path / "data.xyz", [near(random_frame(k), 0.0) for k in range(3)])
    assert main(["check", str(tmp_path / "data.xyz"), "--write", str(tmp_path / "c.xyz")]) == 2
    assert "every frame is serious or suspicious" in capsys.readouterr().err


def test_atoms_alone_are_nothing_odd(tmp_path):
    """Their energies are far from those of crystals, and their virials are 0."""
    frames = sound_frames(COUNT)
    alone = random_frame(3, n_atoms=1, cell=20 * np.eye(3), energy=-0.8, virial=np.zeros((3, 3)))
    far_apart = replace(
        random_frame(3, n_atoms=2, cell=30 * np.eye(3), energy=-1.5, virial=np.zeros((3, 3))),
        positions=np.array([[0.0, 0, 0], [15, 15, 15]]),
    )
    write_xyz(tmp_path / "data.xyz", [*frames, replace(alone, forces=np.zeros((1, 3))), far_apart])
    assert concerns(check_data(tmp_path / "data.xyz")) == []


def test_few_frames_of_many_elements_are_not_judged(tmp_path):
    """A fit of more numbers than there are energies leaves no scale to judge by."""
    pairs = [("H", "Li"), ("Be", "B"), ("C", "N"), ("O", "F"), ("Na", "Mg"), ("Na", "Mg")]
    frames = [
        random_frame(k, symbols=pair, n_atoms=2, energy=-10.0 * k) for k, pair in enumerate(pairs)
    ]
    write_xyz(tmp_path / "data.xyz", frames)
    kinds = {f.kind for f in check_data(tmp_path / "data.xyz").findings}
    assert not kinds & {"energy", "odd energy"}


def test_data_without_any_label(tmp_path):
    frames = [replace(f, energy=None, forces=None, virial=None) for f in sound_frames(4)]
    write_xyz(tmp_path / "data.xyz", frames)
    checked = check_data(tmp_path / "data.xyz")
    assert concerns(checked) == [("refused", "data.xyz", None, None)]
    assert "no frame has an energy" in checked.text()


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    "frames",
    [
        [random_frame(0, n_atoms=1)],
        [random_frame(0, n_atoms=1, cell=None, virial=None)],
        [random_frame(0, forces=None), random_frame(1, energy=None, virial=None)],
        [random_frame(k, cell=None, virial=None, energy=None) for k in range(3)],
        [replace(random_frame(0, n_atoms=1), cell=20 * np.eye(3))] * 2,
    ],
)
def test_odd_data_are_no_trouble(tmp_path, frames):
    write_xyz(tmp_path / "data.xyz", frames)
    text = check_data(tmp_path / "data.xyz").text(everything=True)
    assert "nan" not in text and "inf" not in text.replace("information", "")


def test_the_estimate_of_memory_is_that_of_a_run(tmp_path):
    write_xyz(tmp_path / "data.xyz", sound_frames(COUNT))
    settings = model_settings(("Si", "Ge"), 8.0, 4.0)
    frames = read_xyz(tmp_path / "data.xyz")
    structures = prepare(frames, settings, device="cpu", dtype=torch.float32).structures
    facts = check_data(tmp_path / "data.xyz").facts[0]
    sums = [
        int(values.sum()) for values in (facts.n_atoms, facts.rows, facts.pairs, facts.angulars)
    ]
    assert sums == structures.counts.sum(0).tolist()
    _, rows, pairs, angulars = sums
    lists = rows * ROW_BYTES + pairs * PAIR_BYTES + angulars * ANGULAR_BYTES
    assert lists == pytest.approx(structures.bytes(), rel=0.05)


def test_a_large_file_takes_seconds_and_little_memory(tmp_path):
    """5,000 frames; 200,000 then take a minute and a half."""
    frames = sound_frames(1000)
    text = "".join(frame.text() for frame in frames)
    (tmp_path / "data.xyz").write_text(text * 5)
    started = time.perf_counter()
    checked = check_data(tmp_path / "data.xyz")
    assert time.perf_counter() - started < 30
    assert len([f for f in checked.findings if f.kind == "duplicate"]) == 4000
    kept = sum(array.nbytes for array in checked.facts[0].frame.values())
    assert (kept + checked.facts[0].counts.nbytes) / 5000 < 1000


def test_unreadable_input_ends_with_code_2(tmp_path, capsys):
    (tmp_path / "data.xyz").write_text(random_frame(0).text() + "2\nenergy=1\n")
    assert main(["check", str(tmp_path / "data.xyz")]) == 2
    assert "data.xyz, frame 1, line" in capsys.readouterr().err
    assert main(["check", str(tmp_path / "none.xyz")]) == 2
    assert main(["check", str(tmp_path)]) == 2
    assert "nep.in" in capsys.readouterr().err
    assert main(["check", str(tmp_path / "data.xyz"), "--max-force", "x"]) == 2
    assert "--max-force x: give a number above 0" in capsys.readouterr().err


def test_real_data():
    checked = check_data(shared("data/c_multi/subset89_train.xyz"))
    assert not checked.frames(checked.facts[0].path, "serious")
    assert len(concerns(checked)) < 10
    assert max(map(len, checked.text(everything=True).splitlines())) <= 100
    # Strains of a crystal that symmetry makes the same, and alloys that are not.
    found = check_data(shared("data/b_alloy/nbmotaw_train.xyz")).findings
    assert {f.kind for f in found} == {"duplicate", "thin", "odd energy"}
    assert sum(f.kind == "odd energy" for f in found) < 10  # 0.6 to 0.9 eV/atom off, usual 0.04
    assert "the same structure as frame 18" in [f.text for f in found if f.frame == 79]


@pytest.mark.parametrize("name", ["data/b_alloy/nbmotaw_train.xyz", "data/own_dft/sige_train.xyz"])
def test_the_sign_of_real_virials(tmp_path, name):
    """They have the right one; turned around, that is found."""
    text = shared(name).read_text()
    turned = re.sub(
        r'virial="([^"]*)"',
        lambda match: 'virial="' + " ".join(f"{-float(x):.8g}" for x in match[1].split()) + '"',
        text,
    )
    for content, wrong in ((text, False), (turned, True)):
        (tmp_path / "data.xyz").write_text(content)
        kinds = [f.kind for f in check_data(tmp_path / "data.xyz").findings]
        assert ("sign" in kinds) == wrong
