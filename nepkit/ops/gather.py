"""Sums of stretches of numbers, listed piece by piece, for kernels (triton and cpu/update.py)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import accumulate
from typing import ClassVar, NamedTuple

import numpy as np
import torch
from torch import Tensor

from .policy import kernels_on


@dataclass(frozen=True, eq=False)
class Pieces:
    """Which stretches of numbers add up to which: on GPUs pieces of COLUMNS numbers at most.

    Piece i of the result begins at ``place[i]``, has ``length[i]`` numbers and is the sum of the
    stretches that begin at ``source[start[i]:start[i + 1]]``.
    """

    COLUMNS: ClassVar[int] = 64
    # Stretches above which many are added side by side.
    FEW: ClassVar[int] = 8

    start: Tensor  # (n + 1,) int32
    source: Tensor  # int32
    place: Tensor  # (n,) int32
    length: Tensor  # (n,) int32
    long: bool  # whether a piece has more than FEW stretches

    @classmethod
    def of(cls, rows: Iterable[tuple[int, int, list[int]]], device: torch.device) -> Pieces:
        """Cut ``rows`` to pieces: where one begins, how wide it is, where its stretches begin."""
        most = cls.COLUMNS if kernels_on(device) else 2**31
        cut = [
            (place + shift, min(width - shift, most), [s + shift for s in sources])
            for place, width, sources in rows
            for shift in range(0, width, most)
        ]
        counts = [len(sources) for _, _, sources in cut]
        lists = (
            list(accumulate(counts, initial=0)), [s for _, _, sources in cut for s in sources],
            [place for place, _, _ in cut], [width for _, width, _ in cut],
        )  # fmt: skip
        tensors = (torch.tensor(values, dtype=torch.int32, device=device) for values in lists)
        return cls(*tensors, max(counts, default=0) > cls.FEW)

    def arrays(self) -> Stretches:
        """The same for a kernel on the CPU."""
        return Stretches(*(t.numpy() for t in (self.start, self.source, self.place, self.length)))


class Stretches(NamedTuple):
    """Pieces as arrays."""

    start: np.ndarray
    source: np.ndarray
    place: np.ndarray
    length: np.ndarray
