"""What is allowed and worth knowing: facts in, notes out."""

from __future__ import annotations

import numpy as np

from ..text import names
from ..train.start import GPUMD_NEIGHBORS
from ..units import ELEMENTS
from .facts import Facts
from .findings import Finding
from .rules import found_at

# Frames below which an element is rare.
FEW_FRAMES = 5


def all_notes(facts: Facts, elements: tuple[str, ...], training: bool) -> list[Finding]:
    """Notes on one file; of the training set also what its elements lack."""
    found = [*_counted(facts), *_crowded(facts)]
    if training:
        found += [*_rare(facts, elements), *_unseen(facts, elements)]
    return found


def _counted(facts: Facts) -> list[Finding]:
    """What so many frames have in common."""
    found = []
    texts = {
        "open": "not periodic in all directions; GPUMD takes every frame as periodic",
        "thin": "thinner than the radial cutoff",
    }
    for kind, chosen in (("open", ~facts.periodic), ("thin", facts.thin)):
        if chosen.any():
            count = f"{chosen.sum():,} of {len(facts):,} frames, the first {np.argmax(chosen)}"
            found.append(Finding(kind, f"{count}: {texts[kind]}", facts.path))
    alone = facts.isolated > 0
    alone[list(facts.refused)] = False
    for k in np.flatnonzero(alone & (facts.n_atoms > 1)):
        text = f"{facts.isolated[k]} of {facts.n_atoms[k]} atoms"
        found.append(found_at(facts, "isolated", k, text, facts.isolated[k]))
    single = np.flatnonzero(alone & (facts.n_atoms == 1))
    if len(single):
        text = f"{len(single):,} frames of one atom alone, the first {single[0]}"
        found.append(Finding("isolated", text, facts.path))
    return found


def _crowded(facts: Facts) -> list[Finding]:
    most = int(facts.most_radial.argmax())
    if facts.most_radial[most] <= GPUMD_NEIGHBORS:
        return []
    text = (
        f"{facts.most_radial[most]} neighbours of an atom; GPUMD's MD refuses more than "
        f"{GPUMD_NEIGHBORS}: lower cutoff"
    )
    return [found_at(facts, "neighbors", most, text)]


def _rare(facts: Facts, elements: tuple[str, ...]) -> list[Finding]:
    frames = (facts.counts > 0).sum(0)
    absent = [symbol for symbol in elements if frames[ELEMENTS.index(symbol)] == 0]
    found = []
    if absent:
        text = f"in the type line, but in no frame: {names(absent)}"
        found.append(Finding("rare", text, facts.path, size=1.0))
    rare = [k for k in np.argsort(frames) if 0 < frames[k] < FEW_FRAMES]
    if rare:
        rows = names([f"{ELEMENTS[k]} {frames[k]}" for k in rare])
        text = f"in fewer than {FEW_FRAMES} frames: {rows}"
        found.append(Finding("rare", text, facts.path))
    return found


def _unseen(facts: Facts, elements: tuple[str, ...]) -> list[Finding]:
    present = [symbol for symbol in elements if symbol in facts.elements]
    index = [ELEMENTS.index(symbol) for symbol in present]
    upper = np.triu(np.ones((len(index), len(index)), bool))
    unseen = np.argwhere(~facts.pair_seen[np.ix_(index, index)] & upper)
    if not len(unseen):
        return []
    pairs = names([f"{present[a]}-{present[b]}" for a, b in unseen])
    text = f"{len(unseen):,} of {upper.sum():,} pairs: {pairs}"
    return [Finding("unseen", f"{text}; the model knows nothing of them", facts.path)]
