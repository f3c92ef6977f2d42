"""What is measured of every frame of a file, in one pass and in bounded memory.

Frames are not kept: of each some numbers stay, as one array a quantity over all frames.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from ..data.block import contact_ratios
from ..data.frame import Frame, origin
from ..data.neighbors import half_pairs, pair_cutoffs
from ..errors import UserError, at
from ..units import ELEMENTS
from .fingerprint import fingerprints

# Atoms measured together: numpy is fast for long arrays only.
CHUNK = 2000
N_ELEMENTS = len(ELEMENTS)


@dataclass
class Facts:
    """The frames of one file; arrays are (F,) unless said otherwise, NaN where a label is missing."""

    path: str
    frame: dict[str, np.ndarray]
    counts: np.ndarray  # (F, 94) atoms of each element
    sources: list[str]  # names that frame["source"] counts into
    pair_seen: np.ndarray  # (94, 94) bool: a pair of these elements within the radial cutoff
    refused: dict[int, str] = field(default_factory=dict)  # frame -> why it has no neighbour list

    def __len__(self) -> int:
        return len(self.counts)

    def __getattr__(self, name: str) -> np.ndarray:
        try:
            return self.__dict__["frame"][name]
        except KeyError:
            raise AttributeError(name) from None

    @property
    def elements(self) -> tuple[str, ...]:
        """The elements that occur, by atomic number."""
        return tuple(ELEMENTS[k] for k in np.flatnonzero(self.counts.any(0)))


class Surveyor:
    """Measures frames; ``radial``, ``angular``: cutoff (Å) of each of the 94 elements."""

    def __init__(self, radial: tuple[float, ...], angular: tuple[float, ...]):
        self.radial, self.angular = radial, pair_cutoffs(angular)
        self.radial_pairs = pair_cutoffs(radial)
        self.parts: dict[str, list[np.ndarray]] = defaultdict(list)
        self.sources: Counter = Counter()
        self.ids: dict[str, int] = {}
        self.seen = np.zeros((N_ELEMENTS, N_ELEMENTS), bool)
        self.refused: dict[int, str] = {}

    def survey(self, path: str, frames: Iterable[Frame]) -> Facts:
        """Measure all ``frames``."""
        members, total = [], 0
        for frame in frames:
            if members and total + len(frame) > CHUNK:
                self._measure(members)
                members, total = [], 0
            members.append(frame)
            total += len(frame)
        self._measure(members)
        arrays = {name: np.concatenate(parts) for name, parts in self.parts.items()}
        return Facts(path, arrays, arrays.pop("counts"), list(self.ids), self.seen, self.refused)

    def _measure(self, frames: list[Frame]):
        n_atoms = np.array([len(frame) for frame in frames])
        first = np.cumsum(n_atoms) - n_atoms
        numbers = np.concatenate([frame.numbers for frame in frames]).astype(np.int64)
        of_atom = np.repeat(np.arange(len(frames)), n_atoms)
        counts = np.zeros((len(frames), N_ELEMENTS), np.uint32)
        np.add.at(counts, (of_atom, numbers - 1), 1)
        found = {
            "line": np.array([frame.line for frame in frames]),
            "n_atoms": n_atoms,
            "counts": counts,
            "source": np.array(
                [self.ids.setdefault(origin(frame.source), len(self.ids)) for frame in frames],
                np.int32,
            ),
            "energy": np.array([np.nan if f.energy is None else f.energy for f in frames]),
            **_labels(frames, n_atoms, first),
            **_cells(frames, max(self.radial)),
            **self._pairs(frames, numbers, of_atom, first),
        }
        for name, values in found.items():
            self.parts[name].append(values)

    def _pairs(self, frames, numbers, of_atom, first) -> dict[str, np.ndarray]:
        """What the pairs within the cutoff tell."""
        center, neighbor, distance, vectors = self._half_pairs(frames, first)
        of_pair = of_atom[center]
        n_pairs = np.bincount(of_pair, minlength=len(frames))
        here, there = numbers[center] - 1, numbers[neighbor] - 1
        self.seen[here, there] = self.seen[there, here] = True
        rows = np.zeros((len(numbers), N_ELEMENTS), bool)
        rows[center, there] = rows[neighbor, here] = True
        angular = distance < self.angular[here, there]

        def neighbors(chosen):
            ends = np.concatenate([center[chosen], neighbor[chosen]])
            return np.bincount(ends, minlength=len(numbers))

        radial_neighbors = neighbors(slice(None))
        return {
            "pairs": n_pairs,
            "angulars": np.bincount(of_pair[angular], minlength=len(frames)),
            "rows": np.add.reduceat(rows.sum(1), first),
            "most_radial": np.maximum.reduceat(radial_neighbors, first),
            "most_angular": np.maximum.reduceat(neighbors(angular), first),
            "isolated": np.add.reduceat(radial_neighbors == 0, first, dtype=np.int64),
            **_contacts(numbers, center, neighbor, distance, of_pair, n_pairs, first),
            "fingerprint": fingerprints(
                numbers,
                (center, neighbor),
                vectors,
                distance / self.radial_pairs[here, there],
                (of_atom, len(frames)),
            ),
        }

    def _half_pairs(self, frames, first) -> tuple[np.ndarray, ...]:
        """The pairs of all frames; those of a frame that training refuses are left out."""
        try:
            return half_pairs(frames, [frame.numbers - 1 for frame in frames], self.radial)
        except UserError as error:
            if len(frames) > 1:
                parts = [self._half_pairs([f], np.zeros(1, np.int32)) for f in frames]
                shift = np.repeat(first.astype(np.int32), [len(part[0]) for part in parts])
                center, neighbor, *others = map(np.concatenate, zip(*parts))
                return center + shift, neighbor + shift, *others
            (frame,) = frames
            place = at(frame.path, frame.line, frame.index)
            self.refused[frame.index] = str(error).removeprefix(f"{place}: ")
            none = np.empty(0, np.int32)
            return none, none, np.empty(0), np.empty((0, 3))


def _contacts(numbers, center, neighbor, distance, of_pair, n_pairs, first):
    """The pair of each frame that is closest by covalent radii; ratio inf without a pair."""
    ratio = contact_ratios(numbers, center, neighbor, distance)
    best = np.full(len(n_pairs), np.inf)
    some = n_pairs > 0
    starts = (np.cumsum(n_pairs) - n_pairs)[some]
    if len(starts):
        best[some] = np.minimum.reduceat(ratio, starts)
    pair = np.full((len(n_pairs), 2), -1)
    apart = np.full(len(n_pairs), np.inf)
    closest = np.flatnonzero(ratio == best[of_pair])[::-1]  # the first of equals is written last
    frames = of_pair[closest]
    pair[frames, 0], pair[frames, 1] = center[closest], neighbor[closest]
    apart[frames] = distance[closest]
    symbols = numbers[pair]  # of no meaning without a pair
    pair[some] -= first[some, None]
    names = ("contact", "contact_pair", "contact_numbers", "contact_distance")
    return dict(zip(names, (best, pair, symbols, apart)))


def _labels(frames: list[Frame], n_atoms: np.ndarray, first: np.ndarray) -> dict[str, np.ndarray]:
    """Forces and virials as a few numbers a frame."""
    missing = {n: np.full((n, 3), np.nan) for n in set(n_atoms.tolist())}
    forces = np.concatenate([missing[len(f)] if f.forces is None else f.forces for f in frames])
    squares = (forces**2).sum(1)
    nothing = np.full((3, 3), np.nan)
    virial = np.array([nothing if frame.virial is None else frame.virial for frame in frames])
    return {
        "max_force": np.sqrt(np.maximum.reduceat(squares, first)),
        "rms_force": np.sqrt(np.add.reduceat(squares, first) / n_atoms),
        "net_force": np.linalg.norm(np.add.reduceat(forces, first, axis=0), axis=1) / n_atoms,
        "virial": np.trace(virial, axis1=1, axis2=2) / 3.0,
        "virial_size": np.abs(virial).max((1, 2)),
    }


def _cells(frames: list[Frame], cutoff: float) -> dict[str, np.ndarray]:
    """Volumes (0 where a direction is open), and which cells are thinner than the cutoff."""
    cells = np.array([frame.cell for frame in frames])
    pbc = np.array([frame.pbc for frame in frames])
    volume = np.abs(np.linalg.det(cells))
    faces = np.linalg.norm(np.cross(cells[:, [1, 2, 0]], cells[:, [2, 0, 1]]), axis=2)
    height = volume[:, None] / np.maximum(faces, 1e-300)
    thin = (pbc & (height < cutoff)).any(1) & (volume > 0)
    return {"volume": volume, "periodic": pbc.all(1), "thin": thin}
