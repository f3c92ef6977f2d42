"""One run from its folder to its files."""

from __future__ import annotations

import os
import platform
import re
from dataclasses import asdict
from pathlib import Path

import numpy as np
import torch

from .. import __version__ as version
from ..config import NepConfig, read_nep_in, to_nep_in
from ..errors import UserError
from ..files import write_atomically
from ..model.nep_txt_write import write_nep_restart, write_nep_txt
from . import checkpoint, profiling
from .device import check_force_mode, choose_device, describe_device, precision_type
from .fine_tune import foundation_file, frozen_descriptor, load_foundation
from .folder import OutputFolder
from .log import RunLog
from .loop import Run
from .outputs import Errors, error_table, errors, output_names, write_outputs
from .parametrisation import is_shared
from .prediction import predict_run
from .profiling import check_profile
from .reading import read_data, sizes_of
from .schedule import resolve
from .signals import Interrupted
from .start import Setup, check_neurons, data_file, data_files, new_run
from .tensorboard import check_tensorboard


def train_nep(
    run_dir: str | os.PathLike,
    *,
    out: str | os.PathLike | None = None,
    device: str = "auto",
    precision: str = "float32",
    force_mode: str = "analytic",
    seed: int | None = None,
    restart: bool = False,
    profile: int | None = None,
    tensorboard: bool = False,
    **nep_in,
) -> dict[str, Errors]:
    """Train a NEP4 potential on a GPUMD run directory.

    ``run_dir`` holds nep.in and train.xyz, and may hold test.xyz and zbl.in. Results go to ``out``
    (default: ``run_dir``): nep.txt, nep_best.txt, nep.restart, loss.out, the *_train.out and
    *_test.out of GPUMD, history.csv, nepkit_resolved.in, nepkit.log, checkpoint.pt. A run that was
    interrupted goes on where it stopped; ``restart`` moves it to previous-N and starts anew. Other
    keywords are those of nep.in and replace its lines:
    ``train_nep("PbTe", generation=5000, cutoff=(8, 4))``.

    ``device``: auto, cpu, cuda (ROCm too), cuda:1. ``precision``: float32 or float64.
    ``force_mode``: analytic, or autograd, slower, to check it. ``seed``: of the initial parameters
    and the order of the data (default: that of nep.in, else 0). ``profile``: so many steps are
    taken under torch's profiler, their trace goes to profile.json and a table to the log.
    ``tensorboard``: the reports are also written to the folder tensorboard, for TensorBoard.

    Returns the errors of the saved model by data set, ``{"train": ..., "test": ...}``, in eV/atom,
    eV/Å and eV/atom.

    Raises:
        UserError: something in the input has to be mended; the message says what and where.
        Interrupted: SIGINT or SIGTERM came; the checkpoint is written.
    """
    run_dir = Path(run_dir)
    if not run_dir.is_dir():
        raise UserError(f"{run_dir}: no such folder; give the one that holds nep.in and train.xyz")
    overrides = nep_in if seed is None else {"seed": seed, **nep_in}
    config = read_nep_in(run_dir / "nep.in", overrides)
    setup = Setup(
        run_dir, choose_device(device), precision_type(precision), check_force_mode(force_mode),
        check_profile(profile), check_tensorboard(tensorboard),
    )  # fmt: skip
    with OutputFolder(Path(out) if out is not None else run_dir) as folder:
        if config.prediction:
            if setup.profile:
                raise UserError(f"profile {profile}: prediction 1 takes no steps")
            data = data_file(run_dir, "train")
            return predict_run(run_dir / "nep.txt", data, folder, config, setup)
        return _train(setup, folder, config, restart)


def _train(
    setup: Setup, folder: OutputFolder, config: NepConfig, restart: bool
) -> dict[str, Errors]:
    log = RunLog()
    precision = str(setup.dtype).removeprefix("torch.")
    log(f"nepkit: {describe_device(setup.device)}, {precision}, {setup.force_mode} forces")
    for note in config.notes:
        log(note)
    check_neurons(config.model)
    files = data_files(setup.run_dir)
    folder.check(_names(setup, folder, config, list(files)))
    sources = read_data(files, config.model, folder.path, log)
    config, lines = resolve(config, *sizes_of(sources))
    for line in lines:
        log(line)
    foundation = foundation_file(setup.run_dir, config)
    if foundation is not None and restart:
        load_foundation(foundation, config, lambda line: None)  # before anything is moved
        if foundation.parent.samefile(folder.path) and foundation.name in _results_of(list(files)):
            raise UserError(
                f"{foundation}: --restart would move this potential away; copy it to another name"
            )
    read = files if foundation is None else files | {"fine_tune": foundation}
    identity = checkpoint.identity(config, setup.dtype, read)
    if is_shared(len(config.model.elements)) and foundation is None:
        identity["shared base"] = "on"
    if frozen_descriptor(config):
        identity["descriptor of fine_tune"] = "frozen"
    if restart and (moved := folder.move_to_previous(checkpoint.NAME)):
        log(f"the old run is now in {moved}")
    state = checkpoint.load(folder.path)
    if state is not None:
        checkpoint.check(state, identity, config, folder.path)
        if found := _results(state, config, folder, list(files)):
            log(
                f"nothing to do: all {state['done']} steps are done, the model is "
                f"{folder.path / 'nep.txt'}; --restart trains anew"
            )
            log(error_table(found))
            return found
    folder.about = _about(files, folder)
    folder.claim(_names(setup, folder, config, list(files)))
    log.keep_in(folder.path / "nepkit.log")
    _write_inputs(setup, folder, config, log, changed=state is not None)
    run = new_run(setup, folder, config, sources, identity, log)
    _take_up(run, state)
    try:
        run.train()
    except Interrupted:
        log(f"interrupted after step {run.done} of {run.total}; the checkpoint is written")
        raise
    return _finish(run)


