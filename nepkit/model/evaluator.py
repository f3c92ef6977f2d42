"""Choosing how a model is evaluated on a data set, and keeping what does not change."""

from __future__ import annotations

from contextlib import nullcontext

import torch
from torch import Tensor

from ..config import ModelSettings
from ..data.feed import moved
from ..data.structures import Structures
from ..ops.geometry import Geometry
from ..ops.policy import fused_on
from ..ops.stages import stage
from ..ops.tables import PAIR_TABLES, all_tables, pair_tables
from .nep import Evaluation, Nep
from .rows import RowEvaluation


class Evaluator:
    """Evaluates ``model`` on frames of ``structures``."""

    def __init__(self, model: Nep, structures: Structures):
        self.model, self.structures = model, structures
        self.fused = fused_on(model.flat.device)
        if self.fused and structures.kept is not None:
            pair_types = structures.row_index[1, :-1]
            group = model.group_of_pair_type.index_select(0, pair_types)
            self.data = structures.kept._replace(group=group.numpy())

    def __call__(self, frames: Tensor, flat: Tensor | None = None) -> Evaluation:
        """Evaluate ``frames`` (B,) int64, with ``flat`` in place of the model's parameters."""
        model, structures = self.model, self.structures
        flat = model.flat if flat is None else flat
        if not self.fused:
            with stage("batch"):
                batch = moved(structures.batch(frames), flat.device)
            return RowEvaluation(model, batch, flat)
        from ..ops.cpu.launch import pair_data, selected, whole
        from .cpu import CpuEvaluation

        if structures.kept is not None:
            with stage("batch"):
                selection, place = selected(structures, frames)
            return CpuEvaluation(model, selection, flat, self.data, place)
        with stage("batch"):
            batch = structures.batch(frames)
        with stage("densities"):
            tables = pair_tables(batch, model.settings, flat.dtype)
            data = pair_data(batch, tables, model.group_of_pair_type, model.settings)
        return CpuEvaluation(model, batch, flat, data, whole(batch))

    def threads(self):
        """A context in which the processor's threads serve this evaluation best."""
        if not self.fused:
            return nullcontext()
        from ..ops.cpu.threads import kernel_threads

        return kernel_threads()


def keep_constants(structures: Structures, settings: ModelSettings):
    """Compute once what the fused kernels read of the pairs of ``structures``."""
    if not fused_on(structures.device):
        return
    from ..ops.cpu.launch import pair_data

    everything = structures.batch(torch.arange(len(structures)))
    same = torch.arange(structures.n_types**2, dtype=torch.int32)
    structures.kept = pair_data(everything, all_tables(structures, settings), same, settings)


def attach_constants(structures: Structures, settings: ModelSettings, chunk: int = 64):
    """Give every batch its ``pair_tables`` and densities as tables."""
    parts: dict[str, list[Tensor]] = {name: [] for name in PAIR_TABLES}
    for start in range(0, len(structures), chunk):
        frames = torch.arange(start, min(start + chunk, len(structures)), device=structures.device)
        geometry = Geometry(structures.batch(frames), settings, structures.dtype)
        densities = dict(zip(("radial_density", "angular_density"), geometry.densities()))
        for name in PAIR_TABLES:
            parts[name].append((geometry.tables | densities)[name])
    for name, kind in PAIR_TABLES.items():
        structures.attach(kind, name, torch.cat(parts.pop(name)))


def compiling(device: torch.device) -> bool:
    """Whether kernels that were not on disk have been compiled: then more will be."""
    if not fused_on(device):
        return False
    from ..ops.cpu.forward import densities

    return bool(densities.stats.cache_misses)
