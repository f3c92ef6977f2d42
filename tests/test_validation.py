"""Frames held out: which ones, what they choose, early stop, and the best model over a resumption."""

from contextlib import nullcontext
from dataclasses import replace

import numpy as np
import pytest
from run_files import contents, make_run, random_frame, random_frames
from test_resume import assert_same_run, stop_before

from nepkit import UserError, predict_dataset, train_nep
from nepkit.config import NepConfig, Stage, read_nep_in
from nepkit.data.composition import element_counts
from nepkit.data.split import held_out
from nepkit.data.storing import open_store
from nepkit.data.xyz import read_xyz
from nepkit.plot import plot_run
from nepkit.report import write_report
from nepkit.results import read_results
from nepkit.train.best import Best, judged, stalled
from nepkit.train.outputs import Errors
from nepkit.train.residence import memory_budget
from nepkit.train.signals import Interrupted


def chosen_of(frames, ratio, seed):
    return held_out(element_counts(frames), ratio, seed)


def frames_of(tmp_path, groups: dict[str, int]):
    """Frames of compositions, as Si4Ge2, so many of each."""
    made = []
    for k, (symbols, count) in enumerate(groups.items()):
        chosen = tuple(symbols.split())
        made += [
            random_frame(100 * k + n, n_atoms=len(chosen), symbols=chosen) for n in range(count)
        ]
    return read_xyz(make_run(tmp_path / "frames", made) / "train.xyz")


@pytest.mark.parametrize("seed", range(3))
def test_each_composition_and_size_gives_its_part(tmp_path, seed):
    groups = {"Si Si": 40, "Si Si Si Si": 20, "Si Ge": 30, "Ge Ge Ge": 10}
    frames = frames_of(tmp_path, groups)
    chosen = chosen_of(frames, 0.1, seed)
    assert chosen.sum() == 10
    first = 0
    for count in groups.values():
        assert chosen[first : first + count].sum() == count // 10
        first += count
    assert (chosen_of(frames, 0.1, seed) == chosen).all()
    assert (chosen_of(frames, 0.1, seed + 7) != chosen).any()


def test_an_element_is_never_held_out_altogether(tmp_path):
    frames = frames_of(tmp_path, {"Si Si": 3, "Si Ge": 1, "C C": 2})
    for seed in range(20):
        chosen = chosen_of(frames, 0.7, seed)
        left = {z for frame, out in zip(frames, chosen) if not out for z in frame.numbers}
        assert left == {14, 32, 6} and not chosen[3]


@pytest.mark.parametrize("ratio, count, held", [(0.01, 5, 1), (0.99, 5, 4), (0.5, 2, 1)])
def test_one_frame_at_least_on_each_side(tmp_path, ratio, count, held):
    assert chosen_of(frames_of(tmp_path, {"Si Si": count}), ratio, 0).sum() == held


@pytest.fixture
def folder(tmp_path):
    """A run with frames held out and a test set."""
    frames = [replace(frame, extra="config_type=a") for frame in random_frames(8)]
    test = random_frames(2, first_seed=40)
    return make_run(tmp_path / "run", frames, test=test, valid_ratio=0.25, generation=9)


def test_validation_chooses_and_the_test_only_reports(folder):
    found = train_nep(folder, device="cpu", precision="float64")
    assert list(found) == ["train", "valid", "test"]
    numbers = [int(line) for line in (folder / "valid_frames.txt").read_text().split()]
    frames = read_xyz(folder / "train.xyz")
    assert len(numbers) == 2
    predicted = predict_dataset(
        folder / "nep.txt", folder / "train.xyz", device="cpu", precision="float64"
    ).prediction
    for name, members in (("valid", numbers), ("train", set(range(8)) - set(numbers))):
        energy = np.loadtxt(folder / f"energy_{name}.out", ndmin=2)
        labels = [frames[k].energy / len(frames[k]) for k in sorted(members)]
        np.testing.assert_allclose(energy[:, 1], labels, rtol=1e-8)
        own = [predicted.energy[k] / len(frames[k]) for k in sorted(members)]
        np.testing.assert_allclose(energy[:, 0], own, rtol=1e-6)
    names = (folder / "history.csv").read_text().splitlines()[0].split(",")
    rows = np.loadtxt(folder / "history.csv", delimiter=",", skiprows=1)
    columns = [names.index(f"{kind}_valid_eV_per_{unit}") for kind, unit in
               (("energy", "atom"), ("force", "A"), ("virial", "atom"))]  # fmt: skip
    best = rows[(rows[:, columns] ** 2 @ [1, 1, 0.1]).argmin()]
    kept = predict_dataset(folder / "nep_best.txt", folder / "test.xyz", device="cpu").errors
    # loss.out keeps GPUMD's columns: train and test.
    loss_out = np.loadtxt(folder / "loss.out")
    row = loss_out[loss_out[:, 0] == best[0]][0]
    assert (kept.energy, kept.force, kept.virial) == pytest.approx(tuple(row[7:]), rel=1e-4)
    results = read_results(folder)
    assert [data.name for data in results.sets] == ["train", "valid", "test"]
    assert results.history.step[results.history.best] == best[0]
    assert [frame.index for frame in results.sets[1].frames] == numbers
    assert len(results.history.errors) == 9


