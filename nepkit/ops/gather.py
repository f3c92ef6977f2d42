"""Sums of stretches of numbers, listed piece by piece, for kernels (triton/gather.py)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import accumulate
from typing import ClassVar

import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Pieces:
    """Which stretches of numbers add up to which: pieces of COLUMNS numbers at most.

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
        cut = [
            (place + shift, min(width - shift, cls.COLUMNS), [s + shift for s in sources])
            for place, width, sources in rows
            for shift in range(0, width, cls.COLUMNS)
        ]
        counts = [len(sources) for _, _, sources in cut]
        lists = (
            list(accumulate(counts, initial=0)), [s for _, _, sources in cut for s in sources],
            [place for place, _, _ in cut], [width for _, width, _ in cut],
        )  # fmt: skip
        tensors = (torch.tensor(values, dtype=torch.int32, device=device) for values in lists)
        return cls(*tensors, max(counts, default=0) > cls.FEW)
