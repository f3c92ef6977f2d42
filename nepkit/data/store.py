"""The store: prepared frames of an extended XYZ file in an HDF5 file, read by ranges of frames.

Every array of Labels, Surroundings and Block is one data set over all frames, in the order of the
source, so that frames side by side are read by a few contiguous reads. Nothing but what is per
frame stays in memory: 16,000 frames take a MB.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from dataclasses import fields
from functools import cached_property
from pathlib import Path

import h5py
import numpy as np
import torch

from ..config import ModelSettings
from ..errors import UserError
from .block import ARRAYS, Block
from .known import OF_ATOMS, Labels
from .prepared import Prepared, Surroundings
from .structures import Structures

FORMAT = 2
# Bytes of an atom, a row, a pair and an angular pair in memory, without labels.
MEMBER_BYTES = tuple(
    sum(
        abs(int(np.prod(array.shape))) * array.dtype.itemsize
        for array in ARRAYS.values()
        if array.kind == kind
    )
    for kind in range(4)
)
# Frames within so many bytes are read together, those between them too if they are few bytes.
PIECE, GAP = 16_000_000, 200_000


# Every data set: the kind of its members, 4 for frames, and the axis that counts them.
RECORDS = {
    **{field.name: (4, 0) for kind in (Block, Labels) for field in fields(kind)},
    **{name: (0, 0) for name in OF_ATOMS},
    **{name: (array.kind, array.axis) for name, array in ARRAYS.items()},
}
for _name in ("path", "sources"):
    del RECORDS[_name]


class Unusable(Exception):
    """Why a file cannot serve as the store that is asked for."""


def key_of(content: str, settings: ModelSettings) -> dict:
    """What a store is made of: the ``content`` (SHA-256) of its source, cutoffs and elements."""
    return {
        "format": FORMAT,
        "elements": list(settings.elements),
        "radial cutoff": list(settings.radial_cutoff),
        "angular cutoff": list(settings.angular_cutoff),
        "content": content,
    }


def store_name(source: Path, settings: ModelSettings) -> str:
    """The name of the store of ``source``: one for each choice of elements and cutoffs."""
    text = json.dumps(key_of("", settings), sort_keys=True)
    return f"{source.name}.{hashlib.sha256(text.encode()).hexdigest()[:8]}.nepkit.h5"


class Store:
    """An open store of F frames; made by ``nepkit.data.storing.open_store``.

    ``path``: its file. ``source``: the xyz file, as messages name it. ``counts`` (F, 4) int64:
    atoms, rows, pairs and angular pairs of each frame, by which work is shared out.
    ``pair_types`` (P,) int64: pair types (centre type * T + neighbour type) that occur.

    Any process may open it, and a process may read it in several threads.
    """

    def __init__(self, path: str | os.PathLike, key: dict | None, source: str | os.PathLike):
        """Open a store; raises ``Unusable`` for a file that is no whole store of ``key``.

        None takes one of whatever key.
        """
        self.path, self.source = Path(path), os.fspath(source)
        try:
            # Whole files do not change: no lock, which some file systems do not have.
            self._file = h5py.File(path, "r", locking=False)
        except OSError as error:
            cut = "truncated" in str(error)
            raise Unusable("it is cut short" if cut else "it is no store of nepkit") from None
        try:
            self._check(key)
        except BaseException:
            self._file.close()
            raise
        self.n_types = len(self.key["elements"])
        # Where the members of each frame begin (F + 1, 4).
        self._first = np.concatenate([np.zeros((1, 4), np.int64), np.cumsum(self.counts, axis=0)])
        self._frame_bytes = self.counts @ np.array(MEMBER_BYTES)
        self._byte_ends = np.cumsum(self._frame_bytes)

    def _check(self, key: dict | None):
        """Raise ``Unusable`` unless the file was made of ``key`` and holds all that it should."""
        try:
            self.key = json.loads(self._file.attrs["nepkit"])
            wanted = {"format": FORMAT} if key is None else key
            changed = [name for name in wanted if self.key.get(name) != wanted[name]]
            self.counts, self.pair_types = self._file["counts"][:], self._file["pair_types"][:]
            self._data = {name: self._file[name] for name in RECORDS}
            totals = [*self.counts.sum(0).tolist(), len(self.counts)]
            for name, (kind, axis) in RECORDS.items():
                if self._data[name].shape[axis] != totals[kind]:
                    raise KeyError(name)
        except (KeyError, ValueError, TypeError, AttributeError, IndexError, OSError):
            raise Unusable("it is no store of nepkit, or damaged") from None
        if changed:
            raise Unusable(f"it was made of another {changed[0]}")

    def __len__(self) -> int:
        return len(self.counts)

    def close(self):
        """Close the file; nothing can be read afterwards."""
        self._file.close()

    def bytes(self, frames: np.ndarray | None = None) -> int:
        """Memory that the structures of ``frames`` (default: all) take, without tables."""
        return int((self._frame_bytes if frames is None else self._frame_bytes[frames]).sum())

    @cached_property
    def labels(self) -> Labels:
        """The labels of all frames, in memory: 28 bytes an atom, 150 bytes a frame."""
        named = {
            field.name: self._read(field.name)
            for field in fields(Labels)
            if field.name not in ("path", "sources")
        }
        sources = tuple(self._file["sources"].asstr()[:])
        return Labels(path=self.source, sources=sources, **named)

    @cached_property
    def surroundings(self) -> Surroundings:
        """What the pairs of all frames tell of them."""
        return Surroundings(**{f.name: self._read(f.name) for f in fields(Surroundings)})

    def structures(
        self,
        frames: np.ndarray | None = None,
        *,
        device: torch.device | str = "cpu",
        dtype: torch.dtype,
    ) -> Structures:
        """Structures of ``frames`` (n,), in this order and numbered 0 to n - 1; default: all.

        Host memory beyond the result is some 50 MB. Ascending frames are read fastest, as the file
        is read through once: with 1 in 10 frames chosen at random most of it is read.
        """
        frames = np.arange(len(self)) if frames is None else np.asarray(frames)
        counts = self.counts[frames]
        structures = Structures(counts, self.n_types, device=device, dtype=dtype)
        order = np.argsort(frames, kind="stable")
        in_order = bool((np.diff(order) == 1).all())
        for start, stop, block in self._pieces(frames[order]):
            structures.put(start if in_order else order[start:stop], block)
        return structures

    def prepared(
        self,
        frames: np.ndarray | None = None,
        *,
        device: torch.device | str = "cpu",
        dtype: torch.dtype,
    ) -> Prepared:
        """``frames`` (n,) with their labels, as ``prepare`` makes them; default: all."""
        structures = self.structures(frames, device=device, dtype=dtype)
        if frames is None:
            return Prepared(self.labels, structures, self.surroundings)
        return Prepared(self.labels.take(frames), structures, self.surroundings.take(frames))

    def _pieces(self, frames: np.ndarray) -> Iterator[tuple[int, int, Block]]:
        """Blocks of ``frames`` (n,), which ascend, and which of them each holds."""
        if not len(frames):
            return
        ends = self._byte_ends
        between = ends[frames[1:]] - self._frame_bytes[frames[1:]] - ends[frames[:-1]]
        piece = ends[frames] // PIECE
        cuts = 1 + np.flatnonzero((between > GAP) | (np.diff(piece) > 0))
        for start, stop in zip([0, *cuts.tolist()], [*cuts.tolist(), len(frames)]):
            first, last = int(frames[start]), int(frames[stop - 1]) + 1
            block = self._block(first, last)
            wanted = frames[start:stop] - first
            if not np.array_equal(wanted, np.arange(last - first)):
                block = block.take(wanted)
            yield start, stop, block

    def _block(self, first: int, last: int) -> Block:
        """The frames from ``first`` until before ``last``."""
        named = {}
        starts, ends = self._first[first].tolist(), self._first[last].tolist()
        for field in fields(Block):
            kind, axis = RECORDS[field.name]
            span = slice(starts[kind], ends[kind]) if kind < 4 else slice(first, last)
            named[field.name] = self._read(field.name, (slice(None),) * axis + (span,))
        return Block(**named)

    def _read(self, name: str, where=slice(None)) -> np.ndarray:
        """Some numbers of a data set; HDF5 looks whether they are what was written."""
        try:
            return self._data[name][where]
        except OSError as error:
            reason = f"{self.path}: damaged ({name}); delete it, and it is made anew"
            raise UserError(reason) from error
