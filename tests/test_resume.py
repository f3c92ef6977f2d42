"""A run that was killed or interrupted, run again, is the run that was not, bit for bit."""

import errno
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from run_files import contents, make_run, random_frames, write_nep_in, write_xyz
from shares import environment

import nepkit
from nepkit import Interrupted, UserError, train_nep
from nepkit.train import checkpoint, loop

ROOT = str(Path(nepkit.__file__).parents[1])
# Times, versions of a torch file and who wrote what: all else must be equal.
TIMED = ("history.csv", "nepkit.log", "checkpoint.pt", "nepkit_run.json", "parity.png")
TWO_STAGES = "stage\ngeneration 15\nbatch 3\nlearning_rate 0.003 0.001\nema 0.9\nlambda_e 3\n"
# Trains the first folder to its end, then runs the second one again and again: each time it kills
# itself before a step, in the middle of a write of the checkpoint, or before nep.restart is
# written, after so many of them; the last time it may end. One process compiles for all.
KILLER = """
import os, signal, sys
from nepkit import files, train_nep
from nepkit.train import checkpoint, finish, loop

def killing(function, count):
    left = [count]
    def wrapped(*arguments):
        if left[0] == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        left[0] -= 1
        return function(*arguments)
    return wrapped

def write_half(path, data):
    path.write_bytes(b"half")
    die()
    write(path, data)

def save_half(*arguments):
    files._write_and_sync = write_half
    save(*arguments)
    files._write_and_sync = write

save, write = checkpoint.save, files._write_and_sync
straight, broken = sys.argv[1:3]
train_nep(straight, device="cpu")
for word in sys.argv[3:]:
    if (child := os.fork()) == 0:
        kind, count = word.split(":")
        if kind == "step":
            loop.learning_rate = killing(loop.learning_rate, int(count))
        elif kind == "write":
            die = killing(lambda: None, int(count))
            checkpoint.save = save_half
        else:
            finish.write_nep_restart = killing(finish.write_nep_restart, int(count))
        train_nep(broken, device="cpu")
        os._exit(0)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == -signal.SIGKILL, (word, status)
train_nep(broken, device="cpu")
"""


def kill(straight: Path, broken: Path, *runs: str):
    """Train both, the second one killed once for each of ``runs``."""
    done = subprocess.run(
        [sys.executable, "-c", KILLER, str(straight), str(broken), *runs],
        capture_output=True, text=True, timeout=600, check=False,
        # A forked process must not wait for threads of its parent.
        env=environment(),
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


def assert_same_tensors(first, second):
    if isinstance(first, dict):
        assert first.keys() == second.keys()
        for key in first:
            assert_same_tensors(first[key], second[key])
    elif isinstance(first, list):
        for pair in zip(first, second, strict=True):
            assert_same_tensors(*pair)
    elif isinstance(first, torch.Tensor):
        assert torch.equal(first, second)
    else:
        assert first == second


def assert_same_run(first: Path, second: Path):
    """Equal files, and equal checkpoints: parameters, average, optimizer and counters."""
    assert contents(first, *TIMED) == contents(second, *TIMED)
    states = [checkpoint.load(folder) for folder in (first, second)]
    for state in states:
        del state["spent"], state["history"]
    assert_same_tensors(*states)


def test_killed_again_and_again(tmp_path):
    frames, test = random_frames(7), random_frames(2, first_seed=90)
    settings = {"generation": 14, "output_interval": 7}
    straight, broken = (
        make_run(tmp_path / name, frames, test, TWO_STAGES, **settings)
        for name in ("straight", "broken")
    )
    # Before any checkpoint; in the second one, at the end of stage 1; before the first step of
    # stage 2; in its middle; while the results are written.
    kill(straight, broken, "step:5", "write:1", "step:7", "step:9", "finish:0")
    assert not list(broken.glob("*.tmp"))
    assert_same_run(straight, broken)
    table = (broken / "history.csv").read_text().splitlines()
    assert len(table) == 1 + 5 and [row.split(",")[0] for row in table[1:]] == [
        "7", "14", "21", "28", "29",
    ]  # fmt: skip


def stop_before(monkeypatch, step: int, act):
    """Do ``act`` at the beginning of step ``step`` of this process."""
    calls, rate = [], loop.learning_rate

    def wrapped(*arguments):
        calls.append(arguments)
        if len(calls) == step:
            act()
        return rate(*arguments)

    monkeypatch.setattr(loop, "learning_rate", wrapped)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_anywhere(tmp_path, monkeypatch, number):
    straight, broken = (make_run(tmp_path / name) for name in ("straight", "broken"))
    expected = train_nep(straight, device="cpu")
    before = signal.getsignal(number)
    for step in (2, 2):
        with monkeypatch.context() as patch:
            stop_before(patch, step, lambda: os.kill(os.getpid(), number))
            with pytest.raises(Interrupted):
                train_nep(broken, device="cpu")
        assert signal.getsignal(number) is before
    assert checkpoint.load(broken)["done"] == 4
    assert "interrupted after step 4 of 6" in (broken / "nepkit.log").read_text()
    assert train_nep(broken, device="cpu") == expected
    assert_same_run(straight, broken)


def test_second_signal_acts_at_once(tmp_path, monkeypatch):
    folder = make_run(tmp_path / "run")

    def twice():
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)

    stop_before(monkeypatch, 5, twice)
    # A shell's background process is started with SIGINT ignored.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            train_nep(folder, device="cpu")
    finally:
        signal.signal(signal.SIGINT, before)
    assert checkpoint.load(folder)["done"] == 3


