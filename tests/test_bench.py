"""`nepkit bench`: numbers of this machine, and nothing left behind."""

import re

import pytest
from run_files import contents, make_run, random_frames

from nepkit.bench import bench, duration
from nepkit.cli import main


@pytest.fixture
def folder(tmp_path):
    return make_run(tmp_path / "run", test=random_frames(2, first_seed=70))


def test_what_is_printed(folder, capsys):
    before, names = contents(folder), sorted(folder.iterdir())
    words = ["bench", str(folder), "--seconds", "0.3", "--device", "cpu", "generation=3000"]
    assert main(words) == 0
    said = capsys.readouterr()
    assert said.err == ""
    rows = said.out.splitlines()[-7:]
    assert max(map(len, rows)) <= 100
    text = " ".join(" ".join(rows).split())
    number = r"([\d.,e+]+)"
    match = re.search(rf"step {number} ms: {number} steps/s, {number} atoms/s", text)
    ms, rate, atoms = (float(word.replace(",", "")) for word in match.groups())
    assert 1e3 / ms == pytest.approx(rate, rel=0.02)
    # Batches of 2 of 5 frames with 2 to 4 atoms.
    assert 4 <= atoms / rate <= 8
    assert re.search(r"3,000 steps take [\d.]+ (s|minutes|hours)", text)
    assert "batch 2 frames" in text and "CPU" in text and "float32" in text and " MB " in text
    assert contents(folder) == before and sorted(folder.iterdir()) == names


def test_settings_are_those_of_the_command(folder):
    measured = bench(folder, seconds=0.1, device="cpu", precision="float64", batch=5)
    assert measured.config.stages[0].batch == 5
    assert str(measured.precision) == "torch.float64"
    assert measured.atoms == measured.steps * 14 and measured.steps > 0
    assert measured.seconds >= 0.1


def test_it_takes_as_long_as_it_is_told(folder):
    measured = bench(folder, seconds=0.5, device="cpu")
    assert 0.5 <= measured.seconds < 2.0


@pytest.mark.parametrize(
    "words, text",
    [
        ("bench", "required: RUN_DIR"),
        ("bench RUN/none", "no such folder"),
        ("bench RUN --seconds x", "--seconds x: give a number above 0"),
        ("bench RUN --seconds 0", "give a number above 0"),
        ("bench RUN seconds=3", "not a keyword of nep.in; see nepkit bench -h"),
        ("bench RUN --precision float16", "float16"),
        ("bench RUN neuron=1", "neuron 1"),
    ],
)
def test_mistakes(folder, words, text, capsys):
    assert main(words.replace("RUN", str(folder)).split()) == 2
    said = capsys.readouterr().err
    assert text in said and said.count("\n") <= 2


@pytest.mark.parametrize(
    "seconds, text",
    [(0.4, "0 s"), (90, "90 s"), (121, "2.0 minutes"), (9000, "2.5 hours"), (3e5, "3.5 days")],
)
def test_durations(seconds, text):
    assert duration(seconds) == text
