"""``nepkit prepare``: stores made ahead, and subsets cut out of large files."""

import gzip
from collections import Counter

import numpy as np
import pytest
from run_files import contents, make_run, random_frame, random_frames, write_xyz

from nepkit import UserError, cli, train_nep
from nepkit.data.xyz import read_xyz
from nepkit.prepare import prepare_run, write_subset
from nepkit.units import ELEMENTS


@pytest.fixture
def large(tmp_path):
    """100 frames: 60 of SiGe, 25 of Si2, 10 of Ge2, 3 of Si2Ge, 2 with oxygen."""
    kinds = [("Si", "Ge")] * 60 + [("Si", "Si")] * 25 + [("Ge", "Ge")] * 10
    kinds += [("Si", "Ge", "Si")] * 3 + [("Si", "O")] * 2
    order = np.random.default_rng(0).permutation(len(kinds))
    frames = [random_frame(k, len(kinds[k]), kinds[k]) for k in order.tolist()]
    write_xyz(tmp_path / "large.xyz", frames)
    return tmp_path / "large.xyz"


def texts(path) -> list[str]:
    """Each frame as it is written."""
    lines = path.read_text().splitlines()
    return ["\n".join(lines[f.line - 1 : f.line + 1 + len(f)]) for f in read_xyz(path)]


def formulas(path) -> Counter:
    return Counter("".join(sorted(ELEMENTS[n - 1] for n in f.numbers)) for f in read_xyz(path))


def test_frames_of_some_elements(large, tmp_path, capsys):
    target = tmp_path / "run" / "train.xyz"
    words = ["prepare", str(large), "--elements", "Ge,Si", "--out", str(target)]
    assert cli.main(words) == 0
    said = capsys.readouterr().out
    assert "98 of 100 frames, 4 compositions of Ge, Si" in said
    wanted = [t for t in texts(large) if "O " not in t.split("Properties")[1]]
    assert texts(target) == wanted and len(wanted) == 98
    assert (tmp_path / "run" / "nep.in").read_text() == "type 2 Ge Si\n"
    before = target.read_bytes()
    (tmp_path / "run" / "nep.in").write_text("type 2 Si Ge\ncutoff 4 3\n")
    assert cli.main(words) == 0  # what it made before it may replace
    assert target.read_bytes() == before
    assert "cutoff 4 3" in (tmp_path / "run" / "nep.in").read_text()


@pytest.mark.parametrize(
    ("most", "wanted"),
    [
        (100, {"GeSi": 60, "SiSi": 25, "GeGe": 10, "GeSiSi": 3, "OSi": 2}),
        (20, {"GeSi": 5, "SiSi": 5, "GeGe": 5, "GeSiSi": 3, "OSi": 2}),
        (50, {"GeSi": 18, "SiSi": 17, "GeGe": 10, "GeSiSi": 3, "OSi": 2}),
        (5, {"GeSi": 1, "SiSi": 1, "GeGe": 1, "GeSiSi": 1, "OSi": 1}),
    ],
)
def test_all_compositions_alike(large, tmp_path, most, wanted):
    found = write_subset(large, tmp_path / "out" / "x.xyz", max_frames=most)
    assert formulas(found.path) == wanted
    assert set(texts(found.path)) <= set(texts(large))
    assert found.frames == sum(wanted.values()) and found.compositions == 5


def test_fewer_frames_than_compositions(large, tmp_path):
    found = write_subset(large, tmp_path / "out" / "x.xyz", max_frames=3)
    assert sorted(formulas(found.path).values()) == [1, 1, 1]


def test_spread_over_the_file(tmp_path):
    write_xyz(tmp_path / "long.xyz", random_frames(1, 0) * 100)
    found = write_subset(tmp_path / "long.xyz", tmp_path / "short.xyz", max_frames=4)
    lines = [frame.line for frame in read_xyz(tmp_path / "long.xyz")]
    assert found.frames == 4 and len(lines) == 100
    from nepkit.prepare import _spread

    assert _spread(100, 4) == [12, 37, 62, 87]


def test_compressed_files(large, tmp_path):
    packed = tmp_path / "large.xyz.gz"
    packed.write_bytes(gzip.compress(large.read_bytes()))
    for name in ("a.xyz", "b.xyz.gz"):
        write_subset(packed, tmp_path / name, elements=["Si", "Ge"], max_frames=30)
    assert (
        gzip.decompress((tmp_path / "b.xyz.gz").read_bytes()) == (tmp_path / "a.xyz").read_bytes()
    )


def test_mistakes(large, tmp_path, capsys):
    out = str(tmp_path / "out.xyz")
    for words, said in (
        ([large, "--elements", "Si,Xx", "--out", out], "Xx is not an element"),
        ([large, "--elements", "Cu", "--out", out], "no frame is made of Cu alone"),
        ([large, "--max-frames", "0", "--out", out], "give a number above 0"),
        ([large, "--max-frames", "many", "--out", out], "give a number above 0"),
        ([large, "--max-frames", "3"], "--out FILE.xyz"),
        ([large, "--max-frames", "3", "--out", large], "is the file that is copied"),
        ([large], "give a run directory"),
        ([tmp_path / "none.xyz", "--max-frames", "3", "--out", out], "cannot be read"),
        ([tmp_path, "--max-frames", "3", "--out", out], "not from a folder"),
        ([tmp_path], "nep.in"),
    ):
        assert cli.main(["prepare", *map(str, words)]) == 2
        assert said in capsys.readouterr().err
    assert not (tmp_path / "out.xyz").exists()
    (tmp_path / "out.xyz").write_text("mine")
    with pytest.raises(UserError, match="not written by nepkit"):
        write_subset(large, out, max_frames=3)
    assert (tmp_path / "out.xyz").read_text() == "mine"


def test_a_run_directory(tmp_path, monkeypatch, capsys):
    folder = make_run(tmp_path / "run", random_frames(8), random_frames(3, 20))
    assert cli.main(["prepare", str(folder), "cutoff=4 3.5"]) == 0
    said = capsys.readouterr().out.splitlines()
    assert len(said) == 2 and "8 frames" in said[0] and "3 frames" in said[1]
    paths = prepare_run(folder)
    assert len(set(folder.glob("*.h5"))) == 4  # two for each choice of cutoffs
    wanted = make_run(tmp_path / "other", random_frames(8), random_frames(3, 20))
    train_nep(wanted, device="cpu")
    # The training takes them, small as they are, and comes to the same.
    monkeypatch.setattr("nepkit.data.storing.prepared_pieces", None)
    train_nep(folder, device="cpu")
    same = contents(wanted, "history.csv", "nepkit.log", "checkpoint.pt", "nepkit_run.json")
    assert {name: contents(folder)[name] for name in same} == same
    # They can be deleted at any time.
    monkeypatch.undo()
    for path in paths:
        path.unlink()
    train_nep(folder, device="cpu", restart=True)
    assert (folder / "nep.txt").read_bytes() == same["nep.txt"]
