"""Several processes train as one does: the same batches, gradients, errors and files."""

import json
import os
import time
from pathlib import Path

import numpy as np
import pytest
from run_files import make_run
from shares import odd_run, processes
from test_resume import assert_same_run

from nepkit import Interrupted, UserError, predict_dataset, train_nep
from nepkit.config import read_nep_in
from nepkit.data.sampler import dealt, ranges
from nepkit.data.storing import open_store
from nepkit.train import checkpoint
from nepkit.train.place import first_host, place
from nepkit.train.residence import memory_budget
from nepkit.train.stop import check_max_time

# Trains in folders of a run, NAME:PRECISION:BYTES each (data may take so many bytes), then interrupts
# a run by a signal to the last process, goes on with it, and predicts. What each process saw goes to
# seen-RANK.json.
PROGRAM = """
import json, os, shutil, signal, sys
from pathlib import Path
from nepkit import Interrupted, UserError, predict_dataset_sharded, train_nep_sharded
from nepkit.train import loop
from nepkit.train.residence import memory_budget

top, rank, last = Path(sys.argv[1]), int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]) - 1
seen, exact = {}, {"device": "cpu", "precision": "float64"}
for word in sys.argv[2:]:
    name, precision, n_bytes = word.split(":")
    with memory_budget(float(n_bytes)):
        found = train_nep_sharded(top / name, device="cpu", precision=precision)
    seen[name] = {name: errors.force for name, errors in found.items()}
rate, calls = loop.learning_rate, []

def interrupting(*arguments):
    calls.append(1)
    if len(calls) == 7 and rank == last:
        os.kill(os.getpid(), signal.SIGUSR1)
    return rate(*arguments)

loop.learning_rate = interrupting
try:
    train_nep_sharded(top / "broken", **exact)
except Interrupted:
    seen["steps"] = len(calls)
loop.learning_rate = rate
if rank == 0:
    shutil.copytree(top / "broken", top / "left")
train_nep_sharded(top / "broken", **exact)
files = top / "double" / "nep.txt", top / "double" / "train.xyz"
predicted = predict_dataset_sharded(*files, out=top / "out", **exact)
seen["energies"] = predicted.prediction.energy.tolist()
try:
    train_nep_sharded(top / "double", **exact, neuron=5)
except UserError as error:
    seen["mistake"] = str(error)
(top / f"seen-{rank}.json").write_text(json.dumps(seen))
"""
# Name, precision and memory of the runs that are compared.
DOUBLE, SINGLE = ("double", "float64", 1e9), ("single", "float32", 1e9)
# Their frames are read from a store, a few at a time.
STORED = ("stored", "float64", 5e3)


def compare(top: Path, count: int, *runs: tuple[str, str, float]):
    """What one process and ``count`` of them make of the same runs."""
    for name in [*(name for name, *_ in runs), "broken"]:
        stored(odd_run(top / name), name)
    words = [f"{name}:{precision}:{n_bytes}" for name, precision, n_bytes in runs]
    processes(count, write(top / "program.py", PROGRAM), top, *words)
    seen = [json.loads((top / f"seen-{rank}.json").read_text()) for rank in range(count)]
    for name, precision, n_bytes in runs:
        alone, together = stored(odd_run(top / f"{name}-alone"), name), top / name
        with memory_budget(n_bytes):
            errors = train_nep(alone, device="cpu", precision=precision)
        wanted = {name: of_set.force for name, of_set in errors.items()}
        limit = 1e-10 if precision == "float64" else 1e-5
        for found in seen:
            assert found[name] == pytest.approx(wanted, rel=limit)
        forces = [np.loadtxt(f / "force_train.out")[:, :3] for f in (alone, together)]
        np.testing.assert_allclose(*forces, atol=1e-5, rtol=0)
        if precision == "float64":
            assert_same_but_for_sums(alone, together)
    log = (top / "broken" / "nepkit.log").read_text()
    assert "interrupted after step 8 of 30" in log
    assert_same_run(top / "double", top / "broken")
    # Another number of processes goes on with the same batches.
    train_nep(top / "left", device="cpu", precision="float64")
    assert_same_but_for_sums(top / "double", top / "left")
    log = (top / "left" / "nepkit.log").read_text()
    assert f"processes were {count}, now 1: the batches stay the same" in log
    files = top / "double" / "nep.txt", top / "double" / "train.xyz"
    whole = predict_dataset(*files, device="cpu", precision="float64").prediction
    for found in seen:
        assert found["steps"] == 8 and "neuron was (4,), now (5,)" in found["mistake"]
        np.testing.assert_allclose(found["energies"], whole.energy, rtol=1e-13)
    tables = [np.loadtxt(top / place / "energy_train.out") for place in ("out", "double")]
    np.testing.assert_allclose(*tables, rtol=1e-8)


def stored(folder: Path, name: str) -> Path:
    """``folder``, with a store of its training data if ``name`` asks for it."""
    if name == "stored":
        open_store(folder / "train.xyz", read_nep_in(folder / "nep.in").model).close()
    return folder


