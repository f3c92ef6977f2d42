"""A base that elements and their pairs share, and when a model has one."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor

from ..config import NepConfig
from ..model.nep import Nep
from ..ops.policy import kernels_on
from ..ops.segment import Segments
from ..units import ATOMIC_NUMBERS, group, period
from .parametrisation import Anchored, Plain
from .shared_pieces import SharedPieces

# Elements from which a model shares a base. Test errors with it and without: 4 elements (NbMoTaW,
# 4,000 steps of 8 frames, three seeds) energy 8.2 and 11.4 meV/atom, forces 116 and 132 meV/Å;
# 89 elements (3,000 steps of 32 frames, one seed without) 371 and 660, 750 and 1,689. With 2 it
# depends on how alike they are: Si-Ge (1,178 atoms, 8,000 steps of 8 frames, three seeds, decay 0.3
# and 0.1) energy 22.4 and 27.2, forces 111 and 110, virial 119 and 170 meV/atom; PbTe (decay 0.3
# and 0; 5,000 steps on 20 frames, two seeds; 1,200 on 2, three seeds) forces 39.9 and 37.6, 92 and
# 56 meV/Å.
SHARED_FROM = 4
# Weight decay of what pairs or elements have in common, against that of one alone.
DECAY_OF_KIN = 1.0 / 3.0
# Weight decay of the deviations where nobody says one, and of models of many elements.
SHARED_DECAY, DECAY_OF_MANY, MANY = 0.3, 3.0, 16
# Those also share by group and period. Test errors with muon, with and without that: 89 elements (2,500
# steps of 32 frames, three seeds) energy 298 and 342 meV/atom, forces 637 and 714 meV/Å, virial 438
# and 507 meV/atom; 32 elements (1,500 steps, three seeds) 381 and 455, 991 and 1,151, 730 and 848. With
# 4 (NbMoTaW, 4,000 steps of 8 frames, two seeds) 7.9 and 6.5, 133 and 109, 63 and 48.


class Shared(Plain):
    """Elements and pairs borrow from each other: what is common to all is a base without decay.

    Networks: w = W[t] + d[t]. Coefficients: c = U[t1] + V[t2] + d[t1, t2]. Tables W, U and V of the
    elements are sums of the base and, of MANY elements, of what those of one group or one period of
    the periodic table have in common, and U and V, the base in U alone, of an own part of each. The
    deviations d decay and the parts of the tables a third as fast, so that what the data do not
    tell of an element or a pair is what it is of its kin. The latent tensor holds d, laid out as
    the parameters, and then the parts, table by table.
    """

    name = "shared base"

    @staticmethod
    def default_decay(n_elements: int) -> float:
        return DECAY_OF_MANY if n_elements >= MANY else SHARED_DECAY

    def __init__(self, model: Nep):
        super().__init__(model)
        n_types, pair_types = len(model.settings.elements), model.pair_types
        first, second = (
            _pairs_of(end, n_types) for end in (pair_types // n_types, pair_types % n_types)
        )
        kin = kinship(model.settings.elements).to(model.flat)
        if n_types < MANY:
            kin = kin[:, :0]
        every = torch.cat([kin.new_ones(n_types, 1), kin], 1)
        self.size = place = len(model.flat)
        self.tables: list[Table] = []
        for name in self.names():
            width = math.prod(model.shapes[name][1:])
            ends = [first, second] if "coefficients" in name else [None]
            for end, members in zip(ends, (every, kin)):
                self.tables.append(Table(name, end, members, members is every, place, width))
                place = self.tables[-1].stop
        # Behind the latent tensor kernels put what the elements give to the coefficients.
        given = sum(n_types * table.width for table in self.tables if table.end is not None)
        self.room = model.flat.new_zeros(place + given)
        self.latent = self.room[:place]
        self._begin()

    def names(self) -> list[str]:
        """The parameters that have a base."""
        return [name for name in self.model.shapes if name != "element_bias"]

    def _begin(self):
        """All elements start with the random numbers of one."""
        values = self.model.views(self.model.flat)
        for table in self.tables:
            rows = values[table.name].flatten(1)
            # Pairs without training data have no random numbers.
            for own in rows[rows.any(dim=1)][:1] if table.has_base else ():
                table.common(self.latent)[0].copy_(own)
        deviations = self.model.views(self.latent[: self.size])
        deviations["element_bias"].copy_(values["element_bias"])
        self.expand(self.model.flat)

    def decays(self) -> Iterator[tuple[slice, float]]:
        yield self.weights, 1.0
        yield slice(self.weights.stop, self.size), 0.0
        for table in self.tables:
            if table.has_base:
                yield table.base, 0.0
            yield slice(table.base.stop, table.stop), DECAY_OF_KIN

    def matrices(self) -> list[tuple[slice, tuple[int, ...]]]:
        """First weights alone, all their parts: coefficients have too many.

        NbMoTaW, 2,500 steps of 8 frames, one seed: energy 6.4 meV/atom and forces 111 meV/Å, with
        the coefficients 8.1 and 123.
        """
        name, shape = "hidden_weight_0", self.model.shapes["hidden_weight_0"]
        found = [(self.stretches[name], shape)]
        for table in self.tables:
            if table.name == name:
                found.append((table.base, (1, *shape[1:])))
                rest = slice(table.base.stop, table.stop)
                found.append((rest, (table.members.shape[1] - 1, *shape[1:])))
        return [(part, shape) for part, shape in found if part.start < part.stop]

    def pull(self, gradient: Tensor, shared: Tensor):
        if kernels_on(gradient.device):
            self.pieces.pull(gradient, shared)
            return
        views, parts = self.model.views(gradient), []
        for table in self.tables:
            rows = views[table.name]
            rows = (rows if table.end is None else table.end.sum(rows)).flatten(1)
            parts.append((table.members.T @ rows).flatten())
            if table.end is not None:
                parts.append(rows.flatten())
        torch.cat(parts, out=shared)

    def expand(self, flat: Tensor):
        if kernels_on(flat.device):
            self.pieces.expand(self.room, flat)
            return
        flat.copy_(self.latent[: self.size])
        views = self.model.views(flat)
        for table in self.tables:
            rows = table.members @ table.common(self.latent)
            if table.end is not None:
                rows = (rows + table.own(self.latent)).index_select(0, table.end.owner)
            values = views[table.name]
            values += rows.view_as(values)

    @cached_property
    def pieces(self) -> SharedPieces:
        """The same for kernels."""
        return SharedPieces(self, self.latent.device)


class Table(NamedTuple):
    """What the T elements give to the rows of a parameter, which are elements or have one at an end.

    Its parts lie in the latent tensor from ``place`` on: R common ones, and of pairs the elements'
    own, each of ``width`` numbers.
    """

    name: str
    end: Segments | None  # rows by the element at their end; None where they are elements
    members: Tensor  # (T, R) 1 where an element takes a common part, else 0
    has_base: bool  # whether the first part is the base
    place: int
    width: int

    @property
    def base(self) -> slice:
        """Where the base lies; empty without one."""
        return slice(self.place, self.place + self.width * self.has_base)

    @property
    def own_place(self) -> int:
        """Where the common parts end and the elements' own begin."""
        return self.place + self.width * self.members.shape[1]

    @property
    def stop(self) -> int:
        """Where the table ends."""
        return self.own_place + self.width * len(self.members) * (self.end is not None)

    def common(self, latent: Tensor) -> Tensor:
        """The common parts (R, K)."""
        return latent[self.place : self.own_place].view(-1, self.width)

    def own(self, latent: Tensor) -> Tensor:
        """The elements' own parts (T or 0, K)."""
        return latent[self.own_place : self.stop].view(-1, self.width)

    def elements(self, n_rows: int) -> list[int]:
        """The element of each of ``n_rows`` rows."""
        return list(range(n_rows)) if self.end is None else self.end.owner.tolist()


def kinship(elements: tuple[str, ...]) -> Tensor:
    """(T, R) 1 where an element belongs to a group or period that some elements have, not all."""
    columns = []
    for kind in (group, period):
        places = [kind(ATOMIC_NUMBERS[element]) for element in elements]
        columns += [[one == place for one in places] for place in sorted(set(places))]
    columns = [column for column in columns if 1 < sum(column) < len(elements)]
    return torch.tensor(columns, dtype=torch.double).view(-1, len(elements)).T


def parametrisation_of(config: NepConfig) -> type[Plain]:
    """How the model of a run trains: the one place that decides it."""
    if config.fine_tune:
        return Anchored
    shared = config.shared_base
    if shared is None:
        shared = len(config.model.elements) >= SHARED_FROM
    return Shared if shared else Plain


def _pairs_of(element: Tensor, n_types: int) -> Segments:
    """Pairs by the element (G,) at one of their ends."""
    ordered, order = torch.sort(element, stable=True)
    edges = torch.arange(n_types + 1, device=element.device, dtype=element.dtype)
    start = torch.searchsorted(ordered, edges, out_int32=True)
    return Segments(start, element.to(torch.int32), order.to(torch.int32), 64)
