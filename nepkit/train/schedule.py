"""Learning rate and batches as pure functions of the step, and numbers chosen from the data."""

from __future__ import annotations

import math
from dataclasses import replace

from ..config import NepConfig, Stage
from ..data.sampler import batches_per_epoch
from .shared import Shared, parametrisation_of

# Steps of a training whose length nobody asked for.
DEFAULT_STEPS = 10000
# Frames above which a batch of all of them is worth a word.
WHOLE = 20
# GPUMD's output_interval.
DEFAULT_INTERVAL = 100


def resolve(
    config: NepConfig, n_frames: int, n_atoms: int, n_all: int
) -> tuple[NepConfig, list[str]]:
    """Fill in batch, generation and more where they are left to us, and say so.

    ``n_frames``, ``n_atoms``: of the training set; ``n_all``: frames of all sets.
    """
    stages, lines, kind = [], [], parametrisation_of(config)
    config = replace(config, shared_base=kind is Shared)
    for number, stage in enumerate(config.stages, start=1):
        where = f"stage {number}: " if len(config.stages) > 1 else ""
        if stage.batch_atoms is not None:
            batch = max(1, min(round(stage.batch_atoms * n_frames / n_atoms), n_frames))
            stage = replace(stage, batch=batch, batch_atoms=None)
            lines.append(f"{where}batch {batch}, {n_atoms / n_frames * batch:.0f} atoms on average")
        elif stage.batch is None:
            stage = replace(stage, batch=default_batch(n_frames, n_atoms))
            lines.append(f"{where}batch {stage.batch}, chosen from the data")
        if stage.batch > n_frames > WHOLE:
            lines.append(
                f"{where}batch {stage.batch} takes all {n_frames} frames at every step; small batches "
                "learn faster: without batch it is chosen from the data"
            )
        if stage.weight_decay is None:
            decay = kind.default_decay(len(config.model.elements))
            stage = replace(stage, weight_decay=decay)
        per_epoch = batches_per_epoch(n_frames, stage.batch)
        if stage.epoch is not None:
            stage = replace(stage, generation=stage.epoch * per_epoch, epoch=None)
        elif stage.generation is None:
            stage = replace(stage, generation=DEFAULT_STEPS)
            lines.append(f"{where}generation {stage.generation}, chosen by nepkit")
        stages.append(stage)
    interval = config.output_interval
    if interval == DEFAULT_INTERVAL:
        # Judging all frames costs about half as much as training on them: keep it near a tenth.
        judging = 0.5 * n_all / min(stage.batch for stage in stages)
        interval *= max(1, math.ceil(judging / (0.1 * interval)))
    if interval != config.output_interval:
        lines.append(f"output_interval {interval}, so that reports take some tenth of the time")
    return replace(config, stages=tuple(stages), output_interval=interval), lines


def default_batch(n_frames: int, n_atoms: int) -> int:
    """Frames a step: some 200 atoms, at most a fifth of the data."""
    wanted = round(200 * n_frames / n_atoms)
    return max(1, min(wanted, max(n_frames // 5, 1)))


def learning_rate(step: int, stage: Stage) -> float:
    """Rate of ``step`` (from 0) of a stage: linear warm-up, then a cosine from start to stop."""
    start, stop = stage.learning_rate
    if step < stage.warmup:
        return start * (step + 1) / (stage.warmup + 1)
    span = max(stage.generation - stage.warmup, 1)
    progress = min((step - stage.warmup) / span, 1.0)
    return stop + 0.5 * (start - stop) * (1.0 + math.cos(math.pi * progress))
