"""How good a model is: predictions on all frames, shared out over the processes of a run."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ..data.prepared import Prepared
from ..model.conversion import model_from_file, model_to_file
from ..model.evaluate import Prediction, predict
from ..model.nep import Nep
from ..model.nep_txt import NepFile
from .outputs import Errors, Targets, errors, mean_energy_error
from .world import World


@dataclass
class DataSet:
    """Frames ready for the model, with their labels."""

    name: str  # train or test
    prepared: Prepared
    judged: range  # frames that this process judges the model on
    targets: Targets  # of those


def judge(
    model: Nep, flat: Tensor, max_neighbors: tuple[int, int], sets: list[DataSet], world: World
) -> tuple[NepFile, dict[str, Prediction]] | None:
    """``model`` with the parameters ``flat`` as a nep.txt, and its predictions by data set.

    Those are of the frames that this process judges. As in GPUMD the common bias takes up the mean
    error of the training energies per atom. None where something is not finite.
    """
    file = model_to_file(model, flat, max_neighbors)
    saved = model_from_file(file, device=flat.device, dtype=flat.dtype)
    found = {data.name: predict(saved, data.prepared, frames=data.judged) for data in sets}
    shift = mean_energy_error(found["train"], sets[0].targets, world)
    if not (math.isfinite(shift) and torch.isfinite(flat).all()):
        return None
    for data in sets:
        found[data.name].energy[:] -= shift * data.targets.n_atoms
    return replace(file, output_bias=file.output_bias + shift), found


def errors_of(
    sets: list[DataSet], predictions: dict[str, Prediction], world: World
) -> dict[str, Errors]:
    """Errors by data set, of the predictions of all processes."""
    return {data.name: errors(predictions[data.name], data.targets, world) for data in sets}
