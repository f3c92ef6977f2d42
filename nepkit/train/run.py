"""One run from its folder to its files."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from ..config import NepConfig, read_nep_in
from ..errors import UserError
from . import checkpoint
from .device import check_force_mode, choose_device, describe_device, precision_type
from .fine_tune import foundation_file, frozen_part, load_foundation
from .finish import finish, model_table
from .folder import OutputFolder
from .log import RunLog
from .loop import Run
from .outputs import Errors
from .place import RESTARTS, launcher
from .prediction import predict_run
from .profiling import check_profile
from .reading import Source, read_data, sizes_of
from .records import about, names_of, results, results_of, write_inputs
from .schedule import resolve
from .shared import parametrisation_of
from .signals import Interrupted
from .start import Setup, check_neurons, data_file, data_files, new_run
from .stop import check_max_time
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
    max_time: str | float | None = None,
    **nep_in,
) -> dict[str, Errors]:
    """Train a NEP4 potential on a GPUMD run directory.

    ``run_dir`` holds nep.in and train.xyz, and may hold test.xyz and zbl.in. Results go to ``out``
    (default: ``run_dir``): nep.txt, nep_best.txt, nep.restart, loss.out, the *_train.out and
    *_test.out of GPUMD (and *_valid.out), errors.csv and largest_errors.csv, history.csv,
    nepkit_resolved.in, nepkit.log, checkpoint.pt. A run that was interrupted goes on where it
    stopped; ``restart`` moves it to previous-N and starts anew. Other keywords are those of nep.in
    and replace its lines: ``train_nep("PbTe", generation=5000, cutoff=(8, 4))``.

    ``device``: auto, cpu, cuda (ROCm too), cuda:1. ``precision``: float32 or float64.
    ``force_mode``: analytic, or autograd, slower, to check it. ``seed``: of the initial parameters
    and the order of the data (default: that of nep.in, else 0). ``profile``: so many steps are
    taken under torch's profiler, their trace goes to profile.json and a table to the log.
    ``tensorboard``: the reports are also written to the folder tensorboard, for TensorBoard.
    ``max_time``: ends as a signal does before so many seconds, or hours as in 23:50:00, are over.

    Returns the errors of nep.txt by data set, ``{"train": ..., "test": ...}`` and ``"valid"`` with
    valid_ratio, in eV/atom, eV/Å and eV/atom.

    Raises:
        UserError: something in the input has to be mended; the message says what and where.
        Interrupted: SIGINT, SIGTERM or SIGUSR1 came, or the time is over; the checkpoint is written.
    """
    setup = Setup(
        Path(run_dir), choose_device(device), precision_type(precision),
        check_force_mode(force_mode), check_profile(profile), check_tensorboard(tensorboard),
        end=check_max_time(max_time),
    )  # fmt: skip
    return train(setup, out, restart, nep_in if seed is None else {"seed": seed, **nep_in})


def train(
    setup: Setup, out: str | os.PathLike | None, restart: bool, nep_in: dict
) -> dict[str, Errors]:
    """Train as ``setup`` says, alone or as one of several processes; the rest as in train_nep."""
    run_dir = setup.run_dir
    if not run_dir.is_dir():
        raise UserError(f"{run_dir}: no such folder; give the one that holds nep.in and train.xyz")
    config = read_nep_in(run_dir / "nep.in", nep_in)
    folder = OutputFolder(Path(out) if out is not None else run_dir)
    with setup.world.held(folder):
        if config.prediction:
            if setup.profile:
                raise UserError(f"profile {setup.profile}: prediction 1 takes no steps")
            data = data_file(run_dir, "train")
            return predict_run(run_dir / "nep.txt", data, folder, config, setup)
        return _train(setup, folder, config, restart)


def _train(
    setup: Setup, folder: OutputFolder, config: NepConfig, restart: bool
) -> dict[str, Errors]:
    world = setup.world
    log = RunLog(silent=not world.first)
    precision = str(setup.dtype).removeprefix("torch.")
    together = f", {world.size} processes" if world.size > 1 else ""
    log(
        f"nepkit: {describe_device(setup.device)}, {precision}, {setup.force_mode} forces{together}"
    )
    for note in config.notes:
        log(note)
    check_neurons(config.model)
    files = data_files(setup.run_dir)
    sets = [*files, *["valid"] * (config.valid_ratio > 0)]
    names = world.from_first(lambda: names_of(setup, folder, config, sets))
    world.from_first(lambda: folder.check(names))
    sources = read_data(files, config, folder.path, log, world)
    config, lines = resolve(config, *sizes_of(sources))
    for line in lines:
        log(line)
    state, identity, models = world.from_first(
        lambda: _look_back(setup, folder, config, files, sources, restart, log)
    )
    if models:
        return models["nep.txt"]
    if state is not None and state.get("stopped") and os.environ.get(RESTARTS, "0") != "0":
        # A launcher that restarts what has failed takes an interrupted run for one.
        if world.from_first(lambda: state["stopped"] == launcher()):
            log("interrupted before, and not to be started again")
            raise Interrupted

    def claim():
        folder.about = about(files, folder)
        folder.claim(names)
        log.keep_in(folder.path / "nepkit.log")
        write_inputs(setup, folder, config, sources, log, changed=state is not None)

    world.from_first(claim)
    run = new_run(setup, folder, config, sources, identity, log)
    _take_up(run, state)
    try:
        run.train()
    except Interrupted:
        log(f"interrupted after step {run.done} of {run.total}; the checkpoint is written")
        raise
    return finish(run)


def _look_back(
    setup: Setup,
    folder: OutputFolder,
    config: NepConfig,
    files: dict[str, Path],
    sources: dict[str, Source],
    restart: bool,
    log: RunLog,
) -> tuple[dict | None, dict[str, str], dict[str, dict[str, Errors]]]:
    """The checkpoint to go on from, what a run must keep, and the errors of its models if nothing is
    to be done."""
    foundation, sets = foundation_file(setup.run_dir, config), list(sources)
    if foundation is not None and restart:
        load_foundation(foundation, config, lambda line: None)  # before anything is moved
        if foundation.parent.samefile(folder.path) and foundation.name in results_of(sets):
            raise UserError(
                f"{foundation}: --restart would move this potential away; copy it to another name"
            )
    read = files if foundation is None else files | {"fine_tune": foundation}
    identity = checkpoint.identity(config, setup.dtype, read)
    identity["parametrisation"] = parametrisation_of(config).name
    if "valid" in sources:
        identity["validation set"] = _listing(sources["valid"].labels.index.tolist())
    if frozen := frozen_part(config):
        identity["freeze"] = frozen
    if restart and (moved := folder.move_to_previous(checkpoint.NAME)):
        log(f"the old run is now in {moved}")
    state = checkpoint.load(folder.path)
    if state is None:
        return None, identity, {}
    checkpoint.check(state, identity, config, folder.path)
    models = results(state, config, folder, sets)
    if models:
        log(
            f"nothing to do: all {state['done']} steps are done, the model is "
            f"{folder.path / 'nep.txt'}; --restart trains anew"
        )
        log(model_table(models))
    return state, identity, models


def _listing(numbers: list[int]) -> str:
    """What tells one list of frames from another, and fits into a message."""
    told = f"{len(numbers)} ({' '.join(map(str, numbers[:5]))} ...)"
    return f"{told} {hashlib.sha256(str(numbers).encode()).hexdigest()[:8]}"


def _take_up(run: Run, state: dict | None):
    """Go on from a checkpoint, or begin without what a run left that never wrote one."""
    if state is not None:
        run.resume(state)
        before = sum(state["steps"])
        longer = f"; generation was {before}, now {run.total}" if before != run.total else ""
        run.log(f"going on from step {run.done} of {run.total}{longer}")
        if (others := state.get("processes", 1)) != run.world.size:
            run.log(
                f"processes were {others}, now {run.world.size}: the batches stay the same, "
                "the last digits of sums do not"
            )
        return
    run.loss_out.cut(0)
    run.history.cut(0)
    run.log(
        f"training for {run.total} steps; {len(run.model.flat)} parameters, "
        f"{len(run.model.pair_types)} pair types"
    )
