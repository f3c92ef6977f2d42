"""Rules by which a frame looks like a mistake: one place for the training and `nepkit check`.

The limits are wide: they pass the hottest, densest and most strained structures of public data
sets, and catch units, missing factors and labels of another frame.
"""

from __future__ import annotations

import numpy as np

from .known import Labels
from .prepared import Surroundings

# Atoms nearer than this part of the sum of their covalent radii; and so near that a calculation
# with pseudopotentials means nothing.
CLOSE, TOO_CLOSE = 0.5, 0.3
# Energies farther than this from what the elements' energies give: eV/atom, and median deviations.
FAR, FAR_DEVIATIONS = 10.0, 30.0
# The same, worth a look.
ODD, ODD_DEVIATIONS = 0.3, 15.0
# The same from the median of ten frames or more of one composition.
UNLIKE, UNLIKE_DEVIATIONS, LEAST_ALIKE = 0.5, 20.0, 10
# Largest force of a frame, eV/Å, and in medians over the frames: worth a look, and a mistake.
LARGE_FORCE, LARGE_FORCE_MEDIANS = 30.0, 20.0
HUGE_FORCE, HUGE_FORCE_MEDIANS = 100.0, 50.0
# Mean force of the atoms of a frame, eV/Å, and as part of the root mean square force.
NET_FORCE, NET_FORCE_PART = 0.01, 0.02
# Pressure, GPa: worth a look, and a mistake; 1,000 GPa is thrice that in the centre of the Earth.
LARGE_PRESSURE, HUGE_PRESSURE = 200.0, 1000.0
# Frames of one composition whose virials can be held against their volumes, and by how much (as a
# part) the volumes must differ; the rank correlation that nobody's data have by chance.
LEAST_VOLUMES, LEAST_SPREAD, CORRELATED = 12, 0.02, 0.8
# Findings of one kind that are told one by one.
MOST_TOLD = 3


def close_contacts(labels: Labels, around: Surroundings) -> list[str]:
    """A line for each frame with atoms much too close, the closest pair named."""
    found = []
    for k in np.flatnonzero(around.contact < CLOSE).tolist():
        i, j = around.contact_atoms[k]
        found.append(
            f"{labels.place(k)}: atoms {i} and {j} (from 0) are "
            f"{around.contact_distance[k]:.2f} Å apart"
        )
    return found


def median_deviation(values: np.ndarray, fitted: int = 0) -> float:
    """Median of the distances to the median, leaving out NaN; 0 of nothing.

    ``fitted`` numbers were fitted to the values: as many are near 0 whatever they are.
    """
    values = values[np.isfinite(values)]
    off = np.sort(np.abs(values - np.median(values)))[fitted:] if len(values) else values
    return float(np.median(off)) if len(off) else 0.0


def far_off(
    residual: np.ndarray,
    least: float = FAR,
    deviations: float = FAR_DEVIATIONS,
    fitted: int = 0,
) -> np.ndarray:
    """Which of ``residual`` (F,) lie farther from their median than both limits; NaN never."""
    if np.isnan(residual).all():
        return np.zeros(len(residual), bool)
    limit = max(least, deviations * median_deviation(residual, fitted))
    return np.abs(residual - np.nanmedian(residual)) > limit


def large(values: np.ndarray, least: float, medians: float) -> np.ndarray:
    """Which of ``values`` (F,) exceed ``least`` and so many medians of all; NaN never."""
    if np.isnan(values).all():
        return np.zeros(len(values), bool)
    return values > max(least, medians * float(np.nanmedian(values)))


def unbalanced(net: np.ndarray, rms: np.ndarray) -> np.ndarray:
    """Frames (F,) whose forces do not add up to 0; ``net``: mean force, ``rms``: of all, eV/Å."""
    return net > np.maximum(NET_FORCE, NET_FORCE_PART * rms)


def odd_energies(labels: Labels, residual: np.ndarray) -> list[str]:
    """A line for each energy far off; ``residual`` (F,) eV/atom, NaN without an energy."""
    return [
        f"{labels.place(k)}: {energy_text(float(residual[k]))}"
        for k in np.flatnonzero(far_off(residual)).tolist()
    ]


def energy_text(residual: float) -> str:
    """What is said of an energy that is ``residual`` eV/atom off."""
    return (
        f"the energy is {residual:.1f} eV/atom off what its elements have elsewhere; "
        "is it in eV, and of the whole cell?"
    )


def robust_element_energies(counts: np.ndarray, energy: np.ndarray) -> np.ndarray:
    """Energy of each element (T,) eV that few wrong energies do not move.

    ``counts`` (F, T) atoms of each element, ``energy`` (F,) eV. Least absolute deviations of the
    energies per atom by reweighted least squares; what compositions leave undetermined is smallest.
    """
    n_atoms = counts.sum(1)
    share = counts / n_atoms[:, None]
    per_atom = energy / n_atoms
    found = np.zeros(counts.shape[1])
    weight = np.ones(len(energy))
    for _ in range(15):
        # Solving for the change keeps meV in energies of thousands of eV.
        residual = per_atom - share @ found
        normal = share.T @ (weight[:, None] * share)
        found = found + np.linalg.lstsq(normal, share.T @ (weight * residual), rcond=1e-12)[0]
        residual = np.abs(per_atom - share @ found)
        floor = max(1e-3 * float(np.median(residual)), 1e-9)
        weight = floor / np.maximum(residual, floor)
    return found


def energy_residuals(labels: Labels, train: Labels, n_types: int) -> np.ndarray:
    """What the elements' energies in ``train`` leave of each frame's (F,), eV/atom; NaN without."""
    known = np.flatnonzero(~np.isnan(train.energy))
    energies = np.zeros(n_types)
    if len(known):
        counts = train.counts(n_types)[known]
        energies = robust_element_energies(counts, train.energy[known])
    return (labels.energy - labels.counts(n_types) @ energies) / labels.n_atoms


def told(findings: list[str]) -> list[str]:
    """The first findings as warnings, and how many more there are."""
    lines = [f"warning: {text}" for text in findings[:MOST_TOLD]]
    if len(findings) > MOST_TOLD:
        lines.append(
            f"warning: and {len(findings) - MOST_TOLD} more frames like these; nepkit check --all shows them"
        )
    return lines
