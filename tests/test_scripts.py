"""The scripts and examples run as a user would run them."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from run_files import make_run, random_frames

from nepkit.cli import main

ROOT = Path(__file__).resolve().parents[1]
SIGE = ROOT / "data" / "sige"


def run(script, *arguments, code=0):
    """Output of a script of this repository, its errors where they are expected."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(ROOT / script), *map(str, arguments)]
    done = subprocess.run(
        command, check=False, capture_output=True, text=True, env=environment, timeout=300
    )
    assert done.returncode == code, done.stderr
    return done.stdout if code == 0 else done.stderr


def script(name):
    """A script as a module."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "scripts" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_examples_train_and_predict(tmp_path):
    printed = run("examples/train.py", SIGE, tmp_path, 20)
    train, test = printed.splitlines()[-2:]
    assert train.startswith("train: forces ")
    assert test.startswith("test: forces ")
    printed = run("examples/predict.py", tmp_path / "nep.txt", SIGE / "test.xyz").splitlines()
    # The example predicts what the training reported.
    assert f"forces {test.split()[2]} meV/Å" in printed
    assert printed[0].endswith("over 25 frames")
    assert sum(line.startswith("frame ") for line in printed) == 5


def test_bench_step_writes_its_rows(tmp_path):
    printed = run(
        "scripts/bench_step.py", "--xyz", SIGE / "train.xyz", "--nep-in", SIGE / "nep.in",
        "--batch", 4, "--threads", 1, "--rounds", 1, "--seconds", 0.1, "--json", tmp_path / "s.json",
    )  # fmt: skip
    (row,) = json.loads((tmp_path / "s.json").read_text())
    assert (row["case"], row["batch"], row["device"], row["program"]) == (
        "train",
        4,
        "cpu",
        "nepkit",
    )
    assert 0 < row["ms_min"] <= row["ms_per_step"]
    assert row["ratio"] == 1.0
    lines = (SIGE / "train.xyz").read_text().splitlines()
    atoms, place = 0, 0
    for _ in range(4):
        atoms += int(lines[place])
        place += int(lines[place]) + 2
    assert row["atoms_per_s"] == pytest.approx(1e3 * atoms / row["ms_per_step"])
    assert "1 threads, load" in printed
    if sys.platform == "linux":
        assert row["peak_bytes"] > 0


def test_bench_step_knows_its_cases():
    printed = run("scripts/bench_step.py", "--help")
    assert "pbte, m16, m89, nbmotaw, subset89" in printed.replace("\n", " ")
    assert "unknown case pbt" in run("scripts/bench_step.py", "--case", "pbt", code=1)


def test_the_generator_of_sige_still_makes_these_structures():
    """Structures are made without a DFT code; their numbers of atoms are those of the data."""
    make_sige = script("make_sige")
    made = sorted((name, len(atoms)) for _, atoms, name, _ in make_sige.frames())
    stored = []
    for file in ("train.xyz", "test.xyz"):
        lines = (SIGE / file).read_text().splitlines()
        place = 0
        while place < len(lines):
            name = lines[place + 1].split("config_type=")[1].split()[0]
            stored.append((name, int(lines[place])))
            place += int(lines[place]) + 2
    assert made == sorted(stored)


def test_ablate_compares_settings_and_goes_on(tmp_path, monkeypatch, capsys):
    ablate = script("ablate")
    folder = make_run(tmp_path / "run", random_frames(5), test=random_frames(2, first_seed=40))

    def call(command, **files):  # in this process, which has torch already
        return main(["train", *command[3:]])

    monkeypatch.setattr(ablate.subprocess, "call", call)

    def printed(*arguments) -> str:
        words = [folder, "--out", tmp_path / "out", "--device", "cpu", *arguments]
        monkeypatch.setattr(sys, "argv", ["ablate.py", *map(str, words)])
        capsys.readouterr()
        ablate.main()
        return capsys.readouterr().out

    printed("--seeds", 1, "as it is")
    first = (tmp_path / "out" / "runs.csv").read_text().splitlines()
    text = printed("--seeds", 2, "as it is", "rate: 'learning_rate=5e-3 1e-5'")
    assert "as it is, seed 0:" not in text and "as it is, seed 1:" in text
    rows = (tmp_path / "out" / "runs.csv").read_text().splitlines()
    assert len(rows) == 5 and rows[:2] == first
    errors = np.loadtxt(tmp_path / "out" / "rate-1" / "loss.out")
    row = dict(zip(rows[0].split(","), rows[-1].split(",")))
    assert row["setting"] == "rate" and row["seed"] == "1"
    assert float(row["last force"]) == pytest.approx(1e3 * errors[-1, 8], rel=1e-4)
    assert float(row["train energy"]) == pytest.approx(1e3 * errors[-1, 4], rel=1e-4)
    assert text.strip().endswith((tmp_path / "out" / "table.md").read_text().strip())
    both = [float(r.split(",")[3]) for r in rows[1:] if r.startswith("as it is")]
    line = next(x for x in text.splitlines() if x.startswith("| as it is"))
    mean, deviation = line.split("|")[3].split("±")
    assert float(mean) == pytest.approx(np.mean(both), rel=1e-3)
    assert float(deviation) == pytest.approx(np.std(both, ddof=1), rel=1e-2)
    # Other keywords under the same name begin anew.
    assert "rate, seed 0:" in printed("--seeds", 1, "rate: generation=3")
    assert len((tmp_path / "out" / "runs.csv").read_text().splitlines()) == 5