def assert_same_but_for_sums(alone: Path, together: Path):
    """Weights to 1e-10 relative, and so the files, in double precision."""
    one, other = (checkpoint.load(folder) for folder in (alone, together))
    for a, b in ((one["flat"], other["flat"]), (one["step"]["average"], other["step"]["average"])):
        assert ((a - b).abs() <= 1e-10 * a.abs().clamp_min(1e-3)).all()
    assert one["best"]["step"] == other["best"]["step"]
    for name in ("loss.out", "virial_test.out"):
        tables = [np.loadtxt(folder / name) for folder in (alone, together)]
        np.testing.assert_allclose(*tables, rtol=1e-8)


def write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def test_two_processes_train_as_one(tmp_path):
    compare(tmp_path, 2, DOUBLE)


@pytest.mark.slow
@pytest.mark.parametrize("count", [2, 3])
def test_all_ways_of_training_together(tmp_path, count):
    compare(tmp_path, count, DOUBLE, SINGLE, STORED)
    assert "parts an epoch are read from" in (tmp_path / "stored" / "nepkit.log").read_text()


# What one process has to know -------------------------------------------------------------------


@pytest.mark.parametrize("n_frames, n_shares", [(64, 2), (63, 4), (3, 8), (1, 3), (7, 1)])
def test_batches_are_dealt_evenly(n_frames, n_shares):
    work = np.exp(np.random.default_rng(n_frames).normal(size=200, scale=0.5))
    frames = np.random.default_rng(1).permutation(200)[:n_frames]
    shares = dealt(frames, work, n_shares)
    assert len(shares) == n_shares and sorted(shares[shares >= 0]) == sorted(frames)
    counts = (shares >= 0).sum(1)
    assert np.ptp(counts) <= 1
    total = np.where(shares >= 0, work[shares], 0.0).sum(1)
    assert np.ptp(total) <= work[frames].max()
    if n_frames >= 16 * n_shares and n_frames % n_shares == 0:
        assert total.max() < 1.03 * total.mean()


def test_ranges_hold_every_frame_once_and_about_equal_work():
    work = np.random.default_rng(0).uniform(1, 3, 100)
    edges = ranges(work, 7)
    assert edges[0] == 0 and edges[-1] == 100 and (np.diff(edges) > 0).all()
    total = np.add.reduceat(work, edges[:-1])
    assert np.ptp(total) < 6
    assert ranges(np.ones(2), 3).tolist()[0] == 0 and ranges(np.ones(2), 3)[-1] == 2


@pytest.mark.parametrize(
    "nodes, host",
    [
        ("nid[0012-0015,0020],gpu1", "nid0012"),
        ("a1", "a1"),
        ("a[1,3]-b,c", "a1-b"),
        ("n1,n2", "n1"),
    ],
)
def test_the_first_host_of_a_list(nodes, host):
    assert first_host(nodes) == host


def test_places_that_launchers_give(monkeypatch):
    names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")
    for name in [*names, *(key for key in os.environ if key.startswith("SLURM_"))]:
        monkeypatch.delenv(name, raising=False)
    assert place() is None
    slurm = {"PROCID": 5, "NTASKS": 8, "LOCALID": 1, "JOB_ID": 7, "JOB_NODELIST": "n[3-4]"}
    for name, value in slurm.items():
        monkeypatch.setenv(f"SLURM_{name}", str(value))
    assert place() is None  # the batch script itself
    monkeypatch.setenv("SLURM_STEP_ID", "0")
    found = place()
    assert found[:4] == (5, 8, 1, "n3") and 20000 <= found.port < 50000
    for name, value in zip(names, ("2", "4", "0", "there", "1234")):
        monkeypatch.setenv(name, value)
    assert place() == (2, 4, 0, "there", 1234)


@pytest.mark.parametrize(
    "text, seconds",
    [("90", 90), (90.5, 90.5), ("23:50:00", 85800), ("1-12:00:00", 129600), ("0:00:10", 10)],
)
def test_times(text, seconds):
    assert check_max_time(text) - time.monotonic() == pytest.approx(seconds, abs=0.1)


@pytest.mark.parametrize("text", ["", "soon", "0", "-5", "1:2", "10:99:00", "inf", "nan"])
def test_times_that_are_none(text):
    with pytest.raises(UserError, match="max_time"):
        check_max_time(text)


def test_a_run_ends_in_time_and_goes_on(tmp_path):
    straight, broken = (
        make_run(tmp_path / name, generation=2000, output_interval=500) for name in ("one", "other")
    )
    train_nep(straight, device="cpu")
    start = time.monotonic()
    with pytest.raises(Interrupted):
        train_nep(broken, device="cpu", generation=2000, max_time=0.5)
    assert time.monotonic() - start < 5 and 0 < checkpoint.load(broken)["done"] < 2000
    train_nep(broken, device="cpu", max_time="1:00:00")
    assert_same_run(straight, broken)
