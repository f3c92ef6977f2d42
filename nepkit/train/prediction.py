"""Evaluating a nep.txt on a file of frames, a chunk at a time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np
import torch
from tqdm import tqdm

from ..config import ModelSettings, NepConfig
from ..data.frame import Frame
from ..data.prepared import prepare
from ..data.xyz import check_elements, iter_xyz
from ..errors import UserError
from ..model.conversion import model_from_file
from ..model.evaluate import ATOMS_AT_ONCE, Prediction, predict
from ..model.nep import Nep
from ..model.nep_txt import read_nep_txt
from .folder import OutputFolder
from .outputs import Errors, Targets, error_table, errors, write_outputs


@dataclass(frozen=True, eq=False)
class Predicted:
    """A prediction with the labels it can be held against, frames in the file's order."""

    prediction: Prediction
    targets: Targets
    errors: Errors


def predict_file(
    model: Nep, path: Path, *, descriptors: int = 0, progress: bool = True
) -> Predicted:
    """Evaluate ``model`` on the frames of ``path`` in memory bounded by the largest frame.

    ``descriptors``: 0 none, 1 the mean of each frame, 2 of each atom.
    """
    predictions, targets = [], []
    flat = model.flat
    bar = tqdm(desc=f"predicting {path.name}", unit=" frames", disable=None if progress else True, leave=False)
    with bar:
        for frames in chunks(iter_xyz(path)):
            check_elements(frames, model.settings.elements)
            prepared = prepare(frames, model.settings, device=flat.device, dtype=flat.dtype)
            prediction = predict(model, prepared, descriptors=descriptors > 0)
            if descriptors == 1:
                ends = np.cumsum(prepared.n_atoms)[:-1]
                means = [x.mean(0) for x in np.split(prediction.descriptors, ends)]
                object.__setattr__(prediction, "descriptors", np.array(means))
            predictions.append(prediction)
            targets.append(Targets.of(frames))
            bar.update(len(frames))
    prediction, target = joined(predictions), joined(targets)
    return Predicted(prediction, target, errors(prediction, target))


def chunks(frames: Iterable[Frame]) -> Iterator[list[Frame]]:
    """Lists of frames with at most ATOMS_AT_ONCE atoms together, or one frame."""
    members, total = [], 0
    for frame in frames:
        if members and total + len(frame) > ATOMS_AT_ONCE:
            yield members
            members, total = [], 0
        members.append(frame)
        total += len(frame)
    if members:
        yield members


def joined(parts: list):
    """One dataclass of arrays from several, end to end."""
    values = {field.name: [getattr(part, field.name) for part in parts] for field in fields(parts[0])}
    return type(parts[0])(
        **{name: None if v[0] is None else np.concatenate(v) for name, v in values.items()}
    )


def predict_run(
    run_dir: Path, folder: OutputFolder, config: NepConfig, device: torch.device, dtype: torch.dtype
) -> dict[str, Errors]:
    """``prediction 1``: evaluate the nep.txt of a run directory on its train.xyz."""
    path = run_dir / "nep.txt"
    file = read_nep_txt(path)
    check_header(path, file.settings, config.model)
    model = model_from_file(file, device=device, dtype=dtype)
    predicted = write_prediction(model, run_dir / "train.xyz", folder, config.output_descriptor)
    print(error_table({"train": predicted.errors}))
    return {"train": predicted.errors}


def write_prediction(model: Nep, data: Path, folder: OutputFolder, descriptors: int) -> Predicted:
    """Evaluate ``model`` on ``data`` and write GPUMD's files into ``folder``."""
    stem = data.name.removesuffix(".gz").removesuffix(".xz").removesuffix(".xyz")
    names = [f"{what}_{stem}.out" for what in ("energy", "force", "virial", "stress")]
    folder.claim(names + ["descriptor.out"] * bool(descriptors))
    predicted = predict_file(model, data, descriptors=descriptors)
    write_outputs(folder.path, stem, predicted.prediction, predicted.targets)
    return predicted


def check_header(path: Path, there: ModelSettings, here: ModelSettings):
    """Refuse a nep.txt that is not the model of nep.in."""
    for field in fields(ModelSettings):
        found, wanted = getattr(there, field.name), getattr(here, field.name)
        if found != wanted:
            raise UserError(f"{path}: {field.name} is {found}, but nep.in asks for {wanted}")
