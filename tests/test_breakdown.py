"""Errors by element, source and size, and the largest ones: against sums over frames and atoms."""

import csv
from dataclasses import replace

import numpy as np
import pytest
from run_files import make_run, random_frame, random_frames

from nepkit import train_nep
from nepkit.cli import main
from nepkit.data.xyz import read_xyz

SYMBOLS = {14: "Si", 32: "Ge"}


def rows(path) -> list[dict]:
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A run whose training set has sources, sizes and missing labels."""
    frames = random_frames(7)
    for k, name in enumerate(("hot/0", "hot/mp-1-0", "cold", "cold", "", "hot/2", "cold")):
        frames[k] = replace(frames[k], extra=f"config_type={name}" if name else "")
    frames[2] = replace(frames[2], forces=None, virial=None)
    frames[3] = replace(frames[3], extra="config_type=cold energy_weight=0")
    folder = make_run(tmp_path_factory.mktemp("run"), frames, test=random_frames(2, 40))
    train_nep(folder, device="cpu", precision="float64")
    return folder


def frame_errors(folder):
    """For each frame of the training set its errors by kind, NaN where a label is missing."""
    frames, first = read_xyz(folder / "train.xyz"), 0
    tables = {
        kind: np.loadtxt(folder / f"{kind}_train.out", ndmin=2)
        for kind in ("energy", "force", "virial")
    }
    found = []
    for k, frame in enumerate(frames):
        own = {}
        for kind, table in tables.items():
            row = table[first : first + len(frame)] if kind == "force" else table[k : k + 1]
            predicted, label = np.hsplit(row, 2)
            own[kind] = np.where(label == -1e6, np.nan, predicted - label)
        if frame.energy_weight == 0:
            own["energy"] = own["energy"] * np.nan
        found.append(own)
        first += len(frame)
    return frames, found


def root(parts) -> float:
    values = np.concatenate([np.ravel(part) for part in parts])
    return float(np.sqrt(np.mean(values[~np.isnan(values)] ** 2)))


def test_groups(folder):
    frames, errors = frame_errors(folder)
    written = {
        (row["division"], row["group"], row["kind"]): row
        for row in rows(folder / "errors.csv")
        if row["set"] == "train"
    }
    for division, of in (
        ("source", lambda frame: frame.source.split("/")[0] or "(no config_type)"),
        ("size", lambda frame: f"{len(frame)} atoms"),
        ("all", lambda frame: "all"),
    ):
        names = {of(frame) for frame in frames}
        assert {group for d, group, _ in written if d == division} == names
        for name in names:
            for kind in ("energy", "force", "virial"):
                parts = [e[kind] for frame, e in zip(frames, errors) if of(frame) == name]
                row = written[division, name, kind]
                assert float(row["rmse"]) == pytest.approx(root(parts), abs=1e-7), (name, kind)
                known = sum(int((~np.isnan(part)).sum()) for part in parts)
                assert int(row["labels"]) == known
                assert row["unit"] == ("eV/Å" if kind == "force" else "eV/atom")
    for number, symbol in SYMBOLS.items():
        parts = [e["force"][frame.numbers == number] for frame, e in zip(frames, errors)]
        assert float(written["element", symbol, "force"]["rmse"]) == pytest.approx(root(parts))


def test_largest(folder):
    frames, errors = frame_errors(folder)
    for kind in ("energy", "force", "virial"):
        found = [
            row
            for row in rows(folder / "largest_errors.csv")
            if (row["set"], row["kind"]) == ("train", kind)
        ]
        sizes = {
            k: np.nanmax(np.abs(e[kind]))
            for k, e in enumerate(errors)
            if not np.isnan(e[kind]).all()
        }
        assert [int(row["frame"]) for row in found] == sorted(sizes, key=lambda k: -sizes[k])
        for row in found:
            frame = frames[int(row["frame"])]
            assert abs(float(row["error"])) == pytest.approx(sizes[frame.index], abs=1e-7)
            assert int(row["line"]) == frame.line and row["source"] == frame.source
            if kind == "force":
                component = "xyz".index(row["component"])
                atom = int(row["atom"])
                own = errors[frame.index]["force"][atom, component]
                assert float(row["error"]) == pytest.approx(own, abs=1e-7)
                assert row["element"] == SYMBOLS[int(frame.numbers[atom])]


def test_printed_at_the_end(folder):
    log = (folder / "nepkit.log").read_text()
    end = log[log.index("done:") :]
    # Of the last set: two frames, of 2 and 3 atoms, without sources.
    assert "RMSE on test" in end and "by size" in end and "by source" not in end
    assert "by element" in end and "meV/atom" in end and "meV/Å" in end
    assert "largest errors on test" in end and "atom" in end.split("largest errors")[1]


def test_a_prediction_tells_the_same(folder, tmp_path, capsys):
    """Of the saved model, whose file is read once, a chunk at a time."""
    command = [
        "predict",
        str(folder / "nep.txt"),
        str(folder / "train.xyz"),
        "--out",
        str(tmp_path),
    ]
    assert main([*command, "--device", "cpu", "--precision", "float64"]) == 0
    printed = capsys.readouterr().out
    assert "RMSE on train" in printed and "by source" in printed and "largest errors" in printed
    for name in ("errors", "largest_errors"):
        ours = rows(tmp_path / f"{name}_train.csv")
        wanted = [row for row in rows(folder / f"{name}.csv") if row["set"] == "train"]
        assert len(ours) == len(wanted) > 0
        for one, other in zip(ours, wanted):
            for key in one:
                if key in ("rmse", "mae", "predicted", "error"):
                    assert float(one[key]) == pytest.approx(float(other[key]), abs=1e-6)
                else:
                    assert one[key] == other[key]


def test_many_groups_are_cut_short(tmp_path, capsys):
    frames = [random_frame(k, n_atoms=1 + k, extra=f"config_type=s{k}") for k in range(10)]
    train_nep(make_run(tmp_path / "run", frames), device="cpu")
    printed = capsys.readouterr().out
    assert "by source, the worst 5 of 10" in printed
    sizes = [
        row["group"] for row in rows(tmp_path / "run" / "errors.csv") if row["division"] == "size"
    ]
    assert list(dict.fromkeys(sizes)) == [
        "1 atom", "2 atoms", "3 to 4 atoms", "5 to 8 atoms", "9 to 16 atoms",
    ]  # fmt: skip
