"""The command: what it prints, and with which code it ends."""

import os
import re
import shlex
import signal
import struct
import subprocess
import sys
import time
from pathlib import Path

import pytest
from run_files import make_run, random_frames, write_xyz
from shares import environment

import nepkit
from nepkit import cli
from nepkit.parser import build_parser
from nepkit.train import loop, run


def train(folder: Path, *arguments: str) -> int:
    return cli.main(["train", str(folder), "--device", "cpu", *arguments])


@pytest.fixture
def folder(tmp_path):
    return make_run(tmp_path / "run", test=random_frames(2, first_seed=70))


def test_train_and_predict(folder, tmp_path, capsys):
    assert train(folder, "generation=3", "--out", str(tmp_path / "out"), "batch=3") == 0
    told = capsys.readouterr()
    rows = told.out.splitlines()
    assert told.err == ""
    assert any(re.fullmatch(r"test +\d+\.\d\d +\d+\.\d\d +\d+\.\d\d", row) for row in rows)
    assert max(map(len, rows)) <= 120
    resolved = (tmp_path / "out" / "nepkit_resolved.in").read_text()
    assert re.search(r"^batch +3$", resolved, re.MULTILINE)
    model, data = str(tmp_path / "out" / "nep.txt"), str(folder / "test.xyz")
    assert cli.main(["predict", model, data, "--out", str(tmp_path / "p"), "--descriptors"]) == 0
    told = capsys.readouterr()
    assert told.out.splitlines()[-1].startswith("test.xyz ") and told.err == ""
    assert (tmp_path / "p" / "descriptor.out").exists()


def commands() -> list[str]:
    """Every command there is."""
    (choices,) = [action.choices for action in build_parser()._actions if action.dest == "command"]
    return list(choices)


@pytest.mark.parametrize("command", [[], *([name] for name in commands())])
def test_help_fits_a_screen_and_ends_with_examples(command, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit) as caught:
        cli.main([*command, "-h"])
    assert caught.value.code == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) <= 30 and max(map(len, lines)) <= 80
    examples = lines[lines.index("examples:") + 1 :]
    name = "nepkit " + "".join(command)
    assert examples and all(line.startswith(f"  {name}") for line in examples)


def test_version_without_loading_torch():
    program = (
        "import sys; from nepkit.cli import main\n"
        "try: main(['--version'])\n"
        "finally: print('torch' in sys.modules)\n"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        env=environment(), capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout == f"nepkit {nepkit.__version__}\nFalse\n"


MISTAKES = {
    "": "required: COMMAND",
    "trian": "choose from",
    "train": "required: RUN_DIR",
    "train RUN --foo": "--foo: unknown; see nepkit train -h",
    "train RUN --precision float16": "float16",
    "train RUN generation": "generation: give keywords of nep.in as key=value",
    "train RUN =3": "give keywords of nep.in as key=value",
    "train RUN generation=x": '"generation x"',
    "train RUN generation=3 generation=4": "generation: given twice",
    "train RUN seed=3 --seed 4": "seed: given twice",
    "train RUN --seed x": '"seed x"',
    "train RUN out=elsewhere": "out=elsewhere: not a keyword of nep.in; see nepkit train -h",
    "train RUN force_mode=autograd": "not a keyword of nep.in",
    "train RUN run_dir=x": "not a keyword of nep.in",
    "train RUN neurons=3": '"neuron"',
    "train RUN stage=": "stages are written in the file only",
    "train RUN --device nowhere": "device nowhere: cannot be used",
    "train RUN/nothing": "no such folder",
    "train RUN/train.xyz": "no such folder",
    "predict RUN/nep.in RUN/train.xyz": "--out",
    "predict RUN/nep.in RUN/train.xyz --out RUN/o": "nep.in, line 1",
    "predict RUN/none RUN/train.xyz --out RUN/o": "none: cannot be read",
    "plot": "required: RUN_DIR",
    "plot RUN --format gif": "gif",
    "plot RUN": "no loss.out and no energy_train.out; give the folder that a run wrote to",
    "report": "required: RUN_DIR",
    "report RUN/none": "none: no such folder; give the one that a run wrote to",
    "train RUN tensorboard=1": "not a keyword of nep.in",
    "predict a b c --out RUN/o": "c: unknown; see nepkit predict -h",
}


@pytest.mark.parametrize("words", MISTAKES)
def test_mistakes_end_with_code_2_and_a_line_or_two(folder, words, capsys):
    assert cli.main(words.replace("RUN", str(folder)).split()) == 2
    told = capsys.readouterr().err
    assert told.startswith("nepkit: ") and told.count("\n") <= 2 and "Traceback" not in told
    assert MISTAKES[words] in told


@pytest.mark.parametrize(
    "file, text, place",
    [
        ("nep.in", "type 2 Si Ge\nneuron 3 x\n", "nep.in, line 2"),
        ("train.xyz", "2\nenergy=1\n", "train.xyz, frame 0, line 2"),
        (
            "test.xyz",
            "1\nProperties=species:S:1:pos:R:3 energy=****\nSi 0 0 0\n",
            "test.xyz, frame 0",
        ),
        ("zbl.in", "1 2 3\n", "zbl.in"),
        ("checkpoint.pt", "his", "checkpoint.pt: not written by nepkit"),
    ],
)
def test_mistakes_in_files(folder, file, text, place, capsys):
    (folder / file).write_text(text)
    assert train(folder, "zbl=2") == 2
    told = capsys.readouterr().err
    assert place in told and told.count("\n") <= 2


def test_debugging_shows_the_traceback(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("NEPKIT_DEBUG", "1")
    assert train(tmp_path / "none") == 2
    assert "Traceback" in capsys.readouterr().err


def test_our_own_errors_end_with_code_1(folder, monkeypatch, capsys):
    def fail(*_):
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr(run, "read_data", fail)
    assert train(folder) == 1
    told = capsys.readouterr().err
    assert "Traceback" in told and "ZeroDivisionError: a bug" in told


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGUSR1])
@pytest.mark.parametrize("place", ["reading", "training"])
def test_interrupted_ends_with_code_3(folder, monkeypatch, capsys, number, place):
    where, name = {"reading": (run, "read_data"), "training": (loop, "learning_rate")}[place]
    real = getattr(where, name)

    def interrupted(*arguments):
        os.kill(os.getpid(), number)
        return real(*arguments)

    before = signal.getsignal(number)
    monkeypatch.setattr(where, name, interrupted)
    assert train(folder) == 3
    told = capsys.readouterr().err
    again = f"to go on from here: nepkit train {folder} --device cpu"
    assert (again if place == "training" else "command again") in told and told.count("\n") == 1
    assert signal.getsignal(number) is before
    assert (folder / "checkpoint.pt").exists() == (place == "training")
    monkeypatch.undo()
    assert train(folder) == 0
    assert place == "reading" or "going on from step 1 of 6" in capsys.readouterr().out


