"""The scripts and examples run as a user would run them."""

import contextlib
import importlib
import importlib.util
import json
import os
import re
import subprocess
import sys
import tarfile
import warnings
from concurrent.futures import Future
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

import numpy as np
import pytest
from ase.build import bulk as crystal_of
from ase.io import read
from run_files import make_run, random_frames
from shares import environment
from structures import random_file
from test_calculator import SETTINGS, bulk

from nepkit import NEPCalculator
from nepkit.cli import main
from nepkit.model.nep_txt_write import write_nep_txt

ROOT = Path(__file__).resolve().parents[1]
SIGE = ROOT / "data" / "sige"


def run(script, *arguments, code=0, folder=None):
    """Output of a script of this repository, its errors where they are expected."""
    command = [sys.executable, str(ROOT / script), *map(str, arguments)]
    done = subprocess.run(
        command, check=False, capture_output=True, text=True, env=environment(), timeout=300,
        cwd=folder,
    )  # fmt: skip
    assert done.returncode == code, done.stderr
    return done.stdout if code == 0 else done.stderr


def script(name):
    """A script as a module."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "scripts" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A folder with a potential of a few steps, and what its training printed."""
    folder = tmp_path_factory.mktemp("trained")
    return folder, run("examples/train.py", SIGE, folder, 20)


def test_examples_train_and_predict(trained):
    folder, printed = trained
    train, test = printed.splitlines()[-2:]
    assert train.startswith("train: forces ")
    assert test.startswith("test: forces ")
    printed = run("examples/predict.py", folder / "nep.txt", SIGE / "test.xyz").splitlines()
    # The example predicts what the training reported.
    assert f"forces {test.split()[2]} meV/Å" in printed
    assert printed[0].endswith("over 25 frames")
    assert sum(line.startswith("frame ") for line in printed) == 5


@pytest.fixture(scope="module")
def crystal(tmp_path_factory):
    """A potential of random numbers, a primitive cell and a folder to work in."""
    folder = tmp_path_factory.mktemp("examples")
    write_nep_txt(folder / "nep.txt", random_file(SETTINGS))
    bulk(repeat=1).write(folder / "cell.xyz")
    bulk(repeat=2).write(folder / "crystal.xyz")
    return folder


def test_example_of_a_relaxation(crystal):
    printed = run("examples/relax.py", crystal / "nep.txt", crystal / "cell.xyz", folder=crystal)
    relaxed = read(crystal / "relaxed.xyz")
    calculator = NEPCalculator(crystal / "nep.txt", device="cpu", precision="float64")
    energy = calculator.get_property("energy", relaxed)
    assert f"energy {energy / 2:.5f} eV/atom" in printed
    assert energy < calculator.get_property("energy", read(crystal / "cell.xyz")) - 0.01


def test_example_of_dynamics(trained, tmp_path):
    silicon = tmp_path / "silicon.xyz"
    crystal_of("Si", cubic=True).write(silicon)
    model = trained[0] / "nep.txt"
    printed = run("examples/md.py", model, silicon, 100, 20, folder=tmp_path).splitlines()
    langevin, verlet = printed.index("Langevin"), printed.index("VelocityVerlet")
    assert verlet - langevin == len(printed) - verlet == 12
    totals = [float(line.split()[4]) for line in printed[verlet + 1 :]]
    assert max(totals) - min(totals) < 1e-3
    assert len(read(tmp_path / "md.traj", ":")) == 6


def test_example_of_an_equation_of_state(crystal):
    relaxed = crystal / "relaxed.xyz"
    printed = run("examples/equation_of_state.py", crystal / "nep.txt", relaxed, folder=crystal)
    volume = float(re.search(r"volume ([\d.]+)", printed)[1])
    assert volume == pytest.approx(read(relaxed).get_volume() / 2, rel=0.05)
    assert (crystal / "equation_of_state.png").stat().st_size > 10_000


def test_example_of_phonons(crystal):
    relaxed = crystal / "relaxed.xyz"
    printed = run("examples/phonons.py", crystal / "nep.txt", relaxed, 2, folder=crystal)
    assert printed.startswith("6 branches from ")
    assert (crystal / "phonons.png").stat().st_size > 10_000


def test_bench_md_writes_its_rows(crystal):
    printed = run(
        "scripts/bench_md.py", crystal / "nep.txt", crystal / "cell.xyz", "--repeat", 1, 2,
        "--precision", "float64", "--alone", "--rounds", 1, "--seconds", 0.1,
        "--json", crystal / "md.json",
    )  # fmt: skip
    rows = json.loads((crystal / "md.json").read_text())
    assert [row["atoms"] for row in rows] == [2, 2, 16, 16]
    assert rows[0]["program"] == "nepkit" and rows[0]["ratio"] == 1.0
    for row in rows:
        assert row["atom_steps_per_s"] == pytest.approx(row["atoms"] * row["steps_per_s"])
        assert f"{row['steps_per_s']:.2f}" in printed


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


