"""Frames side by side: what an evaluation is given."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from torch import Tensor

# Virial components in GPUMD's order: xx yy zz xy yz zx.
VIRIAL_ROWS, VIRIAL_COLUMNS = (0, 1, 2, 0, 1, 2), (0, 1, 2, 1, 2, 0)


class Sizes(NamedTuple):
    """Room of a batch for members of each kind; what it does not need is taken by ghosts."""

    frames: int
    atoms: int
    rows: int
    halves: int
    angulars: int


@dataclass(frozen=True, eq=False, slots=True)
class Selection:
    """Frames side by side, without their pairs: B frames, N atoms."""

    frames: Tensor  # (B,) int64, places in the data set
    atom_start: Tensor  # (B + 1,) int32, atoms of a frame
    atom_index: Tensor  # (N,) int32, places in the data set
    atom_frame: Tensor  # (N,) int32
    types: Tensor  # (N,) int32
    # Constants of the members that Structures.attach was given, by name.
    tables: dict[str, Tensor]

    def __len__(self) -> int:
        return len(self.frames)


@dataclass(frozen=True, eq=False, slots=True)
class Batch(Selection):
    """A selection with its pairs: R rows, H pairs, Q angular pairs (see Neighbors).

    Indices are int32 and count within the batch. ``*_start`` are segment starts. ``*_order`` are
    the directed pairs sorted by centre and neighbour type, each as 2 h for i -> j of pair h and
    2 h + 1 for j -> i.

    A batch with room to spare ends in ghosts of every kind. They refer to ghosts alone and are in
    no segment, so that no sum has them; their numbers are finite, and nothing else reads them.
    """

    row_index: Tensor  # (R,) places in the data set
    half_index: Tensor  # (H,)
    angular_index: Tensor  # (Q,)
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
    first_row: Tensor  # (H,) row of i -> j
    second_row: Tensor  # (H,) row of j -> i
    radial_order: Tensor  # (2 H,)
    angular: Tensor  # (Q,) pair
    angular_order: Tensor  # (2 Q,)
