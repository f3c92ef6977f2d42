"""Which frames are held out of the training for validation."""

from __future__ import annotations

import numpy as np
import torch

from .composition import formulas_of, same_rows


def held_out(counts: np.ndarray, ratio: float, seed: int) -> np.ndarray:
    """Which of F frames (F,) bool are held out: a part ``ratio`` of each composition and size.

    ``counts`` (F, T): atoms of each element in each frame. Frames are put in order of composition
    and number of atoms, at random among their like, and taken at equal distances from a random
    place on, so that small groups have their share too. An element that the training would be left
    without gets its frame back. At least one frame is held out, and one is left, where there are
    two.
    """
    n_frames = len(counts)
    count = min(max(round(ratio * n_frames), 1), n_frames - 1)
    generator = torch.Generator().manual_seed(seed)
    shuffled = torch.randperm(n_frames, generator=generator).numpy()
    start = torch.rand((), generator=generator, dtype=torch.float64).item()
    composition, size = same_rows(formulas_of(counts)), counts.sum(1)
    order = shuffled[np.lexsort((size[shuffled], composition[shuffled]))]
    places = ((np.arange(count) + start) * n_frames / max(count, 1)).astype(int)
    chosen = np.zeros(n_frames, bool)
    chosen[order[places]] = True
    present = counts.any(0)
    while (missing := present & ~counts[~chosen].any(0)).any():
        element = int(np.flatnonzero(missing)[0])
        chosen[np.flatnonzero(chosen & (counts[:, element] > 0))[0]] = False
    return chosen
