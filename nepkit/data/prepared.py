"""Frames made ready for a model: types, neighbours and flat tensors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from tqdm import tqdm

from ..config import ModelSettings
from ..units import ATOMIC_NUMBERS
from .frame import Frame
from .neighbors import Neighbors, find_neighbors
from .structures import Structures


@dataclass(frozen=True, eq=False)
class Prepared:
    """Frames with what a model needs of them, in the order of the file."""

    frames: list[Frame]
    types: list[np.ndarray]  # (N,) int32 a frame
    neighbors: list[Neighbors]
    structures: Structures
    # ZBL of the frames by its settings (model/zbl.py), as it holds no trainable number.
    repulsion: dict = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.frames)

    @property
    def n_atoms(self) -> np.ndarray:
        """Atoms of each frame (F,)."""
        return np.array([len(frame) for frame in self.frames])

    def largest_neighborhoods(self) -> tuple[int, int]:
        """Most neighbours of an atom: radial, angular."""
        counts = [neighbors.largest() for neighbors in self.neighbors]
        return tuple(int(most) for most in np.max(counts, axis=0, initial=0).reshape(-1, 2).max(0))


def type_lookup(elements: Sequence[str]) -> np.ndarray:
    """Type of each atomic number, -1 for elements that the model does not have."""
    lookup = np.full(max(ATOMIC_NUMBERS.values()) + 1, -1, dtype=np.int32)
    for index, element in enumerate(elements):
        lookup[ATOMIC_NUMBERS[element]] = index
    return lookup


def prepare(
    frames: list[Frame],
    settings: ModelSettings,
    *,
    device: torch.device | str,
    dtype: torch.dtype,
    progress: str | None = None,
) -> Prepared:
    """Find the neighbours of ``frames``, whose elements must be in ``settings`` (check_elements).

    ``progress``: title of a progress bar.
    """
    lookup = type_lookup(settings.elements)
    types = [lookup[frame.numbers] for frame in frames]
    pairs = zip(frames, types, strict=True)
    bar = tqdm(
        pairs,
        total=len(frames),
        desc=progress,
        unit=" frames",
        disable=True if progress is None else None,
        delay=1.0,
    )
    neighbors = [find_neighbors(frame, of_atoms, settings) for frame, of_atoms in bar]
    structures = Structures(
        frames, types, neighbors, len(settings.elements), device=device, dtype=dtype
    )
    return Prepared(frames, types, neighbors, structures)
