"""Cutting a batch out of a data set: Structures.batch in five launches."""

from __future__ import annotations

from dataclasses import fields

import torch
import triton
import triton.language as tl
from torch import Tensor

from ...data.batch import Batch, Selection, Sizes
from ...data.structures import Structures
from .launch import options, padded

# Kinds of members, as rows of Structures.offsets.
ATOMS, ROWS, HALVES, ANGULARS = range(4)
# Columns that are filled with what each number is shifted by: a kind's members before the frame,
# this many times.
_SHIFTS = {
    "rows": ((ATOMS, 1), (ATOMS, 0), (HALVES, 2), (ANGULARS, 2)),
    "halves": ((ATOMS, 1), (ATOMS, 1), (ROWS, 1), (ROWS, 1), (HALVES, 2), (HALVES, 2)),
    "angulars": ((HALVES, 1), (ANGULARS, 2), (ANGULARS, 2)),
    "atoms": ((ATOMS, 0), (ROWS, 1)),
}


@triton.jit
def frames_kernel(
    frames, offsets, start, shift, n_frames, n_offsets, FRAMES: tl.constexpr,
):  # fmt: skip
    """start[kind, slot] of each frame in the batch, and what leads from there to the data."""
    kind = tl.program_id(0).to(tl.int64)
    slot = tl.arange(0, FRAMES)
    # After the frames of the batch the empty frame, whose are all ghosts.
    frame = tl.load(frames + slot, mask=slot < n_frames, other=n_offsets - 2)
    first = tl.load(offsets + kind * n_offsets + frame)
    count = tl.load(offsets + kind * n_offsets + frame + 1) - first
    before = tl.cumsum(count, 0) - count
    here = slot <= n_frames
    tl.store(start + kind * (n_frames + 1) + slot, before.to(tl.int32), mask=here)
    tl.store(shift + kind * (n_frames + 1) + slot, (first - before).to(tl.int32), mask=here)


@triton.jit
def members_kernel(
    start, shift, offsets, source, shifts, index, frame_out, out,
    n_frames, n_offsets, n_source, size,
    KIND: tl.constexpr, COLUMNS: tl.constexpr, STEPS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Place in the data, frame, and shifted columns of source (COLUMNS, n_source) of each slot."""
    slot = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    real = slot < size
    starts = start + KIND * (n_frames + 1)
    # The last frame that begins at or before the slot, by bisection.
    low = tl.zeros((BLOCK,), dtype=tl.int32)
    high = tl.zeros((BLOCK,), dtype=tl.int32) + n_frames
    for _ in range(STEPS):
        middle = (low + high + 1) // 2
        before = tl.load(starts + middle) <= slot
        low = tl.where(before, middle, low)
        high = tl.where(before, high, middle - 1)
    ghosts = tl.load(offsets + (KIND + 1) * n_offsets - 1).to(tl.int32)
    place = tl.minimum(tl.load(shift + KIND * (n_frames + 1) + low) + slot, ghosts)
    tl.store(index + slot, place, mask=real)
    tl.store(frame_out + slot, tl.minimum(low, n_frames - 1), mask=real)
    for column in tl.static_range(COLUMNS):
        other = tl.load(shifts + 2 * column)
        factor = tl.load(shifts + 2 * column + 1)
        value = tl.load(source + column * n_source + place, mask=real, other=0)
        value += factor * tl.load(start + other * (n_frames + 1) + low)
        tl.store(out + column * size.to(tl.int64) + slot, value, mask=real)


class Assembly:
    """Cuts batches out of ``structures``, which lie on a GPU and do not move any more."""

    def __init__(self, structures: Structures):
        self.structures = structures
        device = structures.offsets.device
        self.shifts = {
            kind: torch.tensor(shifts, dtype=torch.int32, device=device)
            for kind, shifts in _SHIFTS.items()
        }
        self.sources = {
            "atoms": torch.stack([structures.types, structures.row_first]),
            "rows": structures.row_index,
            "halves": structures.pair_index,
            "angulars": structures.angular_index,
        }

    def batch(self, frames: Tensor, sizes: Sizes) -> Batch:
        """The batch of ``frames`` (B,), which end in the empty frame, filled up to ``sizes``."""
        structures, n_frames = self.structures, len(frames)
        offsets = structures.offsets
        start = offsets.new_empty(4, n_frames + 1, dtype=torch.int32)
        shift = torch.empty_like(start)
        frames_kernel[(4,)](
            frames, offsets, start, shift, n_frames, offsets.shape[1], FRAMES=padded(n_frames + 1)
        )
        # One slot more tells where the last segment ends.
        atom, atom_frame, (types, row_start) = self._members("atoms", sizes.atoms + 1, start, shift)
        row, _, rows = self._members("rows", sizes.rows + 1, start, shift)
        half, half_frame, halves = self._members("halves", sizes.halves, start, shift)
        angular, _, angulars = self._members("angulars", sizes.angulars, start, shift)
        index = {"frames": frames, "atoms": atom[:-1]}
        kept = "radial_density" in structures.tables
        selection = Selection(
            frames, start[ATOMS], atom[:-1], atom_frame[:-1], types[:-1],
            structures.tables_of(index),
        )  # fmt: skip
        known = {field.name: getattr(selection, field.name) for field in fields(Selection)}
        return Batch(
            **known, row_index=row[:-1], half_index=half, angular_index=angular,
            half_start=start[HALVES], half_frame=half_frame, row_start=row_start,
            row_center=rows[0, :-1], row_pair_type=rows[1, :-1],
            radial_start=rows[2], angular_start=rows[3],
            # Kept constants say all that is asked of a pair.
            vectors=structures.vectors.index_select(0, half[:0] if kept else half),
            center=halves[0], neighbor=halves[1], first_row=halves[2], second_row=halves[3],
            radial_order=halves[4:].T.flatten(),
            angular=angulars[0], angular_order=angulars[1:].T.flatten(),
        )  # fmt: skip

    def _members(self, kind: str, size: int, start: Tensor, shift: Tensor):
        source, offsets = self.sources[kind], self.structures.offsets
        columns, n_source = source.shape
        index, frame = (source.new_empty(size) for _ in range(2))
        out = source.new_empty(columns, size)
        chosen = options("members")
        members_kernel[(triton.cdiv(size, chosen["BLOCK"]),)](
            start, shift, offsets, source, self.shifts[kind], index, frame, out,
            start.shape[1] - 1, offsets.shape[1], n_source, size,
            KIND=("atoms", "rows", "halves", "angulars").index(kind), COLUMNS=columns,
            STEPS=start.shape[1].bit_length(), **chosen,
        )  # fmt: skip
        return index, frame, out
