"""What the optimizer moves: the parameters themselves, or a shared base and deviations from it.

flat = expand(latent) is affine, and ``pull`` is the adjoint of its linear part. A model is written
and evaluated as plain NEP4 always.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import accumulate, pairwise

import torch
from torch import Tensor

from ..config import NepConfig
from ..model.nep import Nep
from ..ops.segment import Segments

# Elements from which a model shares a base. Test errors with it and without: 4 elements (NbMoTaW,
# 4,000 steps of 8 frames, three seeds) energy 8.2 and 11.4 meV/atom, forces 116 and 132 meV/Å;
# 89 elements (3,000 steps of 32 frames, one seed without) 371 and 660, 750 and 1,689. With 2 it
# depends on how alike they are: Si-Ge (1,178 atoms, 8,000 steps of 8 frames, three seeds, decay 0.3
# and 0.1) energy 22.4 and 27.2, forces 111 and 110, virial 119 and 170 meV/atom; PbTe (decay 0.3
# and 0; 5,000 steps on 20 frames, two seeds; 1,200 on 2, three seeds) forces 39.9 and 37.6, 92 and
# 56 meV/Å.
SHARED_FROM = 4
# Weight decay of what the pairs of an element have in common, against that of a pair alone.
DECAY_OF_ELEMENTS = 1.0 / 3.0
# Weight decay of the deviations where nobody says one, and of models of many elements.
SHARED_DECAY, DECAY_OF_MANY, MANY = 0.3, 3.0, 16


class Plain:
    """The optimizer moves the parameters; weights decay towards 0, biases do not."""

    name = "plain"

    @staticmethod
    def default_decay(n_elements: int) -> float:
        """Weight decay where nobody says one, for a model of so many elements."""
        return 0.0

    def __init__(self, model: Nep):
        self.latent = model.flat
        self.weights, self.biases = model.weights_and_biases()
        self.model, ends = model, [0, *accumulate(map(math.prod, model.shapes.values()))]
        self.stretches = {name: slice(*pair) for name, pair in zip(model.shapes, pairwise(ends))}

    def decays(self) -> Iterator[tuple[slice, float]]:
        """Stretches of the latent tensor, and how much of the weight decay each has."""
        yield self.weights, 1.0
        yield self.biases, 0.0

    def matrices(self) -> list[tuple[slice, tuple[int, ...]]]:
        """Stretches of the latent tensor that are batches of matrices, in order, and their shapes.

        First weights of the networks (T, N, D) and coefficients (G, n, K).
        """
        names = ("hidden_weight_0", "radial_coefficients", "angular_coefficients")
        return [(self.stretches[name], self.model.shapes[name]) for name in names]

    def pull(self, gradient: Tensor) -> Tensor:
        """Gradient to the latent tensor from that to the parameters (n_parameters,)."""
        return gradient

    def expand(self, flat: Tensor):
        """Write the parameters that the latent tensor stands for to ``flat`` (n_parameters,)."""

    def shared(self) -> dict[str, list[int]]:
        """Where in the latent tensor what the rows of a parameter share begins.

        By name: what all share, then, of coefficients, what the pairs of an element share, by end.
        """
        return {}


class Anchored(Plain):
    """Parameters start at those of ``model``, and weights decay towards them: fine-tuning."""

    name = "anchored"

    def __init__(self, model: Nep):
        super().__init__(model)
        self.start, self.latent = model.flat.clone(), torch.zeros_like(model.flat)

    def expand(self, flat: Tensor):
        torch.add(self.start, self.latent, out=flat)


class Shared(Plain):
    """Elements and pairs borrow from each other: what is common to all is a base without decay.

    Networks: w = w0 + d[t]. Coefficients: c = c0 + u[t1] + v[t2] + d[t1, t2]. The deviations d
    decay, and u and v a third as fast, so that what the data do not tell of an element or a pair
    stays what it is on average. The latent tensor holds d, laid out as the parameters, then w0 and
    c0, then u and v.
    """

    name = "shared base"

    @staticmethod
    def default_decay(n_elements: int) -> float:
        return DECAY_OF_MANY if n_elements >= MANY else SHARED_DECAY

    def __init__(self, model: Nep):
        super().__init__(model)
        n_types, pair_types = len(model.settings.elements), model.pair_types
        self.ends = [
            _pairs_of(end, n_types) for end in (pair_types // n_types, pair_types % n_types)
        ]
        self.names = [name for name in model.shapes if name != "element_bias"]
        self.coefficients = [name for name in self.names if "coefficients" in name]
        shapes = [model.shapes[name][1:] for name in self.names]
        shapes += [(n_types, *model.shapes[name][1:]) for name in self.coefficients] * 2
        self.shapes, self.size = shapes, len(model.flat)
        self.latent = model.flat.new_zeros(self.size + sum(map(math.prod, shapes)))
        self._begin()

    def _begin(self):
        """All elements start with the random numbers of one."""
        deviations, bases, _ = self._parts()
        for name, values in self.model.views(self.model.flat).items():
            if name in bases:
                # Pairs without training data have no random numbers.
                for own in values[values.flatten(1).any(dim=1)][:1]:
                    bases[name].copy_(own)
        self.model.views(deviations)["element_bias"].copy_(
            self.model.views(self.model.flat)["element_bias"]
        )
        self.expand(self.model.flat)

    def _parts(self):
        """Deviations (n_parameters,), bases by name, and by end and name what is of an element."""
        deviations, rest = self.latent[: self.size], self.latent[self.size :]
        pieces = rest.split([math.prod(shape) for shape in self.shapes])
        views = [piece.view(shape) for piece, shape in zip(pieces, self.shapes)]
        count, of_end = len(self.names), len(self.coefficients)
        bases = dict(zip(self.names, views))
        ends = [views[count : count + of_end], views[count + of_end :]]
        return deviations, bases, [dict(zip(self.coefficients, end)) for end in ends]

    def decays(self) -> Iterator[tuple[slice, float]]:
        bases = sum(math.prod(shape) for shape in self.shapes[: len(self.names)])
        yield self.weights, 1.0
        yield slice(self.weights.stop, self.size + bases), 0.0
        yield slice(self.size + bases, len(self.latent)), DECAY_OF_ELEMENTS

    def matrices(self) -> list[tuple[slice, tuple[int, ...]]]:
        """First weights alone, of the elements and of the base: coefficients have too many parts.

        NbMoTaW, 2,500 steps of 8 frames, one seed: energy 6.4 meV/atom and forces 111 meV/Å, with
        the coefficients 8.1 and 123.
        """
        name, shape = "hidden_weight_0", self.model.shapes["hidden_weight_0"]
        base = slice(self.size, self.size + math.prod(shape[1:]))
        return [(self.stretches[name], shape), (base, (1, *shape[1:]))]

    def shared(self) -> dict[str, list[int]]:
        names = [*self.names, *self.coefficients * 2]
        found = {name: [] for name in self.names}
        for name, begin in zip(names, accumulate(map(math.prod, self.shapes), initial=self.size)):
            found[name].append(begin)
        return found

    def pull(self, gradient: Tensor) -> Tensor:
        views = self.model.views(gradient)
        parts = [gradient, *(views[name].sum(0).flatten() for name in self.names)]
        for pairs in self.ends:
            parts += [pairs.sum(views[name]).flatten() for name in self.coefficients]
        return torch.cat(parts)

    def expand(self, flat: Tensor):
        deviations, bases, ends = self._parts()
        flat.copy_(deviations)
        for name, values in self.model.views(flat).items():
            if name in bases:
                values += bases[name]
            for of_end, pairs in zip(ends, self.ends):
                if name in of_end:
                    values += of_end[name].index_select(0, pairs.owner)


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
