"""What frames are made of: atoms of each element, and the frames of one composition."""

from __future__ import annotations

import numpy as np

from ..units import ELEMENTS
from .frame import Frame


def element_counts(frames: list[Frame]) -> np.ndarray:
    """Atoms of each element in each frame (F, 94)."""
    counts = [np.bincount(frame.numbers - 1, minlength=len(ELEMENTS)) for frame in frames]
    return np.array(counts).reshape(len(frames), len(ELEMENTS))


def formulas_of(counts: np.ndarray) -> np.ndarray:
    """Atoms of each element in the simplest formula (F, 94): Si8 and Si64 are both Si."""
    return counts // np.gcd.reduce(counts, axis=1)[:, None]


def same_rows(rows: np.ndarray) -> np.ndarray:
    """A number for each row, the same for equal rows."""
    rows = np.ascontiguousarray(rows)
    whole = rows.view(np.dtype((np.void, rows.itemsize * rows.shape[1]))).ravel()
    return np.unique(whole, return_inverse=True)[1].ravel()


def formula(counts: np.ndarray) -> str:
    """SiO2, from the atoms of each element (94,)."""
    return "".join(
        ELEMENTS[k] + (str(counts[k]) if counts[k] > 1 else "") for k in np.flatnonzero(counts)
    )
