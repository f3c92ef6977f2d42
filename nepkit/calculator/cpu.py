"""The evaluation of moving atoms on CPUs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..data.frame import Frame
from ..data.prepared import type_lookup
from ..model.nep import Nep
from ..ops.cpu.field import field
from ..ops.cpu.launch import run, shape_of, thread_count
from ..ops.cpu.records import Layers, Share
from ..ops.cpu.skin import PairList
from .constants import constants, repulsion
from .evaluated import Evaluated
from .row_lists import SkinList, joined
from .skin import refreshed


class CpuField:
    """A model on moving atoms, one structure or several side by side.

    Positions are differenced in float64, and energies, forces and virials added up in float64; what
    is between is in the model's precision. Neighbours are kept from call to call as long as they are
    good for the structures of the next.
    """

    def __init__(self, model: Nep, skin: float):
        self.settings, self.skin = model.settings, skin
        self.shape = shape_of(model.settings)
        self.field, self.zbl = constants(model), repulsion(model)
        self.lookup = type_lookup(model.settings.elements)
        self.lists: list[SkinList] = []
        self.rebuilds = 0  # of lists, so far

    def begin(self, frames: Sequence[Frame]) -> None:
        """As DeviceField.begin: there is no device that could begin."""

    def __call__(
        self,
        frames: Sequence[Frame],
        per_atom: bool = False,
        descriptors: bool = False,
        begun: None = None,
    ) -> Evaluated:
        """Evaluate ``frames``, whose elements the model has; the flags ask for more of atoms."""
        self._update(frames)
        placed = [of.placed(frame) for of, frame in zip(self.lists, frames)]
        positions, shifts = (np.concatenate(values) for values in zip(*placed))
        n_atoms, n_frames, dtype = len(positions), len(frames), self.field.scaler.dtype
        energies, q = np.empty(n_atoms), np.empty((n_atoms, len(self.field.scaler)), dtype)
        parts = [
            (*ends, share(n_atoms, n_frames, per_atom), self._layers())
            for ends in shares(self.pairs, thread_count())
        ]
        run(
            field, parts, self.shape, self.field, self.zbl, self.pairs, positions, shifts,
            self.types, self.frame_of_atom, energies, q,
        )  # fmt: skip
        sums = [part[2] for part in parts]
        return Evaluated(
            energies, total([s.forces for s in sums]), total([s.virials for s in sums]),
            q * self.field.scaler if descriptors else None,
            total([s.atom_virials for s in sums]) if per_atom else None,
        )  # fmt: skip

    def _update(self, frames: Sequence[Frame]):
        """Have the neighbours of ``frames``."""
        lists, made = refreshed(self.lists, frames, self._list_of)
        if made:
            self.lists, self.pairs = lists, joined(lists)
            self.rebuilds += made
            self.types = self.lookup[np.concatenate([frame.numbers for frame in frames])]
            self.frame_of_atom = np.repeat(np.arange(len(frames)), [len(f) for f in frames])

    def _list_of(self, frame: Frame) -> SkinList:
        return SkinList.of(frame, self.lookup[frame.numbers], self.settings, self.skin)

    def _layers(self) -> Layers:
        dtype, length = self.field.scaler.dtype, len(self.field.scaler)
        sizes = [bias.shape[1] for bias in self.field.biases]
        values, slopes = (tuple(np.empty((1, n), dtype) for n in sizes) for _ in range(2))
        q, q_slope = (np.empty((1, length), dtype) for _ in range(2))
        return Layers(np.empty(1, np.int32), q, values, np.empty(1, dtype), slopes, q_slope)


def share(n_atoms: int, n_frames: int, per_atom: bool) -> Share:
    """Room for one thread's sums; the kernel clears it."""
    atom_virials = np.empty((n_atoms if per_atom else 0, 3, 3))
    return Share(np.empty((n_atoms, 3)), np.empty((n_frames, 6)), atom_virials)


def total(shares: list[np.ndarray]) -> np.ndarray:
    """Their sum, in the first of them."""
    for other in shares[1:]:
        shares[0] += other
    return shares[0]


def shares(pairs: PairList, n_threads: int) -> list[tuple[int, int]]:
    """Ranges of atoms with about as much work each, one a thread."""
    n_atoms = len(pairs.row_start) - 1
    if n_threads == 1 or n_atoms < 2 * n_threads:
        return [(0, n_atoms)]
    # An atom without neighbours costs about as much as some ten of them.
    work = pairs.pair_start[pairs.row_start[1:]] + 10 * np.arange(1, n_atoms + 1)
    cuts = np.searchsorted(work, work[-1] * np.arange(1, n_threads) / n_threads)
    ends = [0, *cuts.tolist(), n_atoms]
    return list(zip(ends[:-1], ends[1:]))
