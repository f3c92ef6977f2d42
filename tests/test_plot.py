"""The parity plot of a run."""

import sys

import numpy as np
import pytest
from run_files import make_run, random_frames, write_xyz

from nepkit import UserError, plot
from nepkit.cli import main
from nepkit.model.evaluate import Prediction
from nepkit.train.outputs import Targets, write_outputs

matplotlib = pytest.importorskip("matplotlib")


def write_results(folder, name: str, *missing: str):
    """Outputs of random labels and predictions, some kinds without labels."""
    generator = np.random.default_rng(len(name))
    shapes = {"energy": (6,), "forces": (6, 3), "virial": (6, 6)}
    numbers = {key: generator.normal(size=shape) for key, shape in shapes.items()}
    labels = {
        key: np.full(shape, np.nan) if key in missing else numbers[key] + 0.1
        for key, shape in shapes.items()
    }
    ones = np.ones(6)
    targets = Targets(**labels, energy_weight=ones, n_atoms=ones, volume=ones)
    write_outputs(folder, name, Prediction(*numbers.values()), targets)


@pytest.fixture
def figures(monkeypatch):
    """The figures drawn."""
    from matplotlib.figure import Figure

    seen, save = [], Figure.savefig

    def watched(figure, *arguments, **named):
        seen.append(figure)
        save(figure, *arguments, **named)

    monkeypatch.setattr(Figure, "savefig", watched)
    return seen


def test_three_square_panels_with_units_and_errors(tmp_path, figures):
    write_results(tmp_path, "train")
    write_results(tmp_path, "test")
    path = plot.plot_parity(tmp_path)
    assert path == tmp_path / "parity.png"
    assert path.read_bytes().startswith(b"\x89PNG")
    (figure,) = figures
    for axes, unit in zip(figure.axes, ("eV/atom", "eV/Å", "eV/atom"), strict=True):
        assert axes.get_xlim() == axes.get_ylim() and axes.get_box_aspect() == 1
        assert unit in axes.get_xlabel() and unit in axes.get_ylabel()
        legend = [text.get_text() for text in axes.get_legend().get_texts()]
        assert legend == [f"train  100 m{unit}", f"test  100 m{unit}"]
        assert list(axes.get_xticks()) == list(axes.get_yticks())


def test_labels_that_are_missing(tmp_path, figures):
    write_results(tmp_path, "train", "virial", "energy")
    write_results(tmp_path, "test", "virial")
    plot.plot_parity(tmp_path)
    energy, force, virial = figures[0].axes
    assert [text.get_text() for text in energy.get_legend().get_texts()] == ["test  100 meV/atom"]
    assert len(force.get_legend().get_texts()) == 2
    assert virial.texts[0].get_text() == "no labels" and virial.get_legend() is None


def test_equal_values_and_no_files(tmp_path):
    plot.plot_parity(tmp_path)
    (tmp_path / "energy_train.out").write_text("-5 -5\n-5 -5\n")
    (tmp_path / "force_train.out").write_text("")
    (tmp_path / "virial_train.out").write_text("nan " * 6 + "1 " * 6 + "\n")
    plot.plot_parity(tmp_path)


def test_the_same_again_is_not_written_again(tmp_path):
    write_results(tmp_path, "train")
    path = plot.plot_parity(tmp_path)
    before = path.stat().st_mtime_ns
    plot.plot_parity(tmp_path)
    assert path.stat().st_mtime_ns == before
    write_results(tmp_path, "test")
    plot.plot_parity(tmp_path)
    assert path.stat().st_mtime_ns > before


def test_pictures_of_others_stay(tmp_path):
    (tmp_path / "parity.png").write_text("his")
    with pytest.raises(UserError, match=r"parity\.png: not written by nepkit"):
        plot.plot_parity(tmp_path)


def test_without_matplotlib(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    write_results(tmp_path, "train")
    assert plot.plot_parity(tmp_path) is None


def test_large_sets_are_thinned(tmp_path, figures, monkeypatch):
    monkeypatch.setattr(plot, "MOST_POINTS", 4)
    write_results(tmp_path, "train")
    plot.plot_parity(tmp_path)
    points = [len(axes.lines[-1].get_xdata()) for axes in figures[0].axes]
    assert points == [3, 4, 4]


def test_a_run_ends_with_its_plot(tmp_path):
    folder = make_run(tmp_path / "run")
    write_xyz(folder / "test.xyz", random_frames(2, first_seed=60))
    for _ in range(2):
        assert main(["train", str(folder), "--device", "cpu"]) == 0
    assert (folder / "parity.png").exists()
