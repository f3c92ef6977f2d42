"""What README.md shows is true: its Python and its commands run, its tables name every keyword."""

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import nepkit
from nepkit.cli import CALLS, main
from nepkit.config import ModelSettings, NepConfig, Stage
from nepkit.keywords import KEYWORDS

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
# The examples train for a minute; here a few steps show that they run.
QUICK = re.sub(r"generation=\d+", "generation=20", README)


def blocks(language):
    return re.findall(rf"^```{language}\n(.*?)^```", QUICK, re.MULTILINE | re.DOTALL)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A place with data/sige, as in a clone, that may be written to."""
    shutil.copytree(ROOT / "data" / "sige", tmp_path / "data" / "sige")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_python_runs(folder, capsys):
    """One block after the other: later ones use what earlier ones made."""
    for code in blocks("python"):
        exec(compile(code, "README.md", "exec"), {"__name__": "readme"})  # noqa: S102
    printed = capsys.readouterr().out
    assert "(25,)" in printed and "GPa" in printed


def test_commands_run(folder):
    lines = [line for block in blocks("bash") for line in block.splitlines()]
    commands = [shlex.split(line)[1:] for line in lines if line.startswith("nepkit ")]
    assert {command[0] for command in commands} == set(CALLS)
    for command in commands:
        assert main(command) == 0
    assert (folder / "predictions" / "force_test.out").exists()
    assert (folder / "clean.xyz").read_bytes() == (folder / "data/sige/train.xyz").read_bytes()


def test_every_command_is_in_the_table():
    section = README.split("### Commands")[1].split("\n###")[0]
    assert set(re.findall(r"^\| `nepkit (\w+) ", section, re.MULTILINE)) == set(CALLS)


def test_scripts_exist_and_are_sound():
    for name in re.findall(r"scripts/\w+\.(?:sh|py)", README):
        path = ROOT / name
        assert path.exists(), name
        if path.suffix == ".sh" and sys.platform != "win32":
            subprocess.run(["bash", "-n", path], check=True)


def test_every_written_file_is_named(folder):
    nepkit.train_nep("data/sige", out="out", generation=5)
    section = README.split("### Files")[1].split("\n## ")[0]
    for path in (folder / "out").iterdir():
        name = re.sub(r"^(force|virial|stress)_train", "energy_train", path.name)
        name = re.sub(r"_test\.out", "_train.out", name).replace("force_", "energy_")
        name = re.sub(r"^(virial|stress)_train", "energy_train", name)
        assert f"`{name}`" in section, path.name


def test_keyword_tables_are_complete_and_tell_the_defaults():
    section = README.split("## nep.in")[1].split("\n## ")[0]
    told = {}
    for row in re.findall(r"^\| (`.*?) \| (.*?) \|", section, re.MULTILINE):
        names = [word.split()[0] for word in re.findall(r"`(.*?)`", row[0])]
        values = [word.strip("`") for word in row[1].split(", ")]
        told.update(dict(zip(names, values if len(values) == len(names) else values * len(names))))
    wanted = {
        name for name, keyword in KEYWORDS.items() if keyword.scope in ("model", "run", "stage")
    }
    assert wanted | {"stage"} == set(told)
    for name in KEYWORDS:
        assert f"`{name}" in section or KEYWORDS[name].scope == "refused"
    model = ModelSettings(("Si",), (8.0,), (4.0,))
    for settings in (model, NepConfig(model), Stage()):
        for name, told_value in told.items():
            value = getattr(settings, name, None)
            if isinstance(value, (int, float)) and name not in ("l_max",) and value is not None:
                assert float(told_value) == float(value), name
            elif isinstance(value, tuple) and value and name != "type":
                assert tuple(map(float, told_value.split())) == value, name
