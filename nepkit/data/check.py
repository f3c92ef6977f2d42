"""Frames that look like mistakes: what a run says of its data before it trains on them."""

from __future__ import annotations

import numpy as np

from ..errors import at
from ..units import COVALENT_RADII
from .frame import Frame
from .neighbors import Neighbors

# Atoms nearer than this part of the sum of their covalent radii.
CLOSE = 0.5
# Energies farther than this from what the elements' energies give: eV/atom, and median deviations.
FAR, FAR_DEVIATIONS = 10.0, 30.0
# Findings of one kind that are told one by one.
MOST_TOLD = 3


def close_contacts(frames: list[Frame], neighbors: list[Neighbors]) -> list[str]:
    """A line for each frame with atoms much too close, the closest pair named."""
    radii = np.array(COVALENT_RADII)
    found = []
    for frame, pairs in zip(frames, neighbors):
        if len(pairs.center) == 0:
            continue
        i, j = (frame.numbers[side] - 1 for side in (pairs.center, pairs.neighbor))
        distance = np.linalg.norm(pairs.vectors, axis=1)
        ratio = distance / (radii[i] + radii[j])
        k = int(ratio.argmin())
        if ratio[k] < CLOSE:
            found.append(
                f"{at(frame.path, frame.line, frame.index)}: atoms {pairs.center[k]} and "
                f"{pairs.neighbor[k]} (from 0) are {distance[k]:.2f} Å apart"
            )
    return found


def odd_energies(frames: list[Frame], residual: np.ndarray) -> list[str]:
    """A line for each energy far off; ``residual`` (F,) eV/atom, NaN without an energy."""
    if np.isnan(residual).all():
        return []
    off = np.abs(residual - np.nanmedian(residual))
    limit = max(FAR, FAR_DEVIATIONS * float(np.nanmedian(off)))
    return [
        f"{at(frame.path, frame.line, frame.index)}: the energy is {residual[k]:.1f} eV/atom off "
        "what its elements have elsewhere; is it in eV, and of the whole cell?"
        for k, frame in enumerate(frames)
        if off[k] > limit
    ]


def told(findings: list[str]) -> list[str]:
    """The first findings as warnings, and how many more there are."""
    lines = [f"warning: {text}" for text in findings[:MOST_TOLD]]
    if len(findings) > MOST_TOLD:
        lines.append(f"warning: and {len(findings) - MOST_TOLD} more frames like these")
    return lines
