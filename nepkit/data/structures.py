"""Frames as flat tensors, and batches cut out of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from .batch import Batch, Selection, Sizes
from .block import ARRAYS, Block
from .ragged import Members, end_to_end

_ARRAYS = ("offsets", *ARRAYS)


class AngularPairs(NamedTuple):
    """The angular pairs of B frames side by side, with N atoms in all."""

    types: np.ndarray  # (N,) int32
    frame: np.ndarray  # (Q,)
    center: np.ndarray  # (Q,) atom
    neighbor: np.ndarray  # (Q,) atom
    vectors: np.ndarray  # (Q, 3) Å


class Structures:
    """Frames with their neighbours as flat tensors on one device, the source of batches.

    Every kind of member (atoms, rows, pairs, angular pairs) is one long array over all frames;
    a batch is a ragged selection of it. The last record of each array is a ghost, and the frame
    after the last is empty: with it a batch is filled up.
    """

    def __init__(
        self, counts: np.ndarray, n_types: int, *, device: torch.device | str, dtype: torch.dtype
    ):
        """Room for frames with ``counts`` (F, 4) atoms, rows, pairs and angular pairs; see put."""
        self.device, self.dtype, self.n_types = torch.device(device), dtype, n_types
        self.counts = counts.astype(np.int64)
        ends = np.concatenate([np.zeros((1, 4), np.int64), counts, np.zeros((1, 4), np.int64)])
        # (4, F + 2) where the members of each frame begin
        self.offsets = torch.as_tensor(np.cumsum(ends, axis=0).T.copy(), device=device)
        for name, array in ARRAYS.items():
            size = int(self.counts[:, array.kind].sum()) + 1
            values = torch.empty(array.sized(size), dtype=array.dtype, device=device)
            values.select(array.axis, -1).zero_()
            setattr(self, name, values)
        self.vectors[-1, 0] = 1.0
        self.tables: dict[str, tuple[str, Tensor]] = {}
        self._packed: dict[str, tuple[Tensor, dict]] = {}
        # Constants of the pairs, for the kernels on CPUs (keep_constants).
        self.kept = None

    @classmethod
    def of(
        cls,
        blocks: Sequence[Block],
        n_types: int,
        *,
        device: torch.device | str,
        dtype: torch.dtype,
    ) -> Structures:
        """The frames of ``blocks``, one after the other."""
        counts = np.concatenate([np.empty((0, 4), np.int64), *(block.counts for block in blocks)])
        structures = cls(counts, n_types, device=device, dtype=dtype)
        first = 0
        for block in blocks:
            structures.put(first, block)
            first += len(block.counts)
        return structures

    def put(self, frames: int | np.ndarray, block: Block):
        """Take over the arrays of ``block``: of ``frames`` (B,), or of all from ``frames`` on."""
        in_turn = isinstance(frames, int)
        starts = self.offsets[:, frames].tolist() if in_turn else self.offsets.cpu().numpy()
        for name, array in ARRAYS.items():
            values, first = getattr(block, name), starts[array.kind]
            if in_turn:
                index = slice(first, first + values.shape[array.axis])
            else:
                index = end_to_end(first[frames], block.counts[:, array.kind])
            where = (slice(None),) * array.axis + (index,)
            mine = getattr(self, name)
            if self.device.type == "cpu":
                mine.numpy()[where] = values  # by one thread: the others may have work
            else:
                mine[where] = torch.from_numpy(values).to(self.device)

    def attach(self, kind: str, name: str, values: Tensor):
        """Give every later batch ``tables[name]``: ``values`` of its frames or atoms.

        Of other kinds, rows, halves and angulars, a batch has the table of the whole set, and the
        places of its members in it.
        """
        ghost = values.new_zeros(1, *values.shape[1:])
        self.tables[name] = (kind, torch.cat([values, ghost]))
        self._packed.clear()

    def __len__(self) -> int:
        return len(self.counts)

    def bytes(self) -> int:
        """Memory that all arrays take."""
        tables = [values for _, values in self.tables.values()]
        return sum(t.numel() * t.itemsize for t in (*map(self.__dict__.get, _ARRAYS), *tables))

    def angular_pairs(self, start: int, stop: int) -> AngularPairs:
        """The angular pairs of the frames from ``start`` until before ``stop``, on the host."""
        (atom0, _, half0, angular0), (atom1, _, half1, angular1) = (
            self.offsets[:, frame].tolist() for frame in (start, stop)
        )
        counts = self.counts[start:stop]
        frame = np.repeat(np.arange(stop - start), counts[:, 3])
        first = (np.cumsum(counts, axis=0) - counts)[frame]
        pair = self.angular_index[0, angular0:angular1].cpu().numpy() + first[:, 2]
        ends = self.pair_index[:2, half0:half1].cpu().numpy()[:, pair] + first[:, 0]
        return AngularPairs(
            self.types[atom0:atom1].cpu().numpy(), frame, *ends,
            self.vectors[half0:half1].cpu().numpy()[pair],
        )  # fmt: skip

    def pair_types(self) -> Tensor:
        """The pair types (centre type * T + neighbour type) that occur, ascending."""
        return torch.unique(self.row_index[1, :-1])

    def move(self, device: torch.device | str):
        """Take all arrays to another device."""
        self.device = torch.device(device)
        for name in _ARRAYS:
            setattr(self, name, getattr(self, name).to(device))
        self.tables = {name: (kind, t.to(device)) for name, (kind, t) in self.tables.items()}
        self._packed.clear()

    def sizes(self, frames: np.ndarray) -> Sizes:
        """What ``frames`` (B,) need."""
        return Sizes(len(frames), *self.counts[frames].sum(0).tolist())

    def _select(self, frames: Tensor, start: Tensor, index: Tensor, place: Tensor) -> Selection:
        return Selection(
            frames=frames, atom_start=start, atom_index=index,
            atom_frame=place.clamp(max=len(frames) - 1),
            types=self.types.index_select(0, index),
            tables=self.tables_of({"frames": frames, "atoms": index}),
        )  # fmt: skip

    def tables_of(self, index: dict[str, Tensor]) -> dict[str, Tensor]:
        """The tables of members, given their places by kind; those of other kinds as a whole."""
        found = {n: values for n, (kind, values) in self.tables.items() if kind not in index}
        for kind, places in index.items():
            if self.device.type == "cpu":  # a gather costs little there
                own = {name: values for name, (k, values) in self.tables.items() if k == kind}
                found |= {name: values.index_select(0, places) for name, values in own.items()}
                continue
            packed, shapes = self._side_by_side(kind)
            columns = packed.index_select(0, places).split(
                [width for width, _ in shapes.values()], 1
            )
            for (name, (_, shape)), values in zip(shapes.items(), columns):
                found[name] = values.unflatten(1, shape) if shape else values.squeeze(1)
        return found

    def _side_by_side(self, kind: str) -> tuple[Tensor, dict[str, tuple[int, tuple[int, ...]]]]:
        """All tables of one kind in one, so that one gather serves them all; widths and shapes."""
        if kind not in self._packed:
            tables = {n: values for n, (k, values) in self.tables.items() if k == kind}
            flat = {name: values.reshape(len(values), -1) for name, values in tables.items()}
            rows = len(self) + 1 if kind == "frames" else len(self.types)
            none = torch.empty(rows, 0, dtype=self.dtype, device=self.device)
            packed = torch.cat([none, *flat.values()], dim=1)
            shapes = {name: (flat[name].shape[1], tuple(tables[name].shape[1:])) for name in tables}
            self._packed[kind] = packed, shapes
        return self._packed[kind]

    def batch(self, frames: Tensor, sizes: Sizes | None = None) -> Batch:
        """The batch of ``frames`` (B,) int64, in this order.

        With ``sizes`` nothing is read back to the host. They must leave room for a ghost of every
        kind, and ``frames`` end in the empty frame, number ``len(self)``.
        """
        if sizes is None:
            sizes = self.sizes(frames.cpu().numpy())
        members = Members(self.offsets, frames)
        # One slot more tells where the last segment ends.
        atom_index, atom_frame = members.find(0, sizes.atoms + 1)
        row_index, row_frame = members.find(1, sizes.rows + 1)
        half_index, half_frame = members.find(2, sizes.halves)
        angular_index, angular_frame = members.find(3, sizes.angulars)
        atom0, row0, half0, angular0 = members.start

        def rebased(source, index, frame, *shifts):
            shift = torch.stack(shifts)
            return source.index_select(1, index) + shift.index_select(1, frame)

        none = torch.zeros_like(atom0)
        row_start = self.row_first.index_select(0, atom_index) + row0.index_select(0, atom_frame)
        center, pair_type, radial_start, angular_start = rebased(
            self.row_index, row_index, row_frame, atom0, none, 2 * half0, 2 * angular0
        )
        half = rebased(
            self.pair_index, half_index, half_frame, atom0, atom0, row0, row0, 2 * half0, 2 * half0
        )
        angular = rebased(
            self.angular_index, angular_index, angular_frame, half0, 2 * angular0, 2 * angular0
        )
        selection = self._select(frames, atom0, atom_index[:-1], atom_frame[:-1])
        known = {field.name: getattr(selection, field.name) for field in fields(Selection)}
        return Batch(
            **known, row_index=row_index[:-1], half_index=half_index, angular_index=angular_index,
            half_start=half0, half_frame=half_frame.clamp(max=len(frames) - 1),
            row_start=row_start, row_center=center[:-1], row_pair_type=pair_type[:-1],
            radial_start=radial_start, angular_start=angular_start,
            vectors=self.vectors.index_select(0, half_index),
            center=half[0], neighbor=half[1], first_row=half[2], second_row=half[3],
            radial_order=half[4:].T.flatten(),
            angular=angular[0], angular_order=angular[1:].T.flatten(),
        )  # fmt: skip
