"""Frames made ready for a model: labels, neighbours and flat tensors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields

import numpy as np
import torch
from tqdm import tqdm

from ..config import ModelSettings
from ..units import ATOMIC_NUMBERS
from .block import Block, find_block
from .frame import Frame
from .known import Labels
from .ragged import chunks
from .structures import Structures

# Atoms whose neighbours are sorted together: numpy is fast for long arrays only.
ATOMS_AT_ONCE = 1000


@dataclass(frozen=True, eq=False)
class Prepared:
    """Frames with what a model needs of them."""

    labels: Labels
    structures: Structures
    surroundings: Surroundings
    # ZBL of the frames by its settings (model/zbl.py), as it holds no trainable number.
    repulsion: dict = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def n_atoms(self) -> np.ndarray:
        """Atoms of each frame (F,)."""
        return self.labels.n_atoms


@dataclass(frozen=True, eq=False)
class Surroundings:
    """What the pairs of F frames tell of them; see Block."""

    largest: np.ndarray  # (F, 2)
    contact: np.ndarray  # (F,)
    contact_distance: np.ndarray  # (F,)
    contact_atoms: np.ndarray  # (F, 2)

    @classmethod
    def of(cls, blocks: Sequence[Block]) -> Surroundings:
        """Those of the frames of ``blocks``."""
        names = [f.name for f in fields(cls)]
        return cls(**{n: np.concatenate([getattr(b, n) for b in blocks]) for n in names})

    def take(self, frames: np.ndarray) -> Surroundings:
        """Those of ``frames`` (n,), in this order."""
        return Surroundings(*(getattr(self, f.name)[frames] for f in fields(self)))


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
    bar = tqdm(
        total=len(frames), desc=progress, unit=" frames",
        disable=True if progress is None else None, delay=1.0,
    )  # fmt: skip
    blocks = []
    with bar:
        for start, stop in chunks([len(frame) for frame in frames], ATOMS_AT_ONCE):
            blocks.append(find_block(frames[start:stop], types[start:stop], settings))
            bar.update(stop - start)
    structures = Structures.of(blocks, len(settings.elements), device=device, dtype=dtype)
    return Prepared(Labels.of(frames, types), structures, Surroundings.of(blocks))
