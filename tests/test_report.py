"""The web page about a run: what is in it, and what it does in a browser."""

import gzip
import json
import re
import shutil
import time
from pathlib import Path

import numpy as np
import pytest
from browser import Page
from run_files import make_run, random_frames

import nepkit
from nepkit import UserError
from nepkit.cli import main
from nepkit.data.xyz import read_xyz
from nepkit.report import content, write_report
from nepkit.train.compared import Compared

KINDS = {"energy": 1, "force": 3, "virial": 6}


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A run with a test set and sources, its data elsewhere."""
    root = tmp_path_factory.mktemp("finished")
    frames = [*random_frames(5, extra="config_type=a/1"), *random_frames(3, 20)]
    data = make_run(root / "data", frames, random_frames(4, 70, extra="config_type=</script>"))
    nepkit.train_nep(data, out=root / "run", device="cpu", generation=9)
    return root / "run"


@pytest.fixture
def run(finished, tmp_path):
    """A copy to change."""
    shutil.copytree(finished, tmp_path / "run")
    for name in ("train", "test"):
        shutil.copy(finished.parent / "data" / f"{name}.xyz", tmp_path / "run")
    return tmp_path / "run"


@pytest.fixture(scope="module")
def page(finished, tmp_path_factory):
    return write_report(finished, out=tmp_path_factory.mktemp("page") / "page.html")


def embedded(path: Path) -> dict:
    """The data in a report."""
    text = path.read_text(encoding="utf-8")
    (found,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', text)
    return json.loads(found)


def cells(path: Path) -> list[list[str]]:
    """The rows of the tables in a report."""
    rows = re.findall(r"<tr>(<td>.*?)</tr>", path.read_text(encoding="utf-8"))
    return [re.findall("<td>(.*?)</td>", row) for row in rows]


def table(folder: Path, name: str) -> np.ndarray:
    return np.loadtxt(folder / name, ndmin=2)


def test_dots_are_the_numbers_of_the_files(finished, page):
    found = embedded(page)
    assert found["embedded"]
    for name in ("train", "test"):
        path = finished.parent / "data" / f"{name}.xyz"
        frames, members = read_xyz(path), found["sets"][name]
        assert "".join(members["frames"]["text"]) == path.read_text()
        assert members["frames"]["source"] == [frame.source for frame in frames]
        assert members["frames"]["formula"][:3] == ["SiGe", "Si2Ge", "Si2Ge2"]
        for kind, width in KINDS.items():
            dots, numbers = members["dots"][kind], table(finished, f"{kind}_{name}.out")
            np.testing.assert_allclose(dots["predicted"], numbers[:, :width].ravel(), atol=6e-7)
            np.testing.assert_allclose(dots["label"], numbers[:, width:].ravel(), atol=6e-7)
        atoms = [(f.index, k) for f in frames for k in range(len(f))]
        force = members["dots"]["force"]
        assert list(zip(force["frame"], force["atom"])) == atoms
        assert force["element"][:3] == ["Si", "Ge", "Si"]
        assert members["dots"]["energy"]["frame"] == list(range(len(frames)))


def test_curves_are_the_history(finished, page):
    history = embedded(page)["history"]
    rows = np.loadtxt(finished / "history.csv", delimiter=",", skiprows=1)
    assert history["step"] == [3, 6, 9]
    np.testing.assert_allclose(history["loss"], table(finished, "loss.out")[:, 1], rtol=1e-5)
    np.testing.assert_allclose(history["learning_rate"], rows[:, 3], rtol=1e-5)
    for k, (name, kind) in enumerate((n, k) for n in ("train", "test") for k in KINDS):
        np.testing.assert_allclose(history["errors"][name][kind], 1e3 * rows[:, 5 + k], atol=1e-5)
    assert history["best"] == np.argmin(rows[:, 8:] ** 2 @ [1, 1, 0.1])


def test_tables_settings_and_versions(finished, page):
    errors = {name: table(finished, f"force_{name}.out") for name in ("train", "test")}
    errors = {name: numbers[:, :3] - numbers[:, 3:] for name, numbers in errors.items()}
    rows = cells(page)
    assert [row[0] for row in rows] == [
        "train", "test", "(no config_type)", "&lt;", "a", "Si", "Ge", "2 atoms",
        "3 atoms", "4 atoms",
    ]  # fmt: skip
    for row, error in zip(rows, errors.values()):
        assert row[4] == f"{1e3 * np.sqrt(np.mean(error**2)):.2f}"
        assert row[5] == f"{1e3 * np.mean(abs(error)):.2f}"
    n_atoms = [len(f) for f in read_xyz(finished.parent / "data" / "train.xyz")]
    assert rows[4][3:5] == [
        f"{1e3 * np.sqrt(np.mean(errors['train'][: sum(n_atoms[:5])] ** 2)):.2f}",
        "–",
    ]
    text = page.read_text(encoding="utf-8")
    assert (finished / "nepkit_resolved.in").read_text() in text
    assert f"nepkit {nepkit.__version__}, python 3." in text
    assert re.search(r"<dt>device</dt><dd>CPU, .*float32, analytic forces</dd>", text)
    assert "8 frames" in text and "4 frames" in text


def test_one_file_that_needs_no_network(page):
    text = page.read_text(encoding="utf-8")
    assert not re.findall(r"https?:|\bsrc=|<link|@import|url\(", text)
    assert "[[" not in re.sub(r"<script.*?</script>", "", text, flags=re.DOTALL)


def test_the_template_is_installed_with_the_package():
    root = Path(nepkit.__file__).parents[1]
    if not (root / "pyproject.toml").exists():
        pytest.skip("not a source tree")
    data = re.search(r'"nepkit.report" = (\[.*\])', (root / "pyproject.toml").read_text())[1]
    parts = [path for path in (root / "nepkit" / "report").iterdir() if path.is_file()]
    parts = [path for path in parts if path.suffix != ".py"]
    assert len(parts) == 4
    assert all(any(path.match(glob) for glob in json.loads(data)) for path in parts)


def test_large_sets_are_thinned_and_all_large_errors_kept(run, monkeypatch, tmp_path):
    generator = np.random.default_rng(0)
    label = generator.normal(size=(1000, 3))
    label[5] = np.nan
    compared = Compared(label, label + generator.normal(size=(1000, 3)) ** 3)
    rows = content.thinned(compared, 100)
    largest = np.nan_to_num(abs(compared.error).max(1), nan=-1)
    assert len(set(rows.tolist())) == 100 and (np.diff(rows) > 0).all() and 5 not in rows
    assert set(np.argsort(-largest)[:50].tolist()) <= set(rows.tolist())
    assert np.array_equal(rows, content.thinned(compared, 100))
    assert len(content.thinned(compared, 2000)) == 999
    monkeypatch.setitem(content.MOST_DOTS, "force", 60)
    path = write_report(run)
    assert "Force, train: 13 of 23 atoms are drawn, the 6 of the largest errors" in path.read_text()
    force = embedded(path)["sets"]["train"]["dots"]["force"]
    assert len(force["label"]) == 39 and len(force["frame"]) == 13


def test_many_frames_are_not_embedded(run, monkeypatch):
    monkeypatch.setattr(content, "MOST_TEXT", 1000)
    path = write_report(run)
    found = embedded(path)
    assert not found["embedded"] and found["sets"]["train"]["frames"]["text"] is None
    assert "a selection is saved as a list of their numbers (CSV)" in path.read_text()


def test_frames_of_compressed_files_and_between_empty_lines(run):
    text = "\n".join(f"{part}" for part in (run / "train.xyz").read_text().split("\n"))
    first = (run / "train.xyz").read_text()
    with gzip.open(run / "train.xyz.gz", "wb") as file:
        file.write(b"\xef\xbb\xbf" + text.encode().rstrip(b"\n"))
    (run / "train.xyz").unlink()
    (run / "test.xyz").write_text(
        "\n\n" + (run / "test.xyz").read_text().replace("\n2\n", "\n\n2\n")
    )
    sets = embedded(write_report(run))["sets"]
    assert "".join(sets["train"]["frames"]["text"]) == first
    assert sets["test"]["frames"]["text"][2].startswith("4\n")
    assert all(len(t.splitlines()) == int(t.split()[0]) + 2 for t in sets["test"]["frames"]["text"])


def test_without_the_data_and_without_predictions(run, tmp_path):
    (run / "nepkit_run.json").unlink()
    for name in ("train", "test"):
        (run / f"{name}.xyz").unlink()
    out = tmp_path / "page.html"
    write_report(run, out=out)
    assert "train.xyz was not found" in out.read_text()
    assert embedded(out)["sets"]["test"]["frames"] is None
    for path in run.glob("*_t*.out"):
        path.unlink()
    write_report(run, out=out)
    assert "the run has not ended" in out.read_text() and not embedded(out)["sets"]


def test_missing_labels(tmp_path):
    frames = random_frames(4, virial=None)
    frames[1:2] = random_frames(1, 9, forces=None, virial=None)
    frames[2:3] = random_frames(1, 30, virial=None, energy=900.0, extra="energy_weight=0")
    folder = make_run(tmp_path / "run", frames)
    errors = nepkit.train_nep(folder, device="cpu")["train"]
    path = write_report(folder)
    # An energy that the training ignores is no error.
    assert cells(path)[0][1] == f"{1e3 * errors.energy:.2f}"
    dots = embedded(path)["sets"]["train"]["dots"]
    assert dots["energy"]["frame"] == [0, 1, 3]
    assert set(dots) == {"energy", "force"}
    assert sorted(set(dots["force"]["frame"])) == [0, 2, 3]


def test_command_and_files_of_others(run, tmp_path, capsys):
    assert main(["report", str(run)]) == 0
    assert main(["report", str(run)]) == 0
    assert capsys.readouterr().out.splitlines() == [str(run / "report.html")] * 2
    out = tmp_path / "page.html"
    assert main(["report", str(run), "--out", str(out)]) == 0
    assert main(["report", str(run), "--out", str(out)]) == 0
    out.write_text("his")
    assert main(["report", str(run), "--out", str(out)]) == 2
    assert "page.html: not a report of nepkit" in capsys.readouterr().err
    assert out.read_text() == "his"
    (run / "report.html").write_text("his")
    with pytest.raises(UserError, match=r"report\.html: changed since nepkit wrote it"):
        write_report(run)


PLACE = """(() => {{
  const plot = plots.find(p => p.canvas.getAttribute("aria-label").startsWith("{title}: NEP"));
  plot.canvas.scrollIntoView({{block: "center", behavior: "instant"}});
  const {{left, top}} = plot.canvas.getBoundingClientRect();
  return [left + plot.x({x}), top + plot.y({y})];
}})()"""


def place(browser: Page, title: str, x: float, y: float) -> list[float]:
    """Where in the window a label and a prediction lie."""
    return browser.value(PLACE.format(title=title, x=x, y=y))


def button(browser: Page, name: str) -> list[float]:
    """Where in the window a button lies."""
    browser.value(f"document.getElementById('{name}').scrollIntoView({{block: 'center'}})")
    edges = f"document.getElementById('{name}').getBoundingClientRect()"
    return browser.value(f"(r => [r.left + 5, r.top + 5])({edges})")


def arrived(path: Path) -> Path:
    """A file that the browser is saving."""
    end = time.monotonic() + 30
    while not path.exists() and time.monotonic() < end:
        time.sleep(0.05)
    return path


def test_pointing_at_a_dot_tells_what_it_is(page, tmp_path):
    test = embedded(page)["sets"]["test"]
    with Page(page, tmp_path) as browser:
        for title, kind, k in (
            ("Energy", "energy", 2),
            ("Force", "force", 10),
            ("Virial", "virial", 20),
        ):
            dots, width = test["dots"][kind], KINDS[kind]
            label, predicted = dots["label"][k], dots["predicted"][k]
            browser.mouse("mouseMoved", *place(browser, title, label, predicted))
            assert browser.value("!tip.hidden")
            told = browser.value("tip.textContent").split("\n")
            frame = dots["frame"][k // width]
            unit = "eV/Å" if kind == "force" else "eV/atom"
            assert told[:3] == [
                f"test, frame {frame}", "source </script>", test["frames"]["formula"][frame]
            ]  # fmt: skip
            if kind == "force":
                atom, element = dots["atom"][k // 3], dots["element"][k // 3]
                assert told[3:5] == [f"atom {atom}, {element}", f"component {'xyz'[k % 3]}"]
            assert told[-3:] == [
                f"reference {label:.6f}".rstrip("0") + f" {unit}",
                f"prediction {predicted:.6f}".rstrip("0") + f" {unit}",
                f"error {1e3 * (predicted - label):.3f} m{unit}",
            ]
        browser.mouse("mouseMoved", 5, 5)
        assert browser.value("tip.hidden") and not browser.faults


def test_frames_in_a_rectangle_are_listed_and_saved(page, finished, tmp_path):
    found = embedded(page)
    energies = {name: found["sets"][name]["dots"]["energy"] for name in ("train", "test")}
    with Page(page, tmp_path) as browser:
        low, high = browser.value("plots[5].xEnds")
        middle = np.median(energies["train"]["label"])
        corner = place(browser, "Energy", low, low)
        browser.mouse("mouseMoved", *corner)
        browser.mouse("mousePressed", *corner)
        end = place(browser, "Energy", middle, high)
        browser.mouse("mouseMoved", *end)
        browser.mouse("mouseReleased", *end)
        chosen = [
            (name, frame)
            for name in ("test", "train")
            for frame, label in zip(energies[name]["frame"], energies[name]["label"])
            if label <= middle
        ]
        rows = browser.value(
            "[...document.querySelectorAll('#selected tr')].map(r => [...r.cells].map(c => c.textContent))"
        )
        assert [(row[0], int(row[1])) for row in rows] == chosen
        assert browser.value("count.textContent") == f"{len(chosen)} frames selected"
        browser.click(*button(browser, "save"))
        saved = arrived(tmp_path / "selected.xyz")
        expected = [found["sets"][name]["frames"]["text"][frame] for name, frame in chosen]
        assert saved.read_text() == "".join(expected)
        assert len(read_xyz(saved)) == len(chosen)
        browser.click(*button(browser, "clear"))
        assert browser.value("document.getElementById('selection').hidden")
        dots = found["sets"]["train"]["dots"]["energy"]
        browser.click(*place(browser, "Energy", dots["label"][3], dots["predicted"][3]))
        assert browser.value("[...selected.keys()].join()") == "train 3"
        assert not browser.faults


def test_a_list_is_saved_where_frames_are_not_embedded(run, monkeypatch, tmp_path):
    monkeypatch.setattr(content, "MOST_TEXT", 0)
    page = write_report(run)
    with Page(page, tmp_path) as browser:
        assert browser.value("document.getElementById('save').textContent").endswith("CSV")
        browser.value("select(data.kinds[0], dotsOf(data.kinds[0])); save()")
        lines = arrived(tmp_path / "selected.csv").read_text().splitlines()
        assert lines[:2] == ["set,frame,source", 'test,0,"</script>"'] and len(lines) == 13


def test_schemes_and_paper(page, tmp_path):
    back = "getComputedStyle(document.body).backgroundColor"
    with Page(page, tmp_path, dark=True) as browser:
        assert browser.value(back) == "rgb(22, 24, 27)"
        assert browser.value("color('train')").strip() == "#56b4e9"
        browser.value("window.dispatchEvent(new Event('beforeprint'))")
        assert browser.value(back) == "rgb(255, 255, 255)"
        assert browser.value("color('train')").strip() == "#0072b2"
        browser.value("window.dispatchEvent(new Event('afterprint'))")
        assert browser.value(back) == "rgb(22, 24, 27)"
        browser.value("plots[1].canvas.scrollIntoView({block: 'center'})")
        edges = "plots[1].canvas.getBoundingClientRect()"
        spot = browser.value(f"(r => [r.left + 200, r.top + 60])({edges})")
        browser.mouse("mouseMoved", *spot)
        told = browser.value("tip.textContent").split("\n")
        assert re.fullmatch(r"step [369]", told[0]) and told[2].startswith("test ")
        assert not browser.faults
