"""What the optimizer moves: the parameters themselves, or changes of them; see also shared.py.

flat = expand(latent) is affine, and ``pull`` is the adjoint of its linear part. A model is written
and evaluated as plain NEP4 always.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import accumulate, pairwise

import torch
from torch import Tensor

from ..model.nep import Nep


class Plain:
    """The optimizer moves the parameters; weights decay towards 0, biases do not."""

    name = "plain"

    @staticmethod
    def default_decay(n_elements: int) -> float:
        """Weight decay where nobody says one, for a model of so many elements."""
        return 0.0

    pieces = None  # how kernels make the parameters, where it is more than to add ``start``

    def __init__(self, model: Nep):
        self.latent = self.room = model.flat  # the latter with what kernels need behind it
        self.start = model.flat[:0]  # added to the latent tensor, if anything
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

    def pull(self, gradient: Tensor, shared: Tensor):
        """Write what the gradient to the parameters (n_parameters,) is to latent numbers beyond it.

        That to the first n_parameters latent numbers is the gradient itself.
        """

    def expand(self, flat: Tensor):
        """Write the parameters that the latent tensor stands for to ``flat`` (n_parameters,)."""


class Anchored(Plain):
    """Parameters start at those of ``model`` and decay towards them: fine-tuning.

    So do the biases of neurons, which else take over what the weights may not; energies of elements
    alone are free.
    """

    name = "anchored"

    def __init__(self, model: Nep):
        super().__init__(model)
        self.start = model.flat.clone()
        self.latent = self.room = torch.zeros_like(model.flat)

    def decays(self) -> Iterator[tuple[slice, float]]:
        energies = self.stretches["element_bias"]
        yield slice(0, energies.start), 1.0
        yield energies, 0.0

    def expand(self, flat: Tensor):
        torch.add(self.start, self.latent, out=flat)
