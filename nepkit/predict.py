"""Predictions of a nep.txt on a file of frames: ``python -m nepkit.predict MODEL DATA.xyz``."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import torch

from .model.conversion import model_from_file
from .model.nep_txt import read_nep_txt
from .train.device import choose_device, precision_type
from .train.folder import OutputFolder
from .train.prediction import (
    Predicted,
    files_of,
    predict_file,
    spare_trainings,
    write_prediction,
)
from .train.sharded import own_device
from .train.world import ALONE, World, joined


def predict_dataset(
    model: str | os.PathLike,
    data: str | os.PathLike,
    *,
    out: str | os.PathLike | None = None,
    device: str = "auto",
    precision: str = "float32",
    descriptors: bool = False,
) -> Predicted:
    """Evaluate a nep.txt on all frames of an extended XYZ file.

    With ``out``, GPUMD's files go there, named after ``data``: train.xyz gives energy_train.out
    (eV/atom), force_train.out (eV/Å), virial_train.out (eV/atom), stress_train.out (GPa),
    errors_train.csv and largest_errors_train.csv, and with ``descriptors`` descriptor.out, one atom a row.

    Returns the predictions (``.prediction``: energy (F,) eV, forces (A, 3) eV/Å, virial (F, 6)
    eV), the labels (``.targets``, NaN where missing) and the errors (``.errors``).

    Raises:
        UserError: the model or the data cannot be read; the message says where.
    """
    return _predicted(ALONE, model, data, out, choose_device(device), precision, descriptors)


def predict_dataset_sharded(
    model: str | os.PathLike,
    data: str | os.PathLike,
    *,
    out: str | os.PathLike | None = None,
    device: str = "auto",
    precision: str = "float32",
    descriptors: bool = False,
) -> Predicted:
    """The same by all processes that torchrun or SLURM has started, each a share of the frames.

    Every process calls this with the same arguments and gets all predictions; the first one writes.
    ``device`` auto gives each process a GPU, as in train_nep_sharded.
    """
    own = own_device(device)
    with joined(own) as world:
        return _predicted(world, model, data, out, own, precision, descriptors)


def _predicted(
    world: World,
    model: str | os.PathLike,
    data: str | os.PathLike,
    out: str | os.PathLike | None,
    device: torch.device,
    precision: str,
    descriptors: bool,
) -> Predicted:
    dtype = precision_type(precision)
    loaded = model_from_file(read_nep_txt(model), device=device, dtype=dtype)
    per_atom = 2 if descriptors else 0
    if out is None:
        return predict_file(loaded, Path(data), world, descriptors=per_atom)
    folder = OutputFolder(Path(out))
    with world.held(folder):
        world.from_first(lambda: spare_trainings(folder, files_of(Path(data), per_atom)))
        return write_prediction(loaded, Path(data), folder, per_atom, world)


if __name__ == "__main__":
    from .cli import main

    sys.exit(main(["predict", *sys.argv[1:]]))
