"""What is wrong with the labels and geometries of single frames: facts in, findings out."""

from __future__ import annotations

import numpy as np

from ..data import check
from ..units import ELEMENTS, GPA_PER_EV_PER_CUBIC_ANGSTROM
from .facts import Facts
from .findings import Finding
from .groups import Compositions, signs

# What energies are given in by mistake: the fitted energy is so many times the one in the file.
UNITS = {27.2114: "hartree", 13.6057: "rydberg"}
UNIT_TOLERANCE = 0.1


def found_at(facts: Facts, kind: str, frame: int, text: str, size: float = 0.0) -> Finding:
    """A finding in one frame."""
    return Finding(kind, text, facts.path, int(frame), int(facts.line[frame]), float(size))


def all_frames(facts: Facts, elements: tuple[str, ...], max_force: float | None) -> list[Finding]:
    """Everything that one file tells by itself; ``elements``: those of nep.in."""
    groups = Compositions(facts.counts)
    return [
        *refused(facts),
        *strangers(facts, elements),
        *energies(facts, groups),
        *forces(facts, max_force),
        *pressures(facts),
        *contacts(facts),
        *signs(facts, groups),
        *zeros(facts),
    ]


def refused(facts: Facts) -> list[Finding]:
    """Frames for which there are no neighbour lists, and files without labels."""
    found = [found_at(facts, "refused", k, text) for k, text in facts.refused.items()]
    labels = np.stack([facts.energy, facts.rms_force, facts.virial])
    if np.isnan(labels).all():
        text = "no frame has an energy, forces or a virial to train on"
        found.append(Finding("refused", text, facts.path, size=1.0))
    return found


def strangers(facts: Facts, elements: tuple[str, ...]) -> list[Finding]:
    """Frames with elements that the model does not have."""
    strange = facts.counts > 0
    strange[:, [ELEMENTS.index(symbol) for symbol in elements]] = False
    found = []
    for k in np.flatnonzero(strange.any(1)):
        symbols = " ".join(ELEMENTS[e] for e in np.flatnonzero(strange[k]))
        found.append(found_at(facts, "type", k, f"{symbols} is not in the type line of nep.in"))
    return found


def energy_residuals(facts: Facts) -> np.ndarray:
    """Energies (F,) eV/atom less what the elements have; NaN without an energy."""
    known = np.isfinite(facts.energy)
    residual = np.full(len(facts), np.nan)
    present = facts.counts[known].any(0)
    if known.any():
        counts = facts.counts[known][:, present].astype(float)
        element_energy = check.robust_element_energies(counts, facts.energy[known])
        residual[known] = (facts.energy[known] - counts @ element_energy) / facts.n_atoms[known]
    return residual


def energies(facts: Facts, groups: Compositions) -> list[Finding]:
    """Energies that do not fit the others."""
    residual, fitted = energy_residuals(facts), int(facts.counts.any(0).sum())
    usual = check.median_deviation(residual, fitted)
    far = check.far_off(residual, fitted=fitted)
    bound = facts.isolated < facts.n_atoms  # atoms alone have no cohesive energy
    odd = check.far_off(residual, check.ODD, check.ODD_DEVIATIONS, fitted) & ~far & bound
    odd &= np.isfinite(residual).sum() > 2 * fitted  # or the fit leaves too little to judge by
    per_atom = facts.energy / facts.n_atoms
    found = [
        found_at(
            facts, "energy", k, _unit_hint(facts, k, residual[k]) or check.energy_text(residual[k]),
            abs(residual[k]),
        ) for k in np.flatnonzero(far)
    ]  # fmt: skip
    for k in np.flatnonzero(odd):
        text = (
            f"{per_atom[k]:.3f} eV/atom, {residual[k]:+.2f} from what its elements have elsewhere "
            f"(usual: {usual:.2f})"
        )
        found.append(found_at(facts, "odd energy", k, text, abs(residual[k])))
    for name, members in groups.of(np.isfinite(per_atom) & ~far & ~odd & bound, check.LEAST_ALIKE):
        values = per_atom[members]
        off = values - np.median(values)
        for k in np.flatnonzero(check.far_off(off, check.UNLIKE, check.UNLIKE_DEVIATIONS)):
            text = (
                f"{values[k]:.3f} eV/atom, {off[k]:+.2f} from the median of the {len(members)} "
                f"frames of {name}"
            )
            found.append(found_at(facts, "odd energy", members[k], text, abs(off[k])))
    return found


