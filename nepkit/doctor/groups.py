"""Frames that can be held against each other: of one composition, or the same structure."""

from __future__ import annotations

import os
from collections.abc import Iterator

import numpy as np

from ..data import check
from ..data.composition import formula, formulas_of, same_rows
from .facts import Facts
from .findings import Finding
from .fingerprint import SAME, alike

# Energies of one structure that differ by more (eV/atom) contradict each other.
CONFLICT = 1e-3
# Frames next to each other in the order of the fingerprint that are compared.
COMPARED = 4


class Compositions:
    """Frames grouped by their composition as a formula, Si8 and Si64 together."""

    def __init__(self, counts: np.ndarray):
        self.formulas = formulas_of(counts)
        self.number = same_rows(self.formulas)
        order = np.argsort(self.number, kind="stable")
        ends = np.cumsum(np.bincount(self.number))
        self.members = np.split(order, ends[:-1])

    def of(self, chosen: np.ndarray, least: int) -> Iterator[tuple[str, np.ndarray]]:
        """Formula and frames of each composition with at least so many ``chosen`` (F,) frames."""
        for group in self.members:
            members = group[chosen[group]]
            if len(members) >= least:
                yield formula(self.formulas[members[0]]), members


def signs(facts: Facts, groups: Compositions) -> list[Finding]:
    """Virials whose sign is against their volumes: compressed cells have the larger virial."""
    found = []
    chosen = np.isfinite(facts.virial) & facts.periodic & (facts.volume > 0)
    virial, volume = facts.virial / facts.n_atoms, facts.volume / facts.n_atoms
    for name, members in groups.of(chosen, check.LEAST_VOLUMES):
        v, w = volume[members], virial[members]
        low, middle, high = np.percentile(v, [10, 50, 90])
        if high - low < check.LEAST_SPREAD * middle:
            continue
        if _rank_correlation(v, w) > check.CORRELATED:
            text = (
                f"the virials of the {len(members)} frames of {name} rise with the volume; "
                "virial = -volume x ASE stress, positive when compressed"
            )
            found.append(Finding("sign", text, facts.path, size=len(members)))
            continue
        for k in _reversed(v, w):
            text = (
                f"virial {w[k]:+.2f} eV/atom, but {-w[k]:+.2f} would fit the {len(members)} frames "
                f"of {name}; is its sign right?"
            )
            where = int(members[k]), int(facts.line[members[k]])
            found.append(Finding("sign", text, facts.path, *where, size=abs(w[k]) / 1e6))
    return found


def _rank_correlation(x: np.ndarray, y: np.ndarray) -> float:
    ranks = [np.argsort(np.argsort(values)).astype(float) for values in (x, y)]
    return float(np.corrcoef(*ranks)[0, 1])


def _reversed(volume: np.ndarray, virial: np.ndarray) -> np.ndarray:
    """Frames that are far from a robust line through the others, and near it with the other sign."""
    design = np.stack([np.ones_like(volume), volume - np.median(volume)], 1)
    weight = np.ones_like(virial)
    for _ in range(15):
        line = design @ np.linalg.lstsq(weight[:, None] * design, weight * virial, rcond=None)[0]
        off = np.abs(virial - line)
        scale = max(1.5 * float(np.median(off)), 0.01)
        weight = np.sqrt(1.0 / np.maximum(off, 0.1 * scale))
    return np.flatnonzero((off > 8 * scale) & (np.abs(virial + line) < 4 * scale))


def duplicates(files: list[Facts]) -> list[Finding]:
    """Structures that are there twice, in one file or in two."""
    counts = np.concatenate([facts.counts for facts in files])
    n_atoms, volume, energy = (
        np.concatenate([getattr(facts, name) for facts in files])
        for name in ("n_atoms", "volume", "energy")
    )
    marks = np.concatenate([facts.fingerprint for facts in files])
    file = np.repeat(np.arange(len(files)), [len(facts) for facts in files])
    index = np.concatenate([np.arange(len(facts)) for facts in files])
    known = np.concatenate(
        [~np.isin(np.arange(len(facts)), list(facts.refused)) for facts in files]
    )
    number = same_rows(counts)
    order = np.lexsort((marks[:, 0], number))
    order = order[known[order]]
    first = np.arange(len(counts))  # the earliest frame that each frame is the same as
    for step in range(COMPARED, 0, -1):
        a, b = order[:-step], order[step:]
        same = (number[a] == number[b]) & (np.abs(volume[a] - volume[b]) <= SAME * volume[a] + 1e-9)
        same &= alike(marks[a], marks[b], n_atoms[a])
        a, b = np.sort([a[same], b[same]], axis=0)
        np.minimum.at(first, b, a)
    found = []
    for k in np.flatnonzero(first != np.arange(len(counts))):
        where, other = files[file[k]], files[file[first[k]]]
        name = "" if other is where else f"{os.path.basename(other.path)}, "
        text = f"the same structure as {name}frame {index[first[k]]}"
        difference = (energy[k] - energy[first[k]]) / n_atoms[k]
        kind, size = ("overlap" if name else "duplicate"), 0.0
        if abs(difference) > CONFLICT:
            text += f", but the energies differ by {difference:+.3f} eV/atom"
            kind, size = "conflict", abs(difference)
        line = int(where.line[index[k]])
        found.append(Finding(kind, text, where.path, int(index[k]), line, size))
    return found
