"""One run from its folder to its files."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from ..config import ModelSettings, NepConfig, read_nep_in, to_nep_in
from ..data.frame import Frame
from ..data.prepared import Prepared, prepare
from ..data.xyz import check_elements, read_xyz
from ..errors import UserError
from ..files import write_atomically
from ..model.conversion import trained_settings
from ..model.nep_txt import read_nep_txt
from ..model.nep_txt_write import write_nep_restart, write_nep_txt
from ..ops.geometry import attach_tables, table_bytes
from . import checkpoint
from .device import check_force_mode, choose_device, describe_device, precision_type
from .folder import OutputFolder
from .initial import new_model
from .log import RunLog
from .loop import DataSet, Run
from .outputs import Errors, Targets, error_table, errors, write_outputs
from .prediction import predict_run
from .schedule import resolve
from .targets import attach_targets, reference_energies, zbl_of

# Most neighbours that GPUMD's MD takes.
GPUMD_NEIGHBORS = 819
# Part of the memory that constants of the structures may fill.
TABLE_PART = 0.25


def train_nep(
    run_dir: str | os.PathLike,
    *,
    out: str | os.PathLike | None = None,
    device: str = "auto",
    precision: str = "float32",
    force_mode: str = "analytic",
    seed: int = 0,
    restart: bool = False,
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
    and the order of the data, unless nep.in has one.

    Returns the errors of the saved model by data set, ``{"train": ..., "test": ...}``, in eV/atom,
    eV/Å and eV/atom.

    Raises:
        UserError: something in the input has to be mended; the message says what and where.
        Interrupted: SIGINT or SIGTERM came; the checkpoint is written.
    """
    run_dir = Path(run_dir)
    if not run_dir.is_dir():
        raise UserError(f"{run_dir}: no such folder; give the one that holds nep.in and train.xyz")
    overrides = {"seed": seed, **nep_in} if seed else nep_in
    config = read_nep_in(run_dir / "nep.in", overrides)
    setup = Setup(
        run_dir, choose_device(device), precision_type(precision), check_force_mode(force_mode)
    )
    with OutputFolder(Path(out) if out is not None else run_dir) as folder:
        if config.prediction:
            return predict_run(run_dir, folder, config, setup.device, setup.dtype)
        return _train(setup, folder, config, restart)


@dataclass(frozen=True)
class Setup:
    """Where a run reads and how it computes."""

    run_dir: Path
    device: torch.device
    dtype: torch.dtype
    force_mode: str


def _train(setup: Setup, folder: OutputFolder, config: NepConfig, restart: bool) -> dict[str, Errors]:
    moved = folder.move_to_previous() if restart else None
    files = {name: setup.run_dir / f"{name}.xyz" for name in ("train", "test")}
    files = {name: path for name, path in files.items() if name == "train" or path.exists()}
    folder.claim(_output_names(config, files))
    log = RunLog(folder.path / "nepkit.log")
    log(
        f"nepkit: {describe_device(setup.device)}, {str(setup.dtype).removeprefix('torch.')}, "
        f"{setup.force_mode} forces"
    )
    if moved:
        log(f"the old run is now in {moved}")
    for note in config.notes:
        log(note)
    frames = _read(files, config, log)
    config, lines = resolve(
        config, len(frames["train"]), sum(map(len, frames["train"])), sum(map(len, frames.values()))
    )
    for line in lines:
        log(line)
    write_atomically(folder.path / "nepkit_resolved.in", to_nep_in(config))
    run = _start(setup, folder, config, frames, log)
    run.train()
    return _finish(run, log)


def _output_names(config: NepConfig, files: dict[str, Path]) -> list[str]:
    names = [
        "nepkit.log", "nepkit_resolved.in", "loss.out", "history.csv", "checkpoint.pt",
        "nep.txt", "nep_best.txt", "nep.restart",
    ]  # fmt: skip
    names += [f"{what}_{name}.out" for name in files for what in ("energy", "force", "virial", "stress")]
    interval, _, with_restart = config.save_potential
    total = sum(stage.generation or 0 for stage in config.stages)
    for step in range(interval, total + 1, interval) if interval else ():
        names += [f"nep_gen{step}.txt"] + [f"nep_gen{step}.restart"] * with_restart
    return names