def test_figures_and_report_know_the_validation_set(folder, monkeypatch):
    train_nep(folder, device="cpu")
    write_report(folder)
    assert '<span class="valid">● valid</span>' in (folder / "report.html").read_text()
    pytest.importorskip("matplotlib")
    from nepkit.plot import parity

    draw, figures = parity.draw_parity, []

    def drawn(sets):
        figures.append(draw(sets))
        return figures[-1]

    monkeypatch.setattr(parity, "draw_parity", drawn)
    assert len(plot_run(folder)) >= 4
    told = [text.get_text().split("\n")[0] for text in figures[0].axes[0].texts]
    assert sorted(told) == ["test", "train", "valid"]


def test_a_run_with_frames_held_out_goes_on_exactly(folder, tmp_path, monkeypatch):
    broken = make_run(
        tmp_path / "broken", [replace(f, extra="config_type=a") for f in random_frames(8)],
        test=random_frames(2, first_seed=40), valid_ratio=0.25, generation=9,
    )  # fmt: skip
    expected = train_nep(folder, device="cpu")
    with monkeypatch.context() as patch:
        stop_before(patch, 5, lambda: __import__("signal").raise_signal(15))
        with pytest.raises(Interrupted):
            train_nep(broken, device="cpu")
    assert train_nep(broken, device="cpu") == expected
    assert_same_run(folder, broken)


def test_other_frames_held_out_are_another_run(folder):
    train_nep(folder, device="cpu")
    with pytest.raises(UserError, match="validation set was 2 .* now 4"):
        train_nep(folder, device="cpu", valid_ratio=0.5)


def test_nothing_to_hold_out(tmp_path):
    folder = make_run(tmp_path / "one", random_frames(1), valid_ratio=0.5, batch=1)
    with pytest.raises(UserError, match="valid_ratio needs 2 frames"):
        train_nep(folder, device="cpu")
    frames = [random_frame(k, n_atoms=2, symbols=(s,)) for k, s in enumerate(("Si", "Ge"))]
    folder = make_run(tmp_path / "two", frames, valid_ratio=0.5, batch=1)
    with pytest.raises(UserError, match="no frame can be held out"):
        train_nep(folder, device="cpu")


def test_which_set_chooses():
    assert judged(["train"]) == "train"
    assert judged(["train", "test"]) == "test"
    assert judged(["train", "valid", "test"]) == "valid"


def test_the_best_is_compared_by_one_formula():
    """A new lambda judges the model that was taken under the old one anew."""
    import torch

    best, energy, force = Best(), Errors(0.1, 0.2, None), Errors(0.2, 0.1, None)
    average = torch.zeros(2)
    assert not best.offer(0, Errors(float("nan"), 0.1, None), average, Stage())
    old, new = Stage(lambda_e=10.0), Stage(lambda_e=0.1)
    assert best.offer(1, energy, average, old)
    assert not best.offer(2, force, average, old)
    again = Best.of(best.state())
    # By the old loss 0.14, which is less than any that the new one gives to `energy` at once.
    assert again.offer(3, force, average, new) and again.step == 3
    assert not again.offer(4, Errors(float("nan"), 0.0, None), average, new)
    assert not again.offer(4, force, average, new)


def test_a_deleted_best_model_comes_back(folder):
    train_nep(folder, device="cpu", learning_rate="0.9 0.9", warmup=0, output_interval=1)
    kept = contents(folder)
    step = read_results(folder).history
    assert step.step[step.best] < 9  # this rate does not end with the best
    (folder / "nep_best.txt").unlink()
    train_nep(folder, device="cpu", learning_rate="0.9 0.9", warmup=0, output_interval=1)
    assert contents(folder)["nep_best.txt"] == kept["nep_best.txt"] != kept["nep.txt"]


