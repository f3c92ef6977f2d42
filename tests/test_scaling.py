"""scripts/scaling.py: what it measures, and its model of sums over many processes."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from shares import ROOT, environment

SCRIPT = Path(ROOT) / "scripts" / "scaling.py"


def scaling(*words: object) -> str:
    done = subprocess.run(
        [sys.executable, str(SCRIPT), *map(str, words)], capture_output=True, text=True,
        timeout=280, check=False, env=environment(),
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def row(n: int, batch: int, ms: float) -> dict:
    return {
        "processes": n, "batch": batch, "ms": ms, "ms_min": ms, "scatter": 0.0,
        "atoms_per_s": 1.0, "bytes": 1_000_000,
    }  # fmt: skip


def test_the_model_of_sums(tmp_path):
    """Numbers by hand: 20 µs and 100 GB/s within a node, 10 µs and 10 GB/s between nodes."""
    one = {"frames": 10, "strong": 20, "steps": [row(1, 10, 1.0), row(1, 20, 1.8)], "sums": []}
    sums = [{"processes": 2, "bytes": size, "us": 20 + size / 1e5} for size in (0, 10**8)]
    two = {"frames": 10, "strong": 20, "steps": [row(2, 20, 1.1)], "sums": sums}
    (tmp_path / "found.json").write_text(json.dumps([one, two]))
    options = ["--node-latency", "1e-5", "--node-bandwidth", "1e10"]
    printed = scaling("--read", tmp_path / "found.json", *options)
    lines = [line.split() for line in printed.splitlines()]
    (weak,) = [line for line in lines if line[:2] == ["weak", "2"]]
    # 1 ms of work, 20 µs, and 1 MB at 100 GB/s.
    assert weak == ["weak", "2", "20", "1.100", "1.030", "-6%", "0.909"]
    (strong,) = [line for line in lines if line[:2] == ["strong", "2"]]
    assert float(strong[6]) == pytest.approx(1.8 / 2 / 1.1, abs=1e-3)
    on_paper = {int(line[0]): float(line[1]) for line in lines if line and line[0].isdigit()}
    within = 0.02 + 1e3 * 2 * 7 / 8 * 1e6 / 1e11
    assert on_paper[8] == pytest.approx(within, abs=2e-3)
    assert on_paper[64] == pytest.approx(within + 2 * 3 * 0.01 + 0.2, abs=2e-3)


@pytest.mark.slow
def test_scaling_of_two_processes(tmp_path):
    run = Path(ROOT) / "data" / "sige"
    words = ["--device", "cpu", "--frames", 4, "--seconds", 0.5, "--out", tmp_path / "s.json"]
    words += ["--plot", tmp_path / "s.png"]
    printed = scaling(run, *words)
    assert printed.splitlines()[1].split()[:3] == ["weak", "1", "4"]
    assert (tmp_path / "s.png").stat().st_size > 1000
    found = json.loads((tmp_path / "s.json").read_text())
    assert {r["processes"] for part in found for r in part["steps"]} == {1, 2}
    assert all(r["ms"] > 0 for part in found for r in part["steps"]) and found[1]["sums"]
