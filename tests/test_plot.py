"""The figures of a run."""

import re
import subprocess
import sys

import numpy as np
import pytest
from run_files import make_run, random_frame, random_frames, write_xyz
from shares import environment

import nepkit
import nepkit.units
from nepkit import UserError, plot
from nepkit.cli import main
from nepkit.model.evaluate import Prediction
from nepkit.train.folder import OutputFolder
from nepkit.train.outputs import Targets, write_outputs

matplotlib = pytest.importorskip("matplotlib")
from nepkit.plot.periodic import draw_periodic, place
from nepkit.train.compared import Scores

UNITS = ("eV/atom", "eV/Å", "eV/atom")


def write_results(folder, name: str, *missing: str, rows: int = 6):
    """Outputs of random labels and predictions 0.1 too low, some kinds without labels."""
    generator = np.random.default_rng(len(name))
    shapes = {"energy": (rows,), "forces": (rows, 3), "virial": (rows, 6)}
    numbers = {key: generator.normal(size=shape) for key, shape in shapes.items()}
    labels = {
        key: np.full(shape, np.nan) if key in missing else numbers[key] + 0.1
        for key, shape in shapes.items()
    }
    ones = np.ones(rows)
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


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A run with a test set and two sources, its data elsewhere."""
    root = tmp_path_factory.mktemp("finished")
    frames = [
        *random_frames(5, extra="config_type=a"),
        *random_frames(3, 20, extra="config_type=b/2"),
    ]
    data = make_run(root / "data", frames, random_frames(4, 70, extra="config_type=b/31"))
    nepkit.train_nep(data, out=root / "run", device="cpu", generation=9)
    return root / "run"


def written(axes) -> list[list[str]]:
    """The lines of each text in a panel."""
    return [text.get_text().split("\n") for text in axes.texts]


def test_three_square_panels_with_units_and_errors(tmp_path, figures):
    write_results(tmp_path, "train")
    write_results(tmp_path, "test")
    path = plot.plot_parity(tmp_path)
    assert path == tmp_path / "parity.png"
    assert path.read_bytes().startswith(b"\x89PNG")
    (figure,) = figures
    assert figure.get_figwidth() == 7
    for axes, unit in zip(figure.axes, UNITS, strict=True):
        assert axes.get_xlim() == axes.get_ylim() and axes.get_box_aspect() == 1
        assert unit in axes.get_xlabel() and unit in axes.get_ylabel()
        train, test = written(axes)
        assert train[:3] == ["train", f"RMSE 100 m{unit}", f"MAE 100 m{unit}"]
        assert test[:3] == ["test", f"RMSE 100 m{unit}", f"MAE 100 m{unit}"]
        assert list(axes.get_xticks()) == list(axes.get_yticks())
        line = axes.lines[-1]  # the test set, on top
        told = float(test[3].removeprefix("$R^2$ "))
        assert told == pytest.approx(1 - 0.01 / np.var(line.get_xdata()), abs=1e-4)


def test_labels_that_are_missing(tmp_path, figures):
    write_results(tmp_path, "train", "virial", "energy")
    write_results(tmp_path, "test", "virial")
    plot.plot_parity(tmp_path)
    energy, force = figures[0].axes
    assert [lines[0] for lines in written(energy)] == ["test"]
    assert [lines[0] for lines in written(force)] == ["train", "test"]


def test_many_points_are_shown_as_density(tmp_path, figures):
    write_results(tmp_path, "train", rows=2000)
    write_results(tmp_path, "test")
    plot.plot_run(tmp_path, format="pdf")
    parity = next(f for f in figures if "reference" in f.axes[-2].get_xlabel())
    test, train, bar = parity.axes[:3], parity.axes[3:6], parity.axes[6]
    assert not any(axes.collections for axes in [*test, train[0]])
    for axes, count in ((train[1], 6000), (train[2], 12000)):
        (density,) = axes.collections
        assert density.get_array().sum() == count and density.get_rasterized()
        assert type(density.norm).__name__ == "LogNorm"
    assert [written(axes)[0][0] for axes in (*test, *train)] == ["test"] * 3 + ["train"] * 3
    assert bar.get_ylabel() == "Labels per hexagon"
    assert len((tmp_path / "parity.pdf").read_bytes()) < 200_000


def test_equal_values_and_no_files(tmp_path):
    assert plot.plot_parity(tmp_path) is None
    (tmp_path / "energy_train.out").write_text("-5 -5\n-5 -5\n")
    (tmp_path / "force_train.out").write_text("")
    (tmp_path / "virial_train.out").write_text("nan " * 6 + "1 " * 6 + "\n")
    assert plot.plot_parity(tmp_path)
    assert [path.name for path in plot.plot_run(tmp_path)] == ["parity.png", "distribution.png"]


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
    write_results(tmp_path, "train")
    for name in ("parity.png", "distribution.png"):
        (tmp_path / name).write_text("his")
        with pytest.raises(UserError, match=rf"{name}: not written by nepkit"):
            plot.plot_run(tmp_path)
        assert (tmp_path / name).read_text() == "his"
        (tmp_path / name).unlink()
    (tmp_path / "parity.png").write_text("his")
    with pytest.raises(UserError, match=r"parity\.png: not written by nepkit"):
        plot.plot_parity(tmp_path)


def test_without_matplotlib(tmp_path, monkeypatch, capsys):
    for name in [n for n in sys.modules if n.split(".")[0] == "matplotlib"]:
        monkeypatch.setitem(sys.modules, name, None)
    for name in [n for n in sys.modules if n.startswith("nepkit.plot.")]:
        monkeypatch.delitem(sys.modules, name)
    write_results(tmp_path, "train")
    assert plot.plot_parity(tmp_path) is None
    assert main(["plot", str(tmp_path)]) == 2
    assert "pip install 'nepkit-mlip[plot]'" in capsys.readouterr().err


@pytest.mark.parametrize("kind, magic", [("png", b"\x89PNG"), ("svg", b"<?xml"), ("pdf", b"%PDF")])
def test_every_figure_in_every_format(finished, tmp_path, kind, magic, capsys):
    before = dict(matplotlib.rcParams)
    assert main(["plot", str(finished), "--format", kind, "--out", str(tmp_path)]) == 0
    names = [f"{n}.{kind}" for n in ("curves", "parity", "distribution", "elements", "sources")]
    assert capsys.readouterr().out.splitlines() == [str(tmp_path / name) for name in names]
    contents = {name: (tmp_path / name).read_bytes() for name in names}
    assert all(content.startswith(magic) for content in contents.values())
    with matplotlib.rc_context({"font.size": 30, "axes.facecolor": "red"}):
        plot.plot_run(finished, out=tmp_path, format=kind)
    assert {name: (tmp_path / name).read_bytes() for name in names} == contents
    assert dict(matplotlib.rcParams) == before


def test_figures_need_no_window_system(finished, tmp_path):
    program = (
        "import sys; from nepkit.plot import plot_run\n"
        f"plot_run({str(finished)!r}, out={str(tmp_path)!r}); print(*sys.modules)\n"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        env=environment(), capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert "matplotlib.figure" in done.stdout and "pyplot" not in done.stdout


def test_curves_show_loss_errors_and_the_best_step(finished, tmp_path, figures):
    plot.plot_run(finished, out=tmp_path)
    axes = figures[0].axes
    labels = ["Loss", *(f"{name} RMSE\n(m{unit})" for name, unit in
                        zip(("Energy", "Force", "Virial"), UNITS)), "Learning rate"]  # fmt: skip
    assert [panel.get_ylabel() for panel in axes] == labels
    assert axes[-1].get_xlabel() == "Step" and figures[0].get_figwidth() == 3.4
    history = np.loadtxt(finished / "history.csv", delimiter=",", skiprows=1)
    for panel, column in zip(axes[1:4], (5, 6, 7)):
        train, test, best = panel.lines
        np.testing.assert_allclose(train.get_ydata(), 1e3 * history[:, column], rtol=1e-6)
        np.testing.assert_allclose(test.get_ydata(), 1e3 * history[:, column + 3], rtol=1e-6)
        assert panel.get_yscale() == "log"
    np.testing.assert_allclose(axes[4].lines[0].get_ydata(), history[:, 3])
    step = int(history[np.argmin(history[:, 8:] ** 2 @ [1, 1, 0.1]), 0])
    assert axes[0].texts[0].get_text() == f"best: step {step}" and best.get_xdata()[0] == step


def test_bars_are_the_errors_of_each_group(finished, tmp_path, figures):
    plot.plot_run(finished, out=tmp_path)
    by_element, by_source = figures[3:]
    symbols, forces = [], np.loadtxt(finished / "force_train.out")
    lines = (finished.parent / "data" / "train.xyz").read_text().splitlines()
    symbols = [line.split()[0] for line in lines if re.match("(Si|Ge) ", line)]
    (panel,) = by_element.axes
    names = [label.get_text() for label in panel.get_yticklabels()]
    bars = [bar.get_width() for bar in panel.containers[0]]
    for name, width in zip(names, bars, strict=True):
        error = (forces[:, :3] - forces[:, 3:])[np.array(symbols) == name]
        assert width == pytest.approx(1e3 * np.sqrt(np.mean(error**2)))
    assert [axes.get_xlabel() for axes in by_source.axes] == [
        f"{name} RMSE (m{unit})" for name, unit in zip(("Energy", "Force", "Virial"), UNITS)
    ]
    energy = np.loadtxt(finished / "energy_train.out")[:5]
    names = [label.get_text() for label in by_source.axes[0].get_yticklabels()]
    assert sorted(names) == ["a", "b"]  # not the numbers of the frames
    width = by_source.axes[0].containers[0][names.index("a")].get_width()
    assert width == pytest.approx(1e3 * np.sqrt(np.mean((energy[:, 0] - energy[:, 1]) ** 2)))
    assert np.isnan(by_source.axes[0].containers[1][names.index("a")].get_width())


def test_distributions_count_labels(finished, tmp_path, figures):
    plot.plot_run(finished, out=tmp_path)
    axes = figures[2].axes[0]
    energy = np.loadtxt(finished / "energy_train.out")
    error = 1e3 * abs(energy[:, 0] - energy[:, 1])
    line = axes.lines[0]
    assert line.get_xdata()[4] == pytest.approx(np.sort(error)[4])
    assert line.get_ydata()[4] == pytest.approx(100 * 5 / len(error))
    told = re.findall(r"[\d.]+", axes.get_legend().get_texts()[0].get_text())
    assert list(map(float, told)) == pytest.approx(np.quantile(error, (0.5, 0.95)), rel=5e-3)


def test_only_what_there_is(tmp_path):
    """One element, one source, no test set, no virial; then without the data; then at work."""
    frames = random_frames(4, symbols=("Si",), virial=None)
    folder = make_run(tmp_path / "run", frames, type="1 Si")
    nepkit.train_nep(folder, device="cpu")
    expected = ["curves.svg", "parity.svg", "distribution.svg"]
    assert [path.name for path in plot.plot_run(folder, format="svg")] == expected
    (folder / "train.xyz").unlink()
    assert [path.name for path in plot.plot_run(folder, format="svg")] == expected
    for path in folder.glob("*_train.out"):
        path.unlink()
    assert [path.name for path in plot.plot_run(folder)] == ["curves.png"]


def test_gpumd_counts_steps_anew_after_a_restart(tmp_path, figures):
    rows = ["50 nan 0 0 nan 1 0 0 0 0\n"]  # left out
    rows += [f"{step} 1 0 0 {1 / k} 1 0 0 0 0\n" for k, step in enumerate((100, 200, 100, 200), 1)]
    (tmp_path / "loss.out").write_text("# columns of GPUMD\n" + "".join(rows))
    assert [path.name for path in plot.plot_run(tmp_path)] == ["curves.png"]
    energy = figures[0].axes[1].lines[0]
    assert list(energy.get_xdata()) == [100, 200, 300, 400]
    assert [axes.get_ylabel()[:6] for axes in figures[0].axes] == ["Loss", "Energy", "Force "]


def test_a_run_at_work_is_drawn_elsewhere(finished, tmp_path, capsys):
    with OutputFolder(finished):
        assert main(["plot", str(finished)]) == 2
        assert "another run is at work here" in capsys.readouterr().err
        assert main(["plot", str(finished), "--out", str(tmp_path)]) == 0


def test_an_element_without_forces_does_not_take_all_colours():
    errors = {"H": 0.25, "O": 0.05, "He": 4e-10}
    groups = {"test": {e: {"force": Scores(x, x, 0.5, 3)} for e, x in errors.items()}}
    figure = draw_periodic(groups)
    told = {text.get_text() for axes in figure.axes for text in axes.texts}
    assert {"H\n250", "O\n50.0", "He\n0"} <= told
    (bar,) = (axes for main in figure.axes for axes in main.child_axes)
    assert bar.get_xlim()[0] > 10


def test_many_elements_fill_the_periodic_table(tmp_path, figures):
    elements = nepkit.units.ELEMENTS[:60]
    frames = [
        random_frame(k, symbols=(symbol, "Si"), energy=None, virial=None)
        for k, symbol in enumerate(elements)
    ]
    write_xyz(tmp_path / "train.xyz", frames)
    forces = np.concatenate([frame.forces for frame in frames])
    error = np.repeat(np.arange(1, 61), 3)[:, None] * 1e-3
    np.savetxt(tmp_path / "force_train.out", np.hstack([forces + error, forces]))
    plot.plot_run(tmp_path)
    axes = figures[-1].axes[0]
    told = {text.get_text() for text in axes.texts}
    assert {"H\n1.00", "Ce\n58.0", "Nd\n60.0"} <= told
    assert len(told) == 60 and axes.child_axes[0].get_xlabel() == "Force RMSE (meV/Å)"
    assert [place(z) for z in (1, 2, 5, 21, 57, 70, 71, 86)] == [
        (0, 0), (0, 17), (1, 12), (3, 2), (7.4, 2), (7.4, 15), (5, 2), (5, 17),
    ]  # fmt: skip


def test_wrong_folders_and_damaged_files(finished, tmp_path, capsys):
    for words, told in (
        ([str(tmp_path / "none")], "no such folder"),
        ([str(tmp_path)], "no loss.out and no energy_train.out"),
        ([str(finished), "--format", "gif"], "gif"),
    ):
        assert main(["plot", *words]) == 2
        assert told in capsys.readouterr().err
    with pytest.raises(UserError, match="png, svg or pdf"):
        plot.plot_run(finished, format="gif")
    (tmp_path / "energy_train.out").write_text("1 2\n3\n")
    with pytest.raises(UserError, match=r"energy_train\.out: damaged"):
        plot.plot_run(tmp_path)
    (tmp_path / "energy_train.out").write_text("1 2 3\n")
    with pytest.raises(UserError, match=r"energy_train\.out: 3 columns, expected 2"):
        plot.plot_run(tmp_path)
    (tmp_path / "energy_train.out").write_text("1 2\n")
    write_xyz(tmp_path / "train.xyz", random_frames(1))
    with pytest.raises(UserError, match=r"train\.xyz: not the data that"):
        plot.plot_run(tmp_path)


def test_a_run_ends_with_its_plot(tmp_path):
    folder = make_run(tmp_path / "run")
    write_xyz(folder / "test.xyz", random_frames(2, first_seed=60))
    for _ in range(2):
        assert main(["train", str(folder), "--device", "cpu"]) == 0
    assert (folder / "parity.png").exists()