def test_the_table_tells_both_models_where_they_differ(folder, capsys):
    train_nep(folder, device="cpu", learning_rate="0.9 0.9", warmup=0, output_interval=1)
    for repeated in (False, True):
        text = capsys.readouterr().out
        assert ("nothing to do" in text) == repeated
        table = text[text.rindex("RMSE  ") :].splitlines()
        rows = {" ".join(line.split()[:2]): line.split()[2:] for line in table[1:7]}
        for model in ("nep.txt", "nep_best.txt"):
            found = predict_dataset(folder / model, folder / "test.xyz", device="cpu").errors
            told = [float(x) for x in rows[f"{model} test"]]
            wanted = [1e3 * x for x in (found.energy, found.force, found.virial)]
            assert told == pytest.approx(wanted, rel=1e-3, abs=0.02)
        train_nep(folder, device="cpu", learning_rate="0.9 0.9", warmup=0, output_interval=1)


def test_early_stop(folder, capsys):
    settings = dict(
        device="cpu", learning_rate="0.9 0.9", warmup=0, output_interval=1, generation=400
    )
    found = train_nep(folder, early_stop=5, **settings)
    history = read_results(folder).history
    last, best = int(history.step[-1]), int(history.step[history.best])
    assert last == best + 5 < 400
    assert "stopped early" in capsys.readouterr().out
    assert train_nep(folder, early_stop=5, **settings) == found
    assert "nothing to do" in capsys.readouterr().out
    train_nep(folder, early_stop=0, **{**settings, "generation": last + 4})
    assert read_results(folder).history.step[-1] == last + 4


def test_a_set_without_labels_that_count_judges_nothing(tmp_path):
    """Its loss would be 0 from the first report on."""
    bare = [replace(f, energy=None, forces=None, virial=None) for f in random_frames(2, 40)]
    folder = make_run(tmp_path / "run", random_frames(6), test=bare, generation=12)
    train_nep(folder, device="cpu", early_stop=8, output_interval=4)
    history = read_results(folder).history
    assert history.step[-1] == 12 and history.step[history.best] > 4
    energies_alone = [replace(f, forces=None, virial=None) for f in random_frames(2, 40)]
    other = make_run(tmp_path / "other", random_frames(6), test=energies_alone, generation=12)
    train_nep(other, device="cpu", output_interval=4, lambda_e=0)
    assert "loss on the test set" not in (other / "nepkit.log").read_text()


def test_early_stop_counts_in_the_last_stage():
    stages = (Stage(generation=100), Stage(generation=100))
    config = NepConfig(None, stages, early_stop=20, output_interval=10)
    assert not stalled(config, 90, 10) and not stalled(config, 110, 10)
    assert stalled(config, 120, 10) and not stalled(config, 120, 110) and stalled(config, 130, 110)
    assert not stalled(replace(config, early_stop=0), 200, 10)


def test_early_stop_waits_for_reports(folder):
    """Between them nobody looks for a better model."""
    train_nep(folder, device="cpu", early_stop=2, output_interval=4, generation=16)
    assert read_results(folder).history.step[0] == 4 and len(read_results(folder).history.step) > 1


def test_keywords(folder):
    config = read_nep_in(folder / "nep.in", {"early_stop": 50})
    assert (config.valid_ratio, config.early_stop) == (0.25, 50)
    for value in (1, -0.1):
        with pytest.raises(UserError, match="valid_ratio"):
            read_nep_in(folder / "nep.in", {"valid_ratio": value})


def test_frames_of_a_store_are_held_out_as_those_in_memory(tmp_path):
    frames, folders = random_frames(12), {}
    for name in ("memory", "store", "windows"):
        folder = folders[name] = make_run(tmp_path / name, frames, valid_ratio=0.3, batch=2)
        if name != "memory":
            settings = read_nep_in(folder / "nep.in").model
            open_store(folder / "train.xyz", settings).close()
        with memory_budget(5_000) if name == "windows" else nullcontext():
            found = train_nep(folder, device="cpu", generation=12, output_interval=4)
        assert set(found) == {"train", "valid"}
    assert "are read from" in (folders["windows"] / "nepkit.log").read_text()
    held = [(folder / "valid_frames.txt").read_text() for folder in folders.values()]
    assert len(set(held)) == 1 and len(held[0].split()) == 4
    for name in ("nep.txt", "nep_best.txt", "loss.out", "energy_valid.out", "largest_errors.csv"):
        assert (folders["store"] / name).read_bytes() == (folders["memory"] / name).read_bytes()
    # Windows see the frames in another order, and the same ones.
    labels = [np.loadtxt(folders[k] / "energy_valid.out")[:, 1] for k in ("memory", "windows")]
    np.testing.assert_array_equal(*labels)