def test_a_longer_run_goes_on(tmp_path):
    folder = make_run(tmp_path / "run")
    train_nep(folder, device="cpu")
    train_nep(folder, device="cpu", generation=9)
    rows = (folder / "loss.out").read_text().splitlines()
    assert [row.split()[0] for row in rows] == ["3", "6", "9"]
    train_nep(folder, device="cpu", generation=9, optimizer="adam", weight_decay=0.1)
    write_nep_in(folder, tail="stage\ngeneration 3\n", generation=9)
    train_nep(folder, device="cpu")
    assert len((folder / "loss.out").read_text().splitlines()) == 4


def test_changed_rules_of_the_optimizer_act(tmp_path, monkeypatch):
    folder = make_run(tmp_path / "run")
    train_nep(folder, device="cpu")
    seen = []
    stop_before(monkeypatch, 1, lambda: None)
    resume = loop.Run.resume

    def watch(run, state):
        resume(run, state)
        seen.append([part.decay for part in run.step.optimizer.parts])

    monkeypatch.setattr(loop.Run, "resume", watch)
    train_nep(folder, device="cpu", generation=9, weight_decay=0.25)
    assert seen == [[0.25, 0.0]]


def test_complete_run_changes_nothing(tmp_path, capsys):
    folder = make_run(tmp_path / "run", test=random_frames(2, first_seed=50))
    first = train_nep(folder, device="cpu")
    before = contents(folder)
    times = {path.name: path.stat().st_mtime_ns for path in folder.iterdir()}
    capsys.readouterr()
    assert train_nep(folder, device="cpu") == first
    assert "nothing to do: all 6 steps are done" in capsys.readouterr().out
    assert contents(folder) == before
    assert {path.name: path.stat().st_mtime_ns for path in folder.iterdir()} == times
    (folder / "force_test.out").unlink()
    assert train_nep(folder, device="cpu") == first
    assert contents(folder, *TIMED) == {k: v for k, v in before.items() if k not in TIMED}


@pytest.mark.parametrize(
    "change, words",
    [
        ({"neuron": 5}, "neuron was (4,), now (5,)"),
        ({"cutoff": "4 3.5"}, "angular_cutoff was (3.0, 3.0), now (3.5, 3.5)"),
        ({"seed": 1}, "seed was 0, now 1"),
        ({"precision": "float64"}, "precision was float32, now float64"),
        ({"generation": 4}, "it has taken 6 steps, now there are only 4"),
    ],
)
def test_another_model_does_not_go_on(finished, change, words):
    before = contents(finished)
    with pytest.raises(UserError) as caught:
        train_nep(finished, **{"device": "cpu", **change})
    assert words in str(caught.value) and "--restart" in str(caught.value)
    assert contents(finished) == before


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = make_run(tmp_path_factory.mktemp("finished") / "run")
    train_nep(folder, device="cpu")
    return folder


def test_other_data_do_not_go_on(tmp_path):
    test = random_frames(2, first_seed=50)
    folder = make_run(tmp_path / "run", test=test)
    train_nep(folder, device="cpu")
    write_xyz(folder / "train.xyz", random_frames(5, first_seed=1))
    with pytest.raises(UserError, match=r"content of train\.xyz has changed"):
        train_nep(folder, device="cpu")
    write_xyz(folder / "train.xyz", random_frames(5))
    (folder / "test.xyz").unlink()
    with pytest.raises(UserError, match=r"test\.xyz is gone"):
        train_nep(folder, device="cpu")
    write_xyz(folder / "test.xyz", test)
    train_nep(folder, device="cpu")


