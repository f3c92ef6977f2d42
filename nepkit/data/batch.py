"""Frames as flat tensors, and batches cut out of them."""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
import torch
from torch import Tensor

from .frame import Frame
from .neighbors import Neighbors

# Virial components in GPUMD's order: xx yy zz xy yz zx.
VIRIAL_ROWS, VIRIAL_COLUMNS = (0, 1, 2, 0, 1, 2), (0, 1, 2, 1, 2, 0)


@dataclass(frozen=True, eq=False, slots=True)
class Selection:
    """Frames side by side, without their pairs: B frames, N atoms."""

    frames: Tensor  # (B,) int64, places in the data set
    atom_start: Tensor  # (B + 1,) int64, atoms of a frame
    atom_index: Tensor  # (N,) int64, places in the data set
    atom_frame: Tensor  # (N,) int32
    types: Tensor  # (N,) int32
    # Constants of frames and atoms that Structures.attach was given, by name.
    tables: dict[str, Tensor]

    def __len__(self) -> int:
        return len(self.frames)


@dataclass(frozen=True, eq=False, slots=True)
class Batch(Selection):
    """A selection with its pairs: R rows, H pairs, Q angular pairs (see Neighbors).

    Indices are int32 and count within the batch. ``*_start`` are segment starts.
    """

    half_start: Tensor  # (B + 1,) pairs of a frame
    half_frame: Tensor  # (H,)
    row_start: Tensor  # (N + 1,) rows of an atom
    row_center: Tensor  # (R,)
    row_pair_type: Tensor  # (R,) centre type * T + neighbour type
    radial_start: Tensor  # (R + 1,) directed radial pairs of a row
    angular_start: Tensor  # (R + 1,) directed angular pairs of a row
    vectors: Tensor  # (H, 3) float64, Å
    center: Tensor  # (H,)
    neighbor: Tensor  # (H,)
    first: Tensor  # (H,) directed pair i -> j
    second: Tensor  # (H,) directed pair j -> i
    first_row: Tensor  # (H,)
    second_row: Tensor  # (H,)
    angular: Tensor  # (Q,) pair
    angular_first: Tensor  # (Q,) angular directed pair i -> j
    angular_second: Tensor  # (Q,)