def _unit_hint(facts: Facts, frame: int, residual: float) -> str:
    """What the energy of a frame may be in, where the numbers say so."""
    energy, n_atoms = facts.energy[frame], facts.n_atoms[frame]
    factor = (energy - residual * n_atoms) / energy if energy else 0.0
    start = (
        f"{energy:.6g} is {1 / factor:.2g} of what its elements have elsewhere" if factor else ""
    )
    for value, unit in UNITS.items():
        if abs(factor / value - 1.0) < UNIT_TOLERANCE:
            return f"{start}: it looks like {unit}; give eV"
    if n_atoms > 1 and abs(factor / n_atoms - 1.0) < UNIT_TOLERANCE:
        return f"{start}: it looks like the energy of one atom; give that of the whole cell"
    return ""


def forces(facts: Facts, max_force: float | None) -> list[Finding]:
    """Forces too large, and frames whose forces do not add up to 0."""
    largest = facts.max_force
    usual = f"eV/Å (median of all frames: {np.nanmedian(largest):.2f})" if _any(largest) else ""
    if max_force is not None:
        huge = large = largest > max_force
    else:
        huge = check.large(largest, check.HUGE_FORCE, check.HUGE_FORCE_MEDIANS)
        large = check.large(largest, check.LARGE_FORCE, check.LARGE_FORCE_MEDIANS)
    found = []
    for kind, chosen in (("huge force", huge), ("large force", large & ~huge)):
        for k in np.flatnonzero(chosen):
            text = f"the largest force is {largest[k]:.1f} {usual}"
            found.append(found_at(facts, kind, k, text, largest[k]))
    for k in np.flatnonzero(check.unbalanced(facts.net_force, facts.rms_force)):
        text = (
            f"the forces add up to {facts.net_force[k]:.3f} eV/Å an atom, of "
            f"{facts.rms_force[k]:.3f} root mean square; are columns or atoms missing or mixed up?"
        )
        found.append(found_at(facts, "net force", k, text, facts.net_force[k]))
    return found


def pressure(facts: Facts) -> np.ndarray:
    """Pressure (F,) of the virials in GPa, positive when compressed; NaN where there is none."""
    volume = np.where((facts.volume > 0) & facts.periodic, facts.volume, np.nan)
    return facts.virial / volume * GPA_PER_EV_PER_CUBIC_ANGSTROM


def pressures(facts: Facts) -> list[Finding]:
    """Virials out of scale."""
    size = np.abs(values := pressure(facts))
    huge = size > check.HUGE_PRESSURE
    found = []
    for kind, chosen in (
        ("huge pressure", huge), ("large pressure", (size > check.LARGE_PRESSURE) & ~huge)
    ):  # fmt: skip
        for k in np.flatnonzero(chosen):
            text = f"the virial makes a pressure of {values[k]:.0f} GPa"
            hint = "; is it in eV, of the whole cell? stress= is in eV/Å^3"
            found.append(found_at(facts, kind, k, text + hint * (kind[0] == "h"), size[k]))
    return found


def contacts(facts: Facts) -> list[Finding]:
    """Atoms too close for their covalent radii."""
    found = []
    for k in np.flatnonzero(facts.contact < check.CLOSE):
        kind = "too close" if facts.contact[k] < check.TOO_CLOSE else "close"
        (i, j), (a, b) = facts.contact_pair[k], facts.contact_numbers[k]
        text = (
            f"atoms {i} and {j} (from 0), {ELEMENTS[a - 1]} and {ELEMENTS[b - 1]}, are "
            f"{facts.contact_distance[k]:.2f} Å apart, {facts.contact[k]:.2f} of their radii"
        )
        found.append(found_at(facts, kind, k, text, -facts.contact[k]))
    return found


def zeros(facts: Facts) -> list[Finding]:
    """Labels that are exactly 0, as programs write for what they do not know."""
    more = facts.n_atoms > 1
    found = []
    for label, zero in (
        ("energy", facts.energy == 0.0),
        ("virial", (facts.virial_size == 0.0) & facts.periodic & (facts.isolated < facts.n_atoms)),
    ):
        for k in np.flatnonzero(zero & more):
            text = f"the {label} is exactly 0; leave out a label that is not known"
            found.append(found_at(facts, "zero", k, text))
    still = (facts.rms_force == 0.0) & more
    if 2 * still.sum() > np.isfinite(facts.rms_force).sum():
        text = f"all forces are exactly 0 in {still.sum():,} of {len(facts):,} frames"
        found.append(Finding("zero", text, facts.path, size=1.0))
    return found


def _any(values: np.ndarray) -> bool:
    return bool(np.isfinite(values).any())
