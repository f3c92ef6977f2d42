"""Evaluating a nep.txt on a file of frames, a chunk at a time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path

import numpy as np
from tqdm import tqdm

from ..config import ModelSettings, NepConfig
from ..data.frame import Frame
from ..data.known import Sample
from ..data.prepared import prepare, type_lookup
from ..data.xyz import iter_xyz
from ..errors import UserError, at
from ..model.conversion import model_from_file
from ..model.evaluate import ATOMS_AT_ONCE, Prediction, predict
from ..model.nep import Nep
from ..model.nep_txt import read_nep_txt
from ..units import ELEMENTS
from . import checkpoint
from .breakdown import breakdown_names, breakdown_table, write_breakdown
from .compared import Comparison
from .folder import OutputFolder
from .header import check_header
from .outputs import (
    Errors,
    Targets,
    compare,
    error_table,
    errors,
    joined,
    output_names,
    write_outputs,
)  # fmt: skip
from .start import Setup
from .world import ALONE, World


@dataclass(frozen=True, eq=False)
class Predicted:
    """A prediction with the labels it can be held against, frames in the file's order."""

    prediction: Prediction
    targets: Targets
    errors: Errors
    frames: list[Sample]
    open_frames: int  # frames that are not periodic in all directions
    file: str  # its name

    @property
    def comparison(self) -> Comparison:
        """Predictions held against labels."""
        return Comparison(_stem(self.file), compare(self.prediction, self.targets), self.frames)


def predict_file(
    model: Nep, path: Path, world: World = ALONE, *, descriptors: int = 0
) -> Predicted:
    """Evaluate ``model`` on the frames of ``path``, a few thousand atoms in memory at a time.

    ``descriptors``: 0 none, 1 the mean of each frame, 2 of each atom. The processes of ``world``
    take turns; each gets all predictions.
    """
    parts, members, open_frames, flat = [], [], 0, model.flat
    hidden = not world.first or None
    bar = tqdm(desc=f"predicting {path.name}", unit=" frames", disable=hidden, leave=False)
    with bar:
        for number, frames in enumerate(chunks(iter_xyz(path))):
            _check_elements(frames, model.settings)
            open_frames += sum(not frame.pbc.all() for frame in frames)
            members += [Sample(f.index, f.line, f.source, f.numbers) for f in frames]
            bar.update(len(frames))
            if number % world.size != world.rank:
                continue
            prepared = prepare(frames, model.settings, device=flat.device, dtype=flat.dtype)
            prediction = predict(model, prepared, descriptors=descriptors > 0)
            if descriptors == 1:
                starts = np.cumsum(prepared.n_atoms) - prepared.n_atoms
                sums = np.add.reduceat(prediction.descriptors, starts)
                prediction = replace(prediction, descriptors=sums / prepared.n_atoms[:, None])
            parts.append((number, prediction, Targets.of(prepared.labels)))
    found = sorted(chain.from_iterable(world.gather(parts)), key=lambda part: part[0])
    _, predictions, targets = zip(*found)
    prediction, target = joined(predictions), joined(targets)
    return Predicted(
        prediction, target, errors(prediction, target), members, open_frames, path.name
    )


def _stem(name: str) -> str:
    """The name of a file of frames without its endings."""
    stem = name.removesuffix(".gz").removesuffix(".xz")
    return stem.removesuffix(".xyz").removesuffix(".extxyz")


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


def _check_elements(frames: list[Frame], settings: ModelSettings):
    """Refuse an element that the model does not have."""
    lookup = type_lookup(settings.elements)
    for frame in frames:
        unknown = np.flatnonzero(lookup[frame.numbers] < 0)
        if len(unknown):
            place = at(frame.path, frame.line + 2 + int(unknown[0]), frame.index)
            element = ELEMENTS[frame.numbers[unknown[0]] - 1]
            raise UserError(
                f"{place}: the model has no {element}, only {' '.join(settings.elements)}"
            )


def predict_run(
    path: Path, data: Path, folder: OutputFolder, config: NepConfig, setup: Setup
) -> dict[str, Errors]:
    """``prediction 1``: evaluate the nep.txt of a run directory on its train.xyz."""
    file = read_nep_txt(path)
    if config.fine_tune:  # its energies may have taken a neuron of their own
        file_neurons = file.settings.neuron
        check_header(path, file.settings, replace(config.model, neuron=file_neurons))
    else:
        check_header(path, file.settings, config.model)
    model, world = model_from_file(file, device=setup.device, dtype=setup.dtype), setup.world
    world.from_first(lambda: folder.check(["parity.png"]))
    predicted = write_prediction(model, data, folder, config.output_descriptor, world)
    if world.first:
        print_errors(predicted)
    return {"train": predicted.errors}


def print_errors(predicted: Predicted):
    """Errors of all frames, and before them those of groups and the largest ones."""
    if text := breakdown_table(predicted.comparison):
        print(text)
    print(error_table({predicted.file: predicted.errors}))


def files_of(data: Path, descriptors: int) -> list[str]:
    """The files that ``write_prediction`` makes."""
    stem = _stem(data.name)
    return output_names(stem) + breakdown_names(stem) + ["descriptor.out"] * (descriptors > 0)


def spare_trainings(folder: OutputFolder, names: list[str]):
    """Refuse to replace what a training has written."""
    there = [name for name in names if (folder.path / name).exists()]
    if there and (folder.path / checkpoint.NAME).exists():
        raise UserError(
            f"{folder.path}: a training lies there, and {there[0]} belongs to it; give another folder "
            "for the predictions"
        )


def write_prediction(
    model: Nep, data: Path, folder: OutputFolder, descriptors: int, world: World = ALONE
) -> Predicted:
    """Evaluate ``model`` on ``data`` and write GPUMD's files into ``folder``.

    The folder is theirs before the evaluation, so that somebody else's file stops it early.
    """
    stem = _stem(data.name)
    world.from_first(lambda: folder.claim(files_of(data, descriptors)))
    predicted = predict_file(model, data, world, descriptors=descriptors)
    if not world.first:
        return predicted
    if predicted.open_frames:
        print(
            f"warning: {data.name}: {predicted.open_frames} frames are not periodic in all "
            "directions; GPUMD takes every frame as periodic"
        )
    write_outputs(folder.path, stem, predicted.prediction, predicted.targets)
    write_breakdown(folder.path, [predicted.comparison], stem)
    return predicted