class Structures:
    """Frames with their neighbours as flat tensors on one device, the source of batches.

    Every kind of member (atoms, rows, pairs, angular pairs) is one long array over all frames;
    a batch is a ragged selection of it.
    """

    def __init__(
        self,
        frames: list[Frame],
        types: list[np.ndarray],
        neighbors: list[Neighbors],
        n_types: int,
        *,
        device: torch.device | str,
        dtype: torch.dtype,
    ):
        """``types``: (N,) int32 of each frame; the lists are equally long."""
        self.device, self.dtype, self.n_types = torch.device(device), dtype, n_types

        def joined(arrays, columns=()):
            flat = np.concatenate(arrays) if arrays else np.empty((0, *columns))
            return torch.as_tensor(flat, device=device)

        def stacked(*names):
            rows = [joined([getattr(n, name) for n in neighbors]) for name in names]
            return torch.stack(rows)

        def offsets(counts):
            return starts(torch.as_tensor(np.array(counts, dtype=np.int64), device=device))

        self.atoms = offsets([len(f) for f in frames])
        self.rows = offsets([len(n.row_center) for n in neighbors])
        self.halves = offsets([len(n.center) for n in neighbors])
        self.angulars = offsets([len(n.angular) for n in neighbors])
        self.types = joined(types)
        self.vectors = joined([n.vectors for n in neighbors], (3,))
        self.pair_index = stacked(
            "center", "neighbor", "first", "second", "first_row", "second_row"
        )
        self.angular_index = stacked("angular", "angular_first", "angular_second")
        self.row_index = stacked("row_center", "row_type", "row_radial", "row_angular")
        center_type = self.types[self.row_index[0].long() + self._spread(self.atoms, self.rows)]
        self.row_index[1] += center_type * n_types  # now the pair type
        self._tables: dict[str, tuple[str, Tensor]] = {}
        # Constants of the pairs, for whoever evaluates models (keep_constants).
        self.kept = None

    def _spread(self, values: Tensor, offsets: Tensor) -> Tensor:
        """values[f] repeated for each member of frame f."""
        return torch.repeat_interleave(values[: len(offsets) - 1], offsets.diff())

    def attach(self, kind: str, name: str, values: Tensor):
        """Give every later selection ``tables[name]``: ``values`` of its frames or atoms.

        ``kind``: "frames" or "atoms".
        """
        self._tables[name] = (kind, values)

    def __len__(self) -> int:
        return len(self.atoms) - 1

    def select(self, frames: Tensor) -> Selection:
        """Atoms and tables of ``frames`` (B,) int64, in this order, without their pairs."""
        atoms, atom_index, atom_frame = ragged(self.atoms, frames)
        index = {"frames": frames, "atoms": atom_index}
        return Selection(
            frames=frames, atom_start=atoms, atom_index=atom_index, atom_frame=atom_frame,
            types=self.types.index_select(0, atom_index),
            tables={
                name: values.index_select(0, index[kind])
                for name, (kind, values) in self._tables.items()
            },
        )  # fmt: skip

    def batch(self, frames: Tensor) -> Batch:
        """The batch of ``frames`` (B,) int64, in this order."""
        selection = self.select(frames)
        atoms = selection.atom_start
        rows, row_index, row_frame = ragged(self.rows, frames)
        halves, half_index, half_frame = ragged(self.halves, frames)
        angulars, angular_index, angular_frame = ragged(self.angulars, frames)

        def rebased(source, index, frame, *shifts):
            shift = torch.stack(shifts).to(torch.int32)
            return source.index_select(1, index).add_(shift.index_select(1, frame)).unbind(0)

        atom0, row0, half0, angular0 = atoms[:-1], rows[:-1], halves[:-1], angulars[:-1]
        none = torch.zeros_like(atom0)
        row_center, row_pair_type, radial_count, angular_count = rebased(
            self.row_index, row_index, row_frame, atom0, none, none, none
        )
        center, neighbor, first, second, first_row, second_row = rebased(
            self.pair_index, half_index, half_frame, atom0, atom0, 2 * half0, 2 * half0, row0, row0
        )
        angular, angular_first, angular_second = rebased(
            self.angular_index, angular_index, angular_frame, half0, 2 * angular0, 2 * angular0
        )
        row_counts = torch.bincount(row_center, minlength=len(selection.types)).to(torch.int32)
        return Batch(
            **{field.name: getattr(selection, field.name) for field in fields(Selection)},
            half_start=halves.to(torch.int32), half_frame=half_frame,
            row_start=starts(row_counts), row_center=row_center, row_pair_type=row_pair_type,
            radial_start=starts(radial_count), angular_start=starts(angular_count),
            vectors=self.vectors.index_select(0, half_index),
            center=center, neighbor=neighbor, first=first, second=second,
            first_row=first_row, second_row=second_row,
            angular=angular, angular_first=angular_first, angular_second=angular_second,
        )  # fmt: skip


def starts(counts: Tensor) -> Tensor:
    """Segment starts (S + 1,) of segments with ``counts`` (S,) members, in the type of counts."""
    result = counts.new_zeros(len(counts) + 1)
    torch.cumsum(counts, 0, out=result[1:])
    return result


def ragged(offsets: Tensor, frames: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Members of ``frames`` in arrays cut at ``offsets``.

    Returns the batch's own offsets (B + 1,) int64, the member indices and the place in the batch
    of each member's frame (int32).
    """
    start = offsets.index_select(0, frames)
    count = offsets.index_select(0, frames + 1) - start
    batch_offsets = starts(count)
    place = torch.repeat_interleave(
        torch.arange(len(frames), dtype=torch.int32, device=frames.device), count
    )
    index = (start - batch_offsets[:-1]).index_select(0, place)
    index += torch.arange(len(index), device=index.device)
    return batch_offsets, index, place
