"""Under torchrun and SLURM's variables: restarts after a crash, none after a signal, one error."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from run_files import make_run
from shares import environment, odd_run, torchrun
from test_resume import assert_same_run

from nepkit.train import checkpoint

pytestmark = pytest.mark.slow

# nepkit train, where the second process comes to grief at its eighth step in the first attempt.
TROUBLE = """
import os, signal, sys
from nepkit import cli
from nepkit.train import loop
rate, calls = loop.learning_rate, []
first = os.environ.get("TORCHELASTIC_RESTART_COUNT") == "0" and os.environ["RANK"] == "1"

def failing(*arguments):
    calls.append(1)
    if first and len(calls) == 8:
        if sys.argv[1] == "bug":
            raise ZeroDivisionError("in the second process")
        os.kill(os.getpid(), getattr(signal, sys.argv[1]))
    return rate(*arguments)

loop.learning_rate = failing
sys.exit(cli.main(["train", *sys.argv[2:], "--device", "cpu"]))
"""


def in_trouble(top: Path, kind: str, folder: Path, *options: str):
    (top / "trouble.py").write_text(TROUBLE)
    return torchrun(2, top / "trouble.py", kind, folder, options=options, check=False)


def test_torchrun_restarts_a_crashed_run(tmp_path):
    straight, broken = (odd_run(tmp_path / name) for name in ("straight", "broken"))
    torchrun(2, "-m", "nepkit.train", straight, "--device", "cpu")
    done = in_trouble(tmp_path, "SIGKILL", broken, "--max-restarts", "1")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "going on from step 5 of 30" in done.stdout
    assert_same_run(straight, broken)


def test_torchrun_does_not_undo_a_signal(tmp_path):
    straight, broken = (odd_run(tmp_path / name) for name in ("straight", "broken"))
    done = in_trouble(tmp_path, "SIGUSR1", broken, "--max-restarts", "2")
    assert done.returncode == 1 and checkpoint.load(broken)["done"] == 9
    assert done.stdout.count("interrupted before, and not to be started again") == 2
    # A new start by hand goes on.
    torchrun(2, "-m", "nepkit.train", broken, "--device", "cpu")
    torchrun(2, "-m", "nepkit.train", straight, "--device", "cpu")
    assert_same_run(straight, broken)


def test_an_error_is_shown_once_and_ends_all(tmp_path):
    folder = odd_run(tmp_path / "run")
    start = time.monotonic()
    done = in_trouble(tmp_path, "bug", folder)
    assert done.returncode == 1 and time.monotonic() - start < 60
    said = done.stdout + done.stderr
    assert said.count("ZeroDivisionError: in the second process") == 1
    assert said.count("an error of nepkit itself") == 1 and "another process" not in said


def test_mistakes_are_told_once(tmp_path):
    folder = make_run(tmp_path / "run", neuron=0)
    done = torchrun(2, "-m", "nepkit.train", folder, "--device", "cpu", check=False)
    assert done.stderr.count("nepkit: ") == 1 and "neuron" in done.stderr
    assert "Traceback" not in done.stderr.split("torch/distributed")[0]


def slurm(rank: int, folder: Path, *words: str) -> subprocess.Popen:
    """One of two processes as srun starts them."""
    place = {
        "SLURM_PROCID": str(rank), "SLURM_NTASKS": "2", "SLURM_LOCALID": str(rank),
        "SLURM_JOB_ID": str(os.getpid()), "SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "2",
        "SLURM_STEP_NODELIST": "localhost",
    }  # fmt: skip
    command = [sys.executable, "-m", "nepkit.train", str(folder), "--device", "cpu", *words]
    return subprocess.Popen(
        command, env=environment(**place), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def test_slurm_starts_and_its_signal_stops(tmp_path):
    folder = odd_run(tmp_path / "run", generation=2000, output_interval=1000)
    processes = [slurm(rank, folder) for rank in range(2)]
    deadline = time.monotonic() + 60
    while (
        "step       loss" not in (folder / "nepkit.log").read_text()
        if (folder / "nepkit.log").exists()
        else True
    ):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    time.sleep(0.5)
    for process in processes:  # scancel signals all, and more than once
        for _ in range(2):
            process.send_signal(signal.SIGUSR1)
            time.sleep(0.01)
    said = [process.communicate(timeout=60) for process in processes]
    assert [process.returncode for process in processes] == [3, 3], said
    assert sum(err.count("interrupted; to go on from here") for _, err in said) == 1
    assert 0 < checkpoint.load(folder)["done"] < 6000
