"""The house rules: imports run one way, files and functions stay short, imports have no effects."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest
from shares import environment

ROOT = Path(__file__).resolve().parents[1]
FILES = sorted((ROOT / "nepkit").rglob("*.py"))
# A module imports from its own layer and those below.
LAYERS = [
    ["cli", "cli_look", "parser", "help_pages"],
    ["calculator", "predict", "doctor", "info", "bench", "prepare"],
    ["plot", "profile", "report"],
    ["results"],
    ["train"],
    ["model"],
    ["ops"],
    ["data"],
    ["config", "settings", "nep_in", "keywords"],
    ["units", "files", "errors", "text"],
]
LEVEL = {name: level for level, layer in enumerate(LAYERS) for name in layer}
# The package itself hands on what it exports; entry points call the command line.
ENTRY_POINTS = [path for path in FILES if path.name == "__main__.py"]
ALLOWED = {
    "pyproject.toml", "nepkit", "data", "scripts", "tests", "examples",
    "README.md", "LICENSE", "CHANGELOG.md",
}  # fmt: skip


def part_of(module: list[str]) -> str | None:
    """The part of nepkit, a key of LEVEL, that a dotted name belongs to."""
    return module[1] if module[:1] == ["nepkit"] and len(module) > 1 else None


def imported(path: Path) -> set[str]:
    """The parts of nepkit that a file imports, its ``__main__`` block apart."""
    package = ["nepkit", *path.relative_to(ROOT / "nepkit").parts[:-1]]
    tree = ast.parse(path.read_text(encoding="utf-8"))
    tree.body = [
        node
        for node in tree.body
        if not (isinstance(node, ast.If) and "__main__" in ast.unparse(node.test))
    ]
    modules = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            modules += [alias.name.split(".") for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            base = base + (node.module.split(".") if node.module else [])
            modules += [[*base, alias.name] for alias in node.names]
    return {part for module in modules if (part := part_of(module))}


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_run_downward(path):
    if path in ENTRY_POINTS or path == ROOT / "nepkit" / "__init__.py":
        return
    here = path.relative_to(ROOT / "nepkit").parts[0].removesuffix(".py")
    assert here in LEVEL, f"{here} is in no layer: give it a place in LAYERS"
    upward = {part for part in imported(path) if LEVEL.get(part, len(LAYERS)) < LEVEL[here]}
    assert not upward, f"{here} is below {upward}"


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_files_and_functions_are_short(path):
    text = path.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 250
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    long = {
        node.name: node.end_lineno - node.lineno + 1
        for node in ast.walk(ast.parse(text))
        if isinstance(node, functions) and node.end_lineno - node.lineno >= 60
    }
    assert not long


def test_top_level_holds_nothing_else():
    git = ["git", "-C", str(ROOT), "ls-files"]
    try:
        names = subprocess.run(git, capture_output=True, text=True, check=True).stdout.splitlines()
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("not a git checkout")
    top = {Path(name).parts[0] for name in names if (ROOT / name).exists()}
    assert {name for name in top if not name.startswith(".")} <= ALLOWED


# Prints what a library has no business to change, before and after the import of nepkit.
STATE = """
import logging, os, random, signal, sys, warnings
import ase, ase.data, ase.io, numpy, torch, tqdm, vesin

def state():
    return {
        "environment": dict(os.environ),
        "folder": os.getcwd(),
        "warnings": list(map(str, warnings.filters)),
        "logging": (logging.root.level, list(map(str, logging.root.handlers)), logging.root.manager.disable),
        "signals": [str(signal.getsignal(s)) for s in (signal.SIGINT, signal.SIGTERM)],
        "hooks": (sys.excepthook, sys.displayhook),
        "numpy": (numpy.geterr(), numpy.get_printoptions(), str(numpy.random.get_state())),
        "random": random.getstate(),
        "torch": (
            torch.get_default_dtype(), torch.get_num_threads(), torch.is_grad_enabled(),
            torch.get_float32_matmul_precision(), torch.are_deterministic_algorithms_enabled(),
            torch.initial_seed(), torch.get_rng_state().tolist(), torch.get_default_device(),
        ),
    }

before = state()
import nepkit, nepkit.cli, nepkit.plot
after = state()
print([name for name in before if before[name] != after[name]])
"""


def test_importing_changes_no_global_state():
    run = subprocess.run(
        [sys.executable, "-c", STATE],
        check=False,
        capture_output=True,
        text=True,
        env=environment(),
        timeout=120,
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout.strip() == "[]"