def _about(files: dict[str, Path], folder: OutputFolder) -> dict:
    """Where the data lie, seen from the output folder, and which versions are at work."""
    return {
        "data": {name: os.path.relpath(path, folder.path) for name, path in files.items()},
        "versions": {
            "nepkit": version, "python": platform.python_version(), "torch": torch.__version__,
            "numpy": np.__version__,
        },
        "system": platform.platform(),
    }  # fmt: skip


def _names(setup: Setup, folder: OutputFolder, config: NepConfig, sets: list[str]) -> list[str]:
    """All files that a run writes, those of save_potential as far as they exist."""
    names = [
        "nepkit.log", "nepkit_resolved.in", "loss.out", "history.csv", "parity.png",
        *[profiling.NAME] * (setup.profile > 0), *_results_of(sets),
    ]  # fmt: skip
    if _copies_zbl(setup, folder, config):
        names.append("zbl.in")
    interval, total = config.save_potential[0], sum(s.generation or 0 for s in config.stages)
    for entry in folder.path.iterdir() if interval else ():
        match = re.fullmatch(r"nep_gen(\d+)\.(txt|restart)", entry.name)
        if match and int(match[1]) <= total and int(match[1]) % interval == 0:
            names.append(entry.name)
    return names


def _results_of(sets: list[str]) -> list[str]:
    """What every finished run has."""
    outputs = [name for data in sets for name in output_names(data)]
    return ["nep.txt", "nep_best.txt", "nep.restart", checkpoint.NAME, *outputs]


def _results(
    state: dict, config: NepConfig, folder: OutputFolder, sets: list[str]
) -> dict[str, Errors]:
    """The errors of a run that is complete and whose files are as it left them; else nothing."""
    total = sum(stage.generation for stage in config.stages)
    if state["done"] != total or not folder.unchanged(_results_of(sets)):
        return {}
    return {name: Errors(**numbers) for name, numbers in state["finished"].items()}


def _copies_zbl(setup: Setup, folder: OutputFolder, config: NepConfig) -> bool:
    """Whether zbl.in has to lie beside nepkit_resolved.in and does not lie there anyway."""
    zbl = config.model.zbl
    flexible = zbl is not None and zbl.flexible is not None
    return flexible and not folder.path.samefile(setup.run_dir)


def _write_inputs(
    setup: Setup, folder: OutputFolder, config: NepConfig, log: RunLog, changed: bool
):
    """What it takes to train the same again, besides the data."""
    path = folder.path / "nepkit_resolved.in"
    if changed and path.exists():
        before = path.read_text(encoding="utf-8").splitlines()
        for line in to_nep_in(config).splitlines():
            if line not in before:
                log(f"new in this part of the run: {line}")
    write_atomically(path, to_nep_in(config))
    if _copies_zbl(setup, folder, config):
        write_atomically(folder.path / "zbl.in", (setup.run_dir / "zbl.in").read_bytes())


def _take_up(run: Run, state: dict | None):
    """Go on from a checkpoint, or begin without what a run left that never wrote one."""
    if state is not None:
        run.resume(state)
        before = sum(state["steps"])
        longer = f"; generation was {before}, now {run.total}" if before != run.total else ""
        run.log(f"going on from step {run.done} of {run.total}{longer}")
        return
    run.loss_out.cut(0)
    run.history.cut(0)
    run.log(
        f"training for {run.total} steps; {len(run.model.flat)} parameters, "
        f"{len(run.model.pair_types)} pair types"
    )


def _finish(run: Run) -> dict[str, Errors]:
    """Write the results of a run that has taken all its steps; nep.txt comes last."""
    path, log = run.folder.path, run.log
    file, predictions = run.judge()
    found = {}
    for data in run.sets:
        write_outputs(path, data.name, predictions[data.name], data.targets)
        found[data.name] = errors(predictions[data.name], data.targets)
    write_nep_restart(path / "nep.restart", file)
    if not (path / "nep_best.txt").exists():
        write_nep_txt(path / "nep_best.txt", file)
    write_nep_txt(path / "nep.txt", file)
    run.finished = {name: asdict(errors) for name, errors in found.items()}
    run.save()
    if run.step.skipped > 0:
        log(f"warning: {int(run.step.skipped)} steps gave no finite gradient and were skipped")
    if run.config.fine_tune and file.settings.neuron != run.config.model.neuron:
        neurons = " ".join(map(str, file.settings.neuron))
        log(f"nep.txt has neuron {neurons}: to go on with GPUMD's nep, write that into nep.in")
    judged = run.sets[-1].name
    log(f"done: {run.total} steps in {run.seconds():.0f} s; the model is {path / 'nep.txt'}")
    if run.best_step < run.total:
        log(f"the loss on {judged}.xyz was lowest at step {run.best_step}: nep_best.txt")
    log(error_table(found))
    return found
