"""What a run starts from: frames, their neighbours and targets, and the model."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import torch

from ..config import ModelSettings, NepConfig
from ..data.check import close_contacts, energy_residuals, odd_energies, told
from ..data.prepared import Prepared
from ..data.sampler import dealt, ranges
from ..data.windows import Windows
from ..errors import UserError
from ..model.conversion import trained_settings
from ..model.evaluator import compiling
from ..model.nep_txt import read_nep_txt
from ..model.zbl import zbl_of
from .fine_tune import fine_tuned_model, foundation_file, load_foundation
from .folder import OutputFolder
from .initial import new_model
from .judging import DataSet
from .log import RunLog
from .loop import Run
from .outputs import Targets
from .reading import Source
from .residence import made_ready, settle
from .targets import attach_targets, reference_energies
from .world import ALONE, World

# Most neighbours that GPUMD's MD takes.
GPUMD_NEIGHBORS = 819
COMPRESSED = ("", ".gz", ".xz")


@dataclass(frozen=True)
class Setup:
    """Where a run reads and how it computes."""

    run_dir: Path
    device: torch.device
    dtype: torch.dtype
    force_mode: str
    profile: int = 0  # steps to take under the profiler
    tensorboard: bool = False  # whether to write the reports for TensorBoard too
    world: World = ALONE
    end: float | None = None  # of the time that the run has, by time.monotonic()


def data_file(run_dir: Path, name: str) -> Path:
    """NAME.xyz of a run directory, or the same compressed."""
    paths = [run_dir / f"{name}.xyz{suffix}" for suffix in COMPRESSED]
    return next((path for path in paths if path.exists()), paths[0])


def data_files(run_dir: Path) -> dict[str, Path]:
    """The files of the training set, and of the test set where there is one."""
    files = {name: data_file(run_dir, name) for name in ("train", "test")}
    return {name: path for name, path in files.items() if name == "train" or path.exists()}


def check_neurons(settings: ModelSettings):
    """Refuse networks too small to hold the energies of the elements (trained_settings)."""
    if len(settings.elements) > 1 and settings.neuron[-1] < 2:
        neurons = " ".join(map(str, settings.neuron))
        raise UserError(
            f"nep.in: neuron {neurons}: one neuron of the last layer is set aside for the energies "
            f"of the {len(settings.elements)} elements;\nwrite at least 2"
        )


def new_run(
    setup: Setup,
    folder: OutputFolder,
    config: NepConfig,
    sources: dict[str, Source],
    identity: dict[str, str],
    log: RunLog,
) -> Run:
    """A run that has taken no step yet."""
    settings, foundation = trained_settings(config.model), None
    device, dtype = setup.device, setup.dtype
    q_scaler, world = None, setup.world
    if path := foundation_file(setup.run_dir, config):
        foundation = load_foundation(path, config, log)
        settings = foundation.settings
    elif config.import_q_scaler:
        q_scaler = imported_q_scaler(setup.run_dir / "nep.txt", config.model)
    prepared = {
        name: made_ready(source, settings, device, dtype, _title(name, world))
        for name, source in sources.items()
    }
    if foundation is not None:
        model = fine_tuned_model(foundation, prepared["train"], log, device=device, dtype=dtype)
        element_energy = model.element_energy.cpu().numpy()
    else:
        zbl = zbl_of(prepared["train"], settings).energy
        element_energy = reference_energies(prepared["train"], zbl, len(settings.elements))
    _attach(prepared, settings, element_energy, log)
    _share_out(prepared["train"], world)
    largest = _largest_neighborhoods(prepared, log)
    settle(list(prepared.values()), settings, device, setup.force_mode == "analytic", log)
    if setup.force_mode == "analytic" and compiling(device):
        log("compiling the CPU kernels for a model of this size, once: some 40 s")
    if setup.force_mode == "autograd":
        log("the forces and their gradient are traced, in every run: up to a minute")
    if foundation is None:
        sets = list(prepared.values())
        model = new_model(settings, sets, config.seed, device=device, dtype=dtype)
        model.element_energy.copy_(torch.from_numpy(element_energy))
    if q_scaler is not None:
        # That of the file alone: the network keeps the one that suits the data, and writing the
        # model moves their ratio into the weights.
        model.file_q_scaler.copy_(q_scaler)
    _tell_energies(settings.elements, element_energy, log)
    # The same bits everywhere, whatever computed them.
    world.take_from_first(model.flat, model.q_scaler, model.file_q_scaler, model.element_energy)
    sets = [_judged(name, data, world) for name, data in prepared.items()]
    return Run(
        folder, config, model, sets, largest, identity, log, setup.force_mode, setup.profile,
        setup.tensorboard, world, setup.end,
    )  # fmt: skip


def _judged(name: str, data: Prepared, world: World) -> DataSet:
    """A data set with the part of it that this process judges the model on."""
    edges = ranges(data.structures.counts[:, 2:].sum(1) + 1.0, world.size).tolist()
    judged = range(*edges[world.rank : world.rank + 2])
    labels = data.labels if world.size == 1 else data.labels.take(np.array(judged, np.int64))
    return DataSet(name, data, judged, Targets.of(labels))


def _share_out(data: Prepared, world: World):
    """Have a process read no training frames but its own, where not all are in memory."""
    structures = data.structures
    if isinstance(structures, Windows) and world.size > 1:
        work = structures.counts[:, 2:].sum(1)

        def share(frames: np.ndarray) -> np.ndarray:
            own = dealt(frames, work, world.size)[world.rank]
            return own[own >= 0]

        structures.share = share


def _title(name: str, world: World) -> str | None:
    """Of the bar that the first process shows."""
    return f"neighbours of {name}" if world.first else None


def _tell_energies(elements: tuple[str, ...], energy: np.ndarray, log: RunLog):
    if len(elements) > 8:
        log(f"energies of the elements from {energy.min():.3f} to {energy.max():.3f} eV")
    else:
        pairs = zip(elements, energy, strict=True)
        log("energies of the elements, eV: " + ", ".join(f"{e} {x:.6f}" for e, x in pairs))


def _attach(
    prepared: dict[str, Prepared], settings: ModelSettings, element_energy: np.ndarray, log: RunLog
):
    """Targets of all frames."""
    for data in prepared.values():
        zbl = zbl_of(data, settings)
        labels = data.labels
        train, n_types = prepared["train"].labels, len(settings.elements)
        findings = odd_energies(labels, energy_residuals(labels, train, n_types))
        for line in told(close_contacts(labels, data.surroundings)) + told(findings):
            log(line)
        if isinstance(data.structures, Windows):
            data.structures.finish = partial(_finish, settings, element_energy)
        else:
            attach_targets(data, zbl, element_energy)


def _finish(settings: ModelSettings, element_energy: np.ndarray, data: Prepared):
    """Give frames that were read later their targets."""
    attach_targets(data, zbl_of(data, settings), element_energy)


def _largest_neighborhoods(prepared: dict[str, Prepared], log: RunLog) -> tuple[int, int]:
    """Most radial and angular neighbours of an atom, for the header of nep.txt."""
    largest = np.concatenate([data.surroundings.largest for data in prepared.values()])
    radial, angular = largest.max(0).tolist()
    log(f"neighbours of an atom at most: {radial} radial, {angular} angular")
    if radial > GPUMD_NEIGHBORS:
        log(
            f"warning: GPUMD's MD refuses a model with more than {GPUMD_NEIGHBORS} neighbours; "
            "lower cutoff"
        )
    return radial, angular


def imported_q_scaler(path: Path, settings: ModelSettings) -> torch.Tensor:
    """The q_scaler (D,) of the nep.txt at ``path``, whose descriptor must be that of nep.in."""
    file = read_nep_txt(path)
    for name in ("n_max", "l_max", "invariants"):
        there, here = getattr(file.settings, name), getattr(settings, name)
        if there != here:
            raise UserError(
                f"{path}: import_q_scaler needs the {name} of nep.in, {here}, but this has {there}"
            )
    if not (file.q_scaler > 0).all():
        raise UserError(f"{path}: its q_scaler has a number that is not above 0")
    return torch.from_numpy(file.q_scaler)