@pytest.fixture
def scripts(monkeypatch):
    """Makes the scripts modules that import each other."""
    monkeypatch.syspath_prepend(ROOT / "scripts")


def variants_of(monkeypatch, folder, *words):
    """The rows of bench_variants on two frames of data/sige."""
    bench = importlib.import_module("bench_variants")
    # In this process, which has torch already, and without a compiler.
    monkeypatch.setattr(bench, "alone", bench.measured)

    def refuse(*_):
        raise RuntimeError("no compiler found\nand more")

    monkeypatch.setattr(bench, "Compiled", refuse)
    words = [
        "--xyz", SIGE / "train.xyz", "--nep-in", SIGE / "nep.in", "--batch", 2,
        "--json", folder / "v.json", *words,
    ]  # fmt: skip
    with warnings.catch_warnings():
        assert bench.main(list(map(str, words))) == 0
    return json.loads((folder / "v.json").read_text())


def test_variants_take_the_same_steps(tmp_path, monkeypatch, capsys, scripts):
    names = ["loop", "bmm", "mulsum compiled"]
    words = ("--variant", ",".join(names), "--steps", 3)
    *rows, compiled = variants_of(monkeypatch, tmp_path, *words)
    assert [row["variant"] for row in [*rows, compiled]] == names
    assert compiled["note"] == "no compiler found" and compiled["loss"] is None
    for row in rows:
        assert row["losses"] == pytest.approx(rows[0]["losses"], rel=1e-4)
        assert (row["frames"], row["steps"], row["loss"]) == (2, 3, row["losses"][-1])
        assert 0 < row["ms_min"] <= row["ms_per_step"]
    assert "does not run here: no compiler found" in capsys.readouterr().out


def test_a_variant_that_aborts_is_named(monkeypatch, scripts):
    bench = importlib.import_module("bench_variants")

    class Pool(contextlib.nullcontext):
        def submit(self, *_):
            future = Future()
            future.set_exception(BrokenProcessPool("terminated abruptly"))
            return future

    monkeypatch.setattr(bench, "ProcessPoolExecutor", lambda *_, **__: Pool(Pool()))
    row = bench.alone(bench.Row("pbte", 1, "cpu", "fused", "float32"))
    assert "does not run here: its process was killed" in bench.table([row])


@pytest.mark.slow
def test_variants_draw_curves(tmp_path, monkeypatch, capsys, scripts):
    bench = importlib.import_module("bench_variants")
    words = ("--steps", 11, "--curves", tmp_path / "c.csv", "--plot", tmp_path / "v.png")
    rows = variants_of(monkeypatch, tmp_path, *words)
    assert [row["variant"] for row in rows[:6]] == list(bench.VARIANTS)
    for row in rows:
        if row["variant"] != "mulsum compiled":
            assert row["losses"] == pytest.approx(rows[0]["losses"], rel=1e-4)
    last = capsys.readouterr().out.strip().splitlines()[-1]
    assert "the first 11 losses" in last and "compiled float32 did not run" in last
    assert float(last.split("fused float32 ")[1]) < 1e-4
    head, *curves = (tmp_path / "c.csv").read_text().splitlines()
    assert head.startswith("step,eager float32,compiled float32,fused") and len(curves) == 11
    for name in ("v.png", "c.png"):
        assert (tmp_path / name).stat().st_size > 10_000


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="needs bash")
def test_confirm_goes_on_and_packs_what_it_found(tmp_path):
    python = tmp_path / "python"
    refuse = 'case "$*" in *nepkit.train*) echo broken; exit 3;; esac'
    python.write_text(f'#!/bin/sh\n{refuse}\nexec "{sys.executable}" "$@"\n')
    python.chmod(0o755)
    done = subprocess.run(
        ["bash", str(ROOT / "scripts" / "confirm_amd.sh"), "found.tar.gz"],
        check=False, capture_output=True, text=True, timeout=300, cwd=tmp_path,
        env={**os.environ, "PYTHON": str(python), "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert done.returncode == 1, done.stderr
    assert "a trial on the CPU" in done.stdout and "\nbroken\n" in done.stdout
    with tarfile.open(tmp_path / "found.tar.gz") as packed:
        names = {name.removeprefix("nepkit-confirm/") for name in packed.getnames()}
        assert {"versions.txt", "variants.txt", "variants.json", "profile.txt"} <= names
        summary = packed.extractfile("nepkit-confirm/summary.txt").read().decode()
    assert summary in done.stdout
    assert "passed: versions" in summary and "passed: variants" in summary
    assert "left out: tests" in summary and "failed: profile (exit code 3" in summary
    assert sorted(path.name for path in tmp_path.iterdir()) == ["found.tar.gz", "python"]


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
