"""Starting from a potential that is there: fine_tune."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from ..config import NepConfig
from ..data.prepared import Prepared
from ..errors import UserError
from ..keywords import KEYWORDS
from ..model.conversion import has_energy_neuron, model_from_file
from ..model.evaluate import predict
from ..model.nep import Nep
from ..model.nep_txt import NepFile, read_nep_txt
from ..model.slim import grow, slim, slim_settings
from .header import check_header
from .log import RunLog
from .targets import reference_energies


def foundation_file(run_dir: Path, config: NepConfig) -> Path | None:
    """The nep.txt that ``fine_tune`` names, from the run directory; None without that keyword."""
    if not config.fine_tune:
        return None
    if len(config.fine_tune) == 2 and config.fine_tune[1] in ("0", "1"):
        raise UserError(
            f"fine_tune {' '.join(config.fine_tune)}: a {config.fine_tune[1]} for the descriptor "
            "comes third, after the name of the nep.restart, which need not exist"
        )
    return run_dir / config.fine_tune[0]


def located_from(config: NepConfig, run_dir: Path, folder: Path) -> NepConfig:
    """The same with the potential's file named from ``folder``, where a nep.in can say that."""
    path = foundation_file(run_dir, config)
    if path is None or folder.samefile(run_dir):
        return config
    name = os.path.relpath(path, folder)
    if " " in name:
        return config
    return replace(config, fine_tune=(name, *config.fine_tune[1:]))


def frozen_part(config: NepConfig) -> str:
    """What stays as it is, the ``descriptor`` or the ``networks``; empty if nothing does."""
    gpumd = "descriptor" if len(config.fine_tune) == 3 and not config.fine_tune[2] else ""
    if gpumd and config.freeze == "networks":
        raise UserError(
            f"freeze networks: the 0 of fine_tune {config.fine_tune[0]} freezes the descriptor, so "
            "that nothing is left to train; keep one of the two"
        )
    return config.freeze or gpumd


def load_foundation(path: Path, config: NepConfig, log: RunLog) -> NepFile:
    """The potential to start from, with the elements of nep.in, whose model it must be."""
    file = read_nep_txt(path)
    elements, there = config.model.elements, file.settings.elements
    _check_elements(path, config, there)
    kept = [element for element in elements if element in there]
    chosen = slim(file, kept)
    check_header(path, chosen.settings, slim_settings(config.model, kept))
    copies = {}
    if config.new_elements:
        chosen, copies = grow(file, config.model)
    most = KEYWORDS["neuron"].values[0].high
    if len(elements) > 1 and chosen.settings.neuron[-1] >= most and not has_energy_neuron(chosen):
        raise UserError(
            f"{path}: its {chosen.settings.neuron[-1]} neurons leave no room for the one that holds "
            f"the energies of the elements; GPUMD takes {most} at most"
        )
    log(f"fine-tuning {path.name}: {len(kept)} of its {len(there)} elements")
    for element, other in copies.items():
        log(f"{element} is new and starts as {other}")
    return chosen


def _check_elements(path: Path, config: NepConfig, there: tuple[str, ...]):
    """Elements that the potential lacks have to be named, so that none is new by mistake."""
    new, elements = config.new_elements, config.model.elements
    for element in new:
        if element in there or element not in elements:
            why = "the potential has it" if element in there else "type does not name it"
            raise UserError(f"{path}: new_elements {element}: {why}; leave it out")
    missing = [element for element in elements if element not in (*there, *new)]
    if missing:
        has = " ".join(there)
        raise UserError(
            f"{path}: has no {' '.join(missing)}, which nep.in names in type; it has {has}.\n"
            f"If they are to be new, write new_elements {' '.join((*new, *missing))}"
        )
    if len(new) == len(elements):
        raise UserError(f"{path}: all elements of type are new; leave out fine_tune")


def fine_tuned_model(
    file: NepFile, train: Prepared, log: RunLog, *, device: torch.device, dtype: torch.dtype
) -> Nep:
    """The model of ``file``, whose elements' energies are moved to those of the training data.

    Other programs and functionals count energies from other zeros: a shift for each element, by
    least squares of what the potential misses, takes that away before the first step. It needs a
    neuron of its own in the nep.txt.
    """
    model = model_from_file(file, device=device, dtype=dtype)
    shift = reference_energies(train, predict(model, train).energy, len(file.settings.elements))
    model.element_energy += torch.as_tensor(shift, device=device)
    if len(shift) <= 8:
        pairs = zip(file.settings.elements, shift, strict=True)
        log("shifted energies of the elements, eV: " + ", ".join(f"{e} {x:+.4f}" for e, x in pairs))
    else:
        log(f"shifted energies of the elements by up to {np.abs(shift).max():.3f} eV")
    return model
