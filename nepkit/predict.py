"""Predictions of a nep.txt on a file of frames: ``python -m nepkit.predict MODEL DATA.xyz``."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from .model.conversion import model_from_file
from .model.nep_txt import read_nep_txt
from .train.device import choose_device, precision_type
from .train.folder import OutputFolder
from .train.prediction import Predicted, predict_file, write_prediction


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
    (eV/atom), force_train.out (eV/Å), virial_train.out (eV/atom), stress_train.out (GPa), and with
    ``descriptors`` descriptor.out, one atom a row.

    Returns the predictions (``.prediction``: energy (F,) eV, forces (A, 3) eV/Å, virial (F, 6)
    eV), the labels (``.targets``, NaN where missing) and the errors (``.errors``).

    Raises:
        UserError: the model or the data cannot be read; the message says where.
    """
    dtype = precision_type(precision)
    loaded = model_from_file(read_nep_txt(model), device=choose_device(device), dtype=dtype)
    per_atom = 2 if descriptors else 0
    if out is None:
        return predict_file(loaded, Path(data), descriptors=per_atom)
    with OutputFolder(Path(out)) as folder:
        return write_prediction(loaded, Path(data), folder, per_atom)


if __name__ == "__main__":
    from .cli import main

    sys.exit(main(["predict", *sys.argv[1:]]))