def _read(files: dict[str, Path], config: NepConfig, log: RunLog) -> dict[str, list[Frame]]:
    """Frames of each data set, all of elements that the model has."""
    frames = {name: read_xyz(path, progress=True) for name, path in files.items()}
    for name, members in frames.items():
        unseen = check_elements(members, config.model.elements)
        atoms = sum(map(len, members))
        labels = [
            f"{sum(getattr(f, label) is not None for f in members)} with {label}"
            for label in ("energy", "forces", "virial")
        ]
        log(f"{files[name].name}: {len(members)} frames, {atoms} atoms; {', '.join(labels)}")
        if name == "train" and unseen:
            log(f"warning: no atom of {' '.join(unseen)} in {files[name].name}")
        if any(not f.pbc.all() for f in members):
            log(f"warning: {files[name].name} has frames that are not periodic in all directions; GPUMD takes every frame as periodic")
    if all(f.forces is None and f.energy is None and f.virial is None for f in frames["train"]):
        raise UserError(f"{files['train']}: no frame has an energy, forces or a virial to train on")
    return frames


def _start(setup, folder, config, frames, log) -> Run:
    """Prepare data and model, and take up a checkpoint where there is one."""
    settings = trained_settings(config.model)
    prepared = {
        name: prepare(members, settings, device=setup.device, dtype=setup.dtype, progress=f"neighbours of {name}")
        for name, members in frames.items()
    }
    zbl = {name: zbl_of(data, settings) for name, data in prepared.items()}
    element_energy = reference_energies(prepared["train"], zbl["train"], settings)
    for name, data in prepared.items():
        attach_targets(data, zbl[name], element_energy)
        structures = data.structures
        if setup.force_mode == "analytic" and table_bytes(structures, settings) < _table_limit():
            attach_tables(structures, settings)
    largest = tuple(int(most) for most in np.max([d.largest_neighborhoods() for d in prepared.values()], axis=0))
    log(f"neighbours of an atom at most: {largest[0]} radial, {largest[1]} angular")
    if largest[0] > GPUMD_NEIGHBORS:
        log(f"warning: GPUMD's MD refuses a model with more than {GPUMD_NEIGHBORS} neighbours")
    model = new_model(settings, list(prepared.values()), config.seed, device=setup.device, dtype=setup.dtype)
    model.element_energy.copy_(torch.from_numpy(element_energy))
    if config.import_q_scaler:
        _import_q_scaler(model, setup.run_dir, config.model)
    log(
        "energies of the elements, eV: "
        + ", ".join(f"{e} {x:.6f}" for e, x in zip(settings.elements, element_energy))
    )
    data = {f"{name}.xyz": setup.run_dir / f"{name}.xyz" for name in frames}
    identity = checkpoint.identity(config.model, str(setup.dtype), config.seed, data)
    sets = [DataSet(name, data, Targets.of(data.frames)) for name, data in prepared.items()]
    run = Run(folder.path, config, model, sets, largest, identity, log, setup.force_mode)
    if (folder.path / checkpoint.NAME).exists():
        state = checkpoint.load(folder.path)
        checkpoint.check_identity(state["identity"], identity, folder.path)
        run.resume(state)
        log(f"going on from step {run.done} of {run.total}")
    else:
        log(f"training for {run.total} steps; {len(model.flat)} parameters, {len(model.pair_types)} pair types")
    return run


def _table_limit() -> float:
    """Bytes that constants of the structures may take: a share of the machine's memory."""
    try:
        return TABLE_PART * os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError):  # Windows
        return 2e9


def _import_q_scaler(model, run_dir: Path, settings: ModelSettings):
    """Take the q_scaler of nep.txt in the run directory, whose descriptor must be the same."""
    path = run_dir / "nep.txt"
    file = read_nep_txt(path)
    for name in ("n_max", "l_max", "invariants"):
        there, here = getattr(file.settings, name), getattr(settings, name)
        if there != here:
            raise UserError(f"{path}: import_q_scaler needs the same {name}: {there} there, {here} in nep.in")
    scaler = torch.from_numpy(file.q_scaler)
    model.q_scaler.copy_(scaler)
    model.file_q_scaler.copy_(scaler)


def _finish(run: Run, log: RunLog) -> dict[str, Errors]:
    """Write the results of a run that has taken all its steps; nep.txt comes last."""
    file = run.saved_model()
    predictions = run.evaluate(file)
    found = {}
    for data in run.sets:
        write_outputs(run.folder, data.name, predictions[data.name], data.targets)
        found[data.name] = errors(predictions[data.name], data.targets)
    write_nep_restart(run.folder / "nep.restart", file)
    if not (run.folder / "nep_best.txt").exists():
        write_nep_txt(run.folder / "nep_best.txt", file)
    write_nep_txt(run.folder / "nep.txt", file)
    if run.step.skipped > 0:
        log(f"warning: {int(run.step.skipped)} steps gave no finite gradient and were skipped")
    log(f"done: {run.total} steps in {run.seconds():.0f} s; the model is {run.folder / 'nep.txt'}")
    log(error_table(found))
    return found
