"""A shared base as sums of stretches of numbers, for kernels (shared.py defines)."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import accumulate
from typing import TYPE_CHECKING

from torch import Tensor

from ..ops.gather import Pieces

if TYPE_CHECKING:
    from .shared import Shared, Table

Row = tuple[int, int, list[int]]


class SharedPieces:
    """``Shared.expand`` and ``Shared.pull`` in one launch and two: parts that are sums of an
    element's own come second."""

    def __init__(self, shared: Shared):
        self.shared = shared
        device = shared.latent.device
        self.expanded = Pieces.of(self._rows(), device)
        self.of_rows = Pieces.of(self._from_rows(), device)
        self.of_own = Pieces.of(self._from_own(), device)

    def expand(self, latent: Tensor, flat: Tensor):
        """The parameters (n_parameters,) of the latent tensor."""
        from ..ops.triton.gather import launch

        launch(self.expanded, latent, flat)

    def pull(self, gradient: Tensor, shared: Tensor):
        """The gradient to the shared parts from that to the parameters."""
        from ..ops.triton.gather import launch

        launch(self.of_rows, gradient, shared)
        launch(self.of_own, shared, shared)

    def _tables(self) -> Iterator[tuple[Table, int, int, int]]:
        """The tables, where their common and own parts begin behind the deviations, their width."""
        shapes, place = self.shared.shapes, 0
        for table, common, own in zip(self.shared.tables, shapes[::2], shapes[1::2]):
            yield table, place, place + math.prod(common), common[1]
            place += math.prod(common) + math.prod(own)

    def _rows(self) -> Iterator[Row]:
        """A row of a parameter: its deviation, and the parts of its element or those at its ends."""
        size, model = self.shared.size, self.shared.model
        begins = accumulate(map(math.prod, model.shapes.values()), initial=0)
        for (name, (n_rows, *shape)), begin in zip(model.shapes.items(), begins):
            width = math.prod(shape)
            sources = [[begin + row * width] for row in range(n_rows)]
            for table, common, own, _ in self._tables():
                if table.name != name:
                    continue
                parts = [
                    [size + common + part * width for part in row.nonzero().flatten().tolist()]
                    for row in table.members
                ]
                if table.end is not None:
                    for element, found in enumerate(parts):
                        found.append(size + own + element * width)
                for row, element in enumerate(table.elements(n_rows)):
                    sources[row] += parts[element]
            for row, found in enumerate(sources):
                yield begin + row * width, width, found

    def _from_rows(self) -> Iterator[Row]:
        """An element's own part, from the rows at whose end it is; common parts of networks."""
        for table, common, own, width in self._tables():
            begin = self.shared.stretches[table.name].start
            if table.end is None:
                yield from self._common(table, common, begin, width)
                continue
            rows_of = [[] for _ in table.members]
            for row, element in enumerate(table.elements(len(table.end.owner))):
                rows_of[element].append(begin + row * width)
            for element, rows in enumerate(rows_of):
                yield own + element * width, width, rows

    def _from_own(self) -> Iterator[Row]:
        """Common parts of coefficients, from the elements' own."""
        for table, common, own, width in self._tables():
            if table.end is not None:
                yield from self._common(table, common, own, width)

    def _common(self, table: Table, common: int, begin: int, width: int) -> Iterator[Row]:
        """Common parts as sums over their members, whose rows begin at ``begin``."""
        for part, members in enumerate(table.members.T):
            elements = members.nonzero().flatten().tolist()
            yield common + part * width, width, [begin + e * width for e in elements]