def test_new_test_set_and_changed_past_steps(tmp_path):
    folder = make_run(tmp_path / "run", tail="stage\ngeneration 3\n")
    train_nep(folder, device="cpu")
    write_nep_in(folder, tail="stage\ngeneration 3\n", generation=7)
    with pytest.raises(UserError, match=r"steps of stage 1 to 1 were \[6\], now \[7, 3\]"):
        train_nep(folder, device="cpu")
    write_nep_in(folder)
    with pytest.raises(UserError, match=r"steps of stage 1 to 1 were \[6\], now \[6\]"):
        train_nep(folder, device="cpu")
    write_nep_in(folder, tail="stage\ngeneration 3\n")
    write_xyz(folder / "test.xyz", random_frames(1))
    with pytest.raises(UserError, match=r"test\.xyz is new"):
        train_nep(folder, device="cpu")


def test_restart_moves_the_old_run(tmp_path):
    folder = make_run(tmp_path / "run")
    train_nep(folder, device="cpu", restart=True)  # nothing to move
    first = contents(folder, "nepkit.lock")
    for number in (1, 2):
        train_nep(folder, device="cpu", restart=True, neuron=4 + number)
        moved = contents(folder / f"previous-{number}")
        if number == 1:
            assert moved == {k: v for k, v in first.items() if k not in ("nep.in", "train.xyz")}
    assert "previous-2" in (folder / "nepkit.log").read_text()
    assert not (folder / "previous-3").exists()


@pytest.mark.parametrize("damage", ["cut", "garbage", "version", "entry", "empty"])
def test_damaged_checkpoint(tmp_path, damage):
    folder = make_run(tmp_path / "run")
    train_nep(folder, device="cpu")
    path = folder / "checkpoint.pt"
    data = path.read_bytes()
    if damage == "version":
        checkpoint.save(folder, {**checkpoint.load(folder), "version": 99})
    elif damage == "entry":
        state = checkpoint.load(folder)
        del state["flat"]
        checkpoint.save(folder, state)
    else:
        path.write_bytes({"cut": data[:-100], "garbage": b"\x80\x02garbage", "empty": b""}[damage])
    # As after a kill: nothing is known of the files' contents.
    manifest = folder / "nepkit_run.json"
    manifest.write_text(re.sub('"[0-9a-f]{64}"', "null", manifest.read_text()))
    with pytest.raises(UserError, match=r"checkpoint\.pt: .*start anew with --restart"):
        train_nep(folder, device="cpu")
    train_nep(folder, device="cpu", restart=True)


def test_checkpoint_holds_no_code(tmp_path):
    torch.save({"version": 1, "code": Path("/")}, tmp_path / "checkpoint.pt")
    with pytest.raises(UserError, match="damaged, or not a checkpoint"):
        checkpoint.load(tmp_path)


def test_full_disk_in_the_middle_of_a_row(tmp_path, monkeypatch):
    straight, broken = (make_run(tmp_path / name) for name in ("straight", "broken"))
    train_nep(straight, device="cpu")
    add, calls = loop.Table.add, []

    def full(table, row):
        calls.append(row)
        if len(calls) < 3:
            add(table, row)
            return
        add(table, row[:5])
        with monkeypatch.context() as patch:
            patch.setattr("builtins.open", no_space)
            add(table, row)

    def no_space(*_, **__):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(loop.Table, "add", full)
        with pytest.raises(UserError, match=r"loss\.out: cannot be written: No space left"):
            train_nep(broken, device="cpu")
    train_nep(broken, device="cpu")
    assert_same_run(straight, broken)


def test_full_disk_keeps_the_last_checkpoint(tmp_path, monkeypatch):
    straight, broken = (make_run(tmp_path / name) for name in ("straight", "broken"))
    train_nep(straight, device="cpu")
    replace, names = os.replace, []

    def full(source, target):
        names.append(os.path.basename(target))
        if names.count("checkpoint.pt") == 2:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        replace(source, target)

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", full)
        with pytest.raises(UserError, match=r"checkpoint\.pt: cannot be written: the disk is full"):
            train_nep(broken, device="cpu")
    assert checkpoint.load(broken)["done"] == 3 and not list(broken.glob("*.tmp"))
    train_nep(broken, device="cpu")
    assert_same_run(straight, broken)
