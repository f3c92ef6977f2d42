"""Watching a run: the table of reports, the words beside the bar, TensorBoard."""

import sys

import numpy as np
import pytest
from run_files import make_run, random_frames

from nepkit import UserError, train_nep
from nepkit.cli import main
from nepkit.train import loop
from nepkit.train.outputs import Errors
from nepkit.train.report import ReportTable, milli, progress
from nepkit.train.signals import Interrupted

SMALL, HUGE = Errors(1e-5, 2e-3, None), Errors(123.456, 98765.4, 1.5e7)


@pytest.mark.parametrize("errors", [SMALL, HUGE])
@pytest.mark.parametrize("sets", [["train"], ["train", "test"]])
def test_table_fits_100_columns_and_its_columns_stand_apart(errors, sets):
    table = ReportTable(sets, 1_000_000, 100)
    row = table.row(1_000_000, 1234.5, dict.fromkeys(sets, errors), 123456)
    names, units = table.head.split("\n")
    assert len(row) == len(names) == len(units) <= 100
    assert len(row.split()) == 2 + 4 * len(sets) + 2
    assert units.split()[1:4] == ["meV/atom", "meV/Å", "meV/atom"] and units.split()[-1] == "s"
    assert names.count("energy") == len(sets)


def test_numbers_stay_short():
    assert [milli(x) for x in (None, 0.0123456, 12.3, 12345.6, 1e9)] == [
        "-", "12.35", "12300.00", "1.2e+07", "1.0e+12",
    ]  # fmt: skip


def test_words_beside_the_bar():
    assert progress(0.0123456, "test", Errors(0.0141, 0.1154, 0.3)) == (
        "loss 0.0123, test 14.1 meV/atom 115 meV/Å"
    )
    assert progress(1.0, "train", Errors(None, 0.1, None)) == "loss 1, train 100 meV/Å"
    assert progress(1.0, "train", Errors(None, None, 0.1)) == "loss 1"


def scalars(folder) -> dict[str, list[tuple[int, float]]]:
    """What TensorBoard shows of a run: steps and values."""
    events = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    found = events.EventAccumulator(str(folder / "tensorboard"))
    found.Reload()
    tags = found.Tags()["scalars"]
    return {tag: [(event.step, event.value) for event in found.Scalars(tag)] for tag in tags}


def steps(folder) -> list[int]:
    return [step for step, _ in scalars(folder)["loss"]]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_tensorboard_has_the_reports(tmp_path):
    pytest.importorskip("tensorboard")
    folder = make_run(tmp_path / "run", test=random_frames(2, first_seed=40))
    assert main(["train", str(folder), "--device", "cpu", "--tensorboard"]) == 0
    found, rows = scalars(folder), np.loadtxt(folder / "loss.out")
    assert steps(folder) == [3, 6]
    assert [value for _, value in found["loss"]] == pytest.approx(rows[:, 1].tolist(), rel=1e-5)
    names = ["energy_meV_per_atom", "force_meV_per_A", "virial_meV_per_atom"]
    tags = [f"{name}/{data}" for data in ("train", "test") for name in names]
    assert set(found) == {"loss", "learning_rate", *tags}
    for tag, column in zip(tags, rows.T[4:]):
        values = [value for _, value in found[tag]]
        assert values == pytest.approx((1e3 * column).tolist(), rel=1e-5)
    # A new run begins a new record; the old one goes with the old run.
    train_nep(folder, device="cpu", tensorboard=True, restart=True, generation=3)
    assert steps(folder) == [3] and steps(folder / "previous-1") == [3, 6]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_tensorboard_of_a_run_that_goes_on(tmp_path, monkeypatch):
    pytest.importorskip("tensorboard")
    folder = make_run(tmp_path / "run")
    real = loop.Run.save

    def stop(run, *stops):
        if run.done == 6:  # reported, but in no checkpoint
            raise Interrupted
        real(run, *stops)

    monkeypatch.setattr(loop.Run, "save", stop)
    with pytest.raises(Interrupted):
        train_nep(folder, device="cpu", tensorboard=True)
    monkeypatch.undo()
    train_nep(folder, device="cpu", tensorboard=True)
    assert steps(folder) == [3, 6]


def test_without_tensorboard(tmp_path, monkeypatch, capsys):
    folder = make_run(tmp_path / "run")
    train_nep(folder, device="cpu")
    assert not (folder / "tensorboard").exists()
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    assert main(["train", str(folder), "--tensorboard"]) == 2
    assert "pip install 'nepkit-mlip[tensorboard]'" in capsys.readouterr().err
    with pytest.raises(UserError, match="tensorboard"):
        train_nep(folder, tensorboard=True)
