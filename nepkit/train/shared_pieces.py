"""A shared base as sums of stretches of numbers, for kernels (shared.py defines)."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ..ops.gather import Pieces

if TYPE_CHECKING:
    from .shared import Shared, Table

Row = tuple[int, int, list[int]]


class SharedPieces:
    """``Shared.expand`` and ``Shared.pull``, each in two turns.

    There ``of_elements``, the tables of the coefficients, which come to lie in the room behind the
    latent tensor, and then ``expanded``, the parameters. Back ``of_rows``, sums over the rows of
    parameters, and then ``of_own``, over what is of the elements by now.
    """

    def __init__(self, shared: Shared, device: torch.device):
        self.shared = shared
        self.of_elements = Pieces.of(self._elements(), device)
        self.expanded = Pieces.of(self._rows(), device)
        self.of_rows = Pieces.of(self._from_rows(), device)
        self.of_own = Pieces.of(self._from_own(), device)

    def expand(self, room: Tensor, flat: Tensor):
        """The parameters (n_parameters,) of the latent tensor and the room behind it."""
        from ..ops.triton.gather import launch

        launch(self.of_elements, room, room)
        launch(self.expanded, room, flat)

    def pull(self, gradient: Tensor, shared: Tensor):
        """The gradient to the shared parts from that to the parameters."""
        from ..ops.triton.gather import launch

        launch(self.of_rows, gradient, shared)
        launch(self.of_own, shared, shared)

    def _elements(self) -> Iterator[Row]:
        """What the elements give to the coefficients: common parts and their own."""
        place = len(self.shared.latent)
        for table in self.shared.tables:
            if table.end is not None:
                for element, parts in enumerate(_of_members(table)):
                    own = table.own_place + element * table.width
                    yield place, table.width, [own, *parts]
                    place += table.width

    def _rows(self) -> Iterator[Row]:
        """A row of a parameter: its deviation, and what its element or those at its ends give."""
        model, place = self.shared.model, len(self.shared.latent)
        sources = {
            name: [[self.shared.stretches[name].start + row * math.prod(shape)] for row in range(n)]
            for name, (n, *shape) in model.shapes.items()
        }
        for table in self.shared.tables:
            given = _of_members(table)
            if table.end is not None:
                given = [[place + element * table.width] for element in range(len(given))]
                place += len(given) * table.width
            rows = sources[table.name]
            for row, element in zip(rows, table.elements(len(rows))):
                row += given[element]
        for name, rows in sources.items():
            width = math.prod(model.shapes[name][1:])
            yield from ((row[0], width, row) for row in rows)

    def _from_rows(self) -> Iterator[Row]:
        """An element's own part, from the rows at whose end it is; common parts of networks."""
        for table in self.shared.tables:
            begin, width = self.shared.stretches[table.name].start, table.width
            if table.end is None:
                yield from self._common(table, begin)
                continue
            rows_of = [[] for _ in table.members]
            for row, element in enumerate(table.elements(len(table.end.owner))):
                rows_of[element].append(begin + row * width)
            for element, rows in enumerate(rows_of):
                yield table.own_place - self.shared.size + element * width, width, rows

    def _from_own(self) -> Iterator[Row]:
        """Common parts of coefficients, from the elements' own."""
        for table in self.shared.tables:
            if table.end is not None:
                yield from self._common(table, table.own_place - self.shared.size)

    def _common(self, table: Table, begin: int) -> Iterator[Row]:
        """Common parts as sums over their members, whose rows begin at ``begin``."""
        place, width = table.place - self.shared.size, table.width
        for part, members in enumerate(table.members.T):
            elements = members.nonzero().flatten().tolist()
            yield place + part * width, width, [begin + e * width for e in elements]


def _of_members(table: Table) -> list[list[int]]:
    """Where the common parts of each element begin in the latent tensor."""
    return [
        [table.place + part * table.width for part in row.nonzero().flatten().tolist()]
        for row in table.members
    ]