def test_interrupted_where_nobody_hears_it(folder, monkeypatch, capsys):
    """A compiler's callback swallows the interrupt, and the compiler then fails."""

    def compiler(*_):
        try:
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(1)
        except KeyboardInterrupt:
            pass
        raise RuntimeError("no compiled object yet")

    monkeypatch.setattr(run, "new_run", compiler)
    assert train(folder) == 3
    assert capsys.readouterr().err.startswith("nepkit: interrupted; give the same command again")


def test_interrupted_with_restart_says_which_command_goes_on(folder, monkeypatch, capsys):
    real = loop.learning_rate
    monkeypatch.setattr(
        loop, "learning_rate", lambda *a: os.kill(os.getpid(), signal.SIGINT) or real(*a)
    )
    words = ["--restart", "--out", str(folder / "a run"), "generation=7"]
    assert train(folder, *words) == 3
    told = capsys.readouterr().err.strip()
    assert "--restart" not in told
    monkeypatch.undo()
    again = shlex.split(told.split("to go on from here: nepkit ")[1])
    assert cli.main(again) == 0
    assert "going on from step 1 of 7" in capsys.readouterr().out


@pytest.mark.parametrize("module", ["nepkit.train", "nepkit.predict"])
def test_modules_are_the_commands(module, tmp_path):
    arguments = {"nepkit.train": ["."], "nepkit.predict": ["nep.txt", "x.xyz", "--out", "."]}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-m", module, *arguments[module]],
        env=environment(), capture_output=True, text=True, check=False, cwd=tmp_path,
    )  # fmt: skip
    expected = "nep.in" if module == "nepkit.train" else "nep.txt"
    assert done.returncode == 2 and done.stderr.count("\n") == 1
    assert done.stderr.startswith(f"nepkit: {expected}: cannot be read")


def test_second_run_in_a_folder_and_bars_on_a_terminal(folder):
    """One run on a terminal, with a bar; a second one is refused; SIGTERM ends the first."""
    pty, fcntl, termios = map(pytest.importorskip, ("pty", "fcntl", "termios"))
    write_xyz(folder / "train.xyz", random_frames(6))
    command = [sys.executable, "-m", "nepkit.train", str(folder), "--device", "cpu"]
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 100, 0, 0))
    first = subprocess.Popen(
        [*command, "generation=1000000", "output_interval=50"],
        env=environment(), stdout=theirs, stderr=theirs,
    )  # fmt: skip
    os.close(theirs)
    try:
        deadline = time.monotonic() + 300
        while not (folder / "checkpoint.pt").exists() and time.monotonic() < deadline:
            time.sleep(0.1)
        assert train(folder) == 2
        first.send_signal(signal.SIGTERM)
        shown = b""
        try:
            while block := os.read(ours, 65536):
                shown += block
        except OSError:  # Linux: the other end is closed
            pass
        assert first.wait(30) == 3
    finally:
        first.kill()
        first.wait()
        os.close(ours)
    text = shown.decode()
    # Steps, time so far and to go, loss, errors on what the model is judged by.
    bars = [row for row in re.split(r"[\r\n]+", text) if "steps/s" in row]
    full = (
        r" *\d+%\|.*\| \d+/1000000 \[\d\d:\d\d<(\d+:)?\d+:\d\d, +[\d.]+ ?steps/s, "
        r"loss [\d.e-]+, test [\d.]+ meV/atom [\d.]+ meV/Å\]"
    )
    assert any(re.search(full, row) for row in bars), bars[-1]
    assert max(len(re.sub(r"\x1b\[\w", "", row).rstrip()) for row in bars) <= 100
    told = " ".join(["nepkit", "train", *command[3:], "generation=1000000", "output_interval=50"])
    assert f"to go on from here: {told}" in " ".join(text.split())
