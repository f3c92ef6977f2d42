"""Which files a run writes, and what it writes down of its inputs."""

from __future__ import annotations

import os
import platform
import re
from pathlib import Path

import numpy as np
import torch

from .. import __version__ as version
from ..config import NepConfig, to_nep_in
from ..files import write_atomically
from . import breakdown, checkpoint, profiling
from .best import over
from .fine_tune import located_from
from .folder import OutputFolder
from .log import RunLog
from .outputs import Errors, output_names
from .reading import VALID_FRAMES, Source
from .start import Setup


def about(files: dict[str, Path], folder: OutputFolder) -> dict:
    """Where the data lie, seen from the output folder, and which versions are at work."""
    return {
        "data": {name: os.path.relpath(path, folder.path) for name, path in files.items()},
        "versions": {
            "nepkit": version, "python": platform.python_version(), "torch": torch.__version__,
            "numpy": np.__version__,
        },
        "system": platform.platform(),
    }  # fmt: skip


def names_of(setup: Setup, folder: OutputFolder, config: NepConfig, sets: list[str]) -> list[str]:
    """All files that a run writes, those of save_potential as far as they exist."""
    names = [
        "nepkit.log", "nepkit_resolved.in", "loss.out", "history.csv", "parity.png",
        *[profiling.NAME] * (setup.profile > 0), *results_of(sets),
    ]  # fmt: skip
    if _copies_zbl(setup, folder, config):
        names.append("zbl.in")
    interval, total = config.save_potential[0], sum(s.generation or 0 for s in config.stages)
    for entry in folder.path.iterdir() if interval else ():
        match = re.fullmatch(r"nep_gen(\d+)\.(txt|restart)", entry.name)
        if match and int(match[1]) <= total and int(match[1]) % interval == 0:
            names.append(entry.name)
    return names


def results_of(sets: list[str]) -> list[str]:
    """What every finished run with these data sets has."""
    outputs = [name for data in sets for name in output_names(data)]
    names = ["nep.txt", "nep_best.txt", "nep.restart", checkpoint.NAME]
    names += [VALID_FRAMES] * ("valid" in sets)
    return [*names, *breakdown.breakdown_names(), *outputs]


def results(
    state: dict, config: NepConfig, folder: OutputFolder, sets: list[str]
) -> dict[str, dict[str, Errors]]:
    """Errors by model and set of a run that is complete, its files as it left them; else nothing."""
    complete = over(config, state["done"], state["best"]["step"])
    if not complete or not folder.unchanged(results_of(sets)):
        return {}
    return {
        model: {name: Errors(**numbers) for name, numbers in found.items()}
        for model, found in state["finished"].items()
    }


def _copies_zbl(setup: Setup, folder: OutputFolder, config: NepConfig) -> bool:
    """Whether zbl.in has to lie beside nepkit_resolved.in and does not lie there anyway."""
    zbl = config.model.zbl
    flexible = zbl is not None and zbl.flexible is not None
    return flexible and not folder.path.samefile(setup.run_dir)


def write_inputs(
    setup: Setup,
    folder: OutputFolder,
    config: NepConfig,
    sources: dict[str, Source],
    log: RunLog,
    changed: bool,
):
    """What it takes to train the same again, besides the data."""
    path = folder.path / "nepkit_resolved.in"
    config = located_from(config, setup.run_dir, folder.path)
    if changed and path.exists():
        before = path.read_text(encoding="utf-8").splitlines()
        for line in to_nep_in(config).splitlines():
            if line not in before:
                log(f"new in this part of the run: {line}")
    write_atomically(path, to_nep_in(config))
    if _copies_zbl(setup, folder, config):
        write_atomically(folder.path / "zbl.in", (setup.run_dir / "zbl.in").read_bytes())
    if "valid" in sources:
        numbers = sources["valid"].labels.index.tolist()
        write_atomically(folder.path / VALID_FRAMES, "".join(f"{k}\n" for k in numbers))
