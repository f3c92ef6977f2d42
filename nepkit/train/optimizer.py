"""What moves the numbers that a model has: Adam, AdamW, or Muon and AdamW."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor
from torch.optim.adam import adam
from torch.optim.adamw import adamw

from . import muon
from .parametrisation import Plain

BETAS, EPS = (0.9, 0.999), 1e-8


class Part(NamedTuple):
    """A stretch of the latent tensor that moves by one rule."""

    place: slice
    decay: float  # weight decay
    shape: tuple[int, ...] | None  # of the batch of matrices that Muon moves it as, if it does

    @property
    def decay_by_adam(self) -> float:
        """Weight decay for kernels of Adam and AdamW, which leave alone what has one below 0."""
        return self.decay if self.shape is None else -1.0


class Optimizer:
    """Moves the latent numbers (M,) of ``parameters`` by torch's Adam or AdamW, and by Muon.

    It is torch's functions on stretches of one tensor: torch.optim.Optimizer cuts tensors to
    pieces, and imports torch._dynamo, which takes as long as torch itself. ``name``: adamw, adam
    or muon, which moves the matrices of ``parameters``, and the rest as AdamW. The gradient is
    ``gradient`` (P,) to the first P latent numbers and ``shared`` (M - P,) to the others.
    """

    def __init__(
        self, name: str, weight_decay: float, parameters: Plain, gradient: Tensor, shared: Tensor
    ):
        self.name, self.latent = name, parameters.latent
        self.gradient, self.shared = gradient, shared
        self.parts = [
            Part(part, share * weight_decay, shape)
            for whole, share in parameters.decays()
            for part, shape in muon.cut(whole, parameters.matrices() if name == "muon" else [])
        ]
        self.mean = torch.zeros_like(self.latent)  # of the gradient; Muon's momentum
        self.square = torch.zeros_like(self.latent)
        self.steps = torch.zeros(1, device=self.latent.device)  # taken

    def step(self, rate: float | Tensor, unusable: Tensor, scale: Tensor):
        """Move by a gradient divided by ``scale`` (), unless ``unusable`` () is 1."""
        move = adam if self.name == "adam" else adamw
        for part, *tensors in self._stretches(matrices=False):
            steps = self.steps.clone()  # which each call counts up
            move(
                *([t] for t in tensors), [], [steps], fused=True, grad_scale=scale,
                found_inf=unusable, amsgrad=False, beta1=BETAS[0], beta2=BETAS[1], lr=rate,
                weight_decay=part.decay, eps=EPS, maximize=False,
            )  # fmt: skip
        self.steps.copy_(steps)
        self.move_matrices(rate, unusable, scale)

    def move_matrices(self, rate: float | Tensor, unusable: Tensor, scale: Tensor):
        """Muon's part of ``step``."""
        matrices = [
            muon.Matrices(*(t.view(part.shape) for t in tensors[:3]), part.decay)
            for part, *tensors in self._stretches(matrices=True)
        ]
        muon.move(matrices, rate, 1.0 - unusable.to(self.latent.dtype), scale)

    def _stretches(self, matrices: bool) -> Iterator[tuple[Part, Tensor, Tensor, Tensor, Tensor]]:
        """Each part with its values, gradient, mean and square."""
        for part in self.parts:
            if (part.shape is not None) == matrices and part.place.start < part.place.stop:
                place = part.place
                values, mean, square = (t[place] for t in (self.latent, self.mean, self.square))
                yield part, values, self._gradient_of(place), mean, square

    def _gradient_of(self, part: slice) -> Tensor:
        shift = len(self.gradient)
        if part.stop <= shift:
            return self.gradient[part]
        return self.shared[part.start - shift : part.stop - shift]

    def state(self) -> dict[str, Tensor]:
        """All that changes with steps, but for the latent numbers."""
        return {"mean": self.mean, "square": self.square, "steps": self.steps}

    def load_state(self, state: dict[str, Tensor]):
        """Take up what ``state`` gave, of an optimizer that moves the same numbers by Muon."""
        for name, values in self.state().items():
            values.copy_(state[name])


def clipping(norm: Tensor, max_norm: float) -> tuple[Tensor, Tensor]:
    """1 where a gradient of ``norm`` () is not finite, else 0, and what it has to be divided by."""
    scale = (norm / max_norm).clamp_min(1.0).nan_to_num(nan=1.0, posinf=1.0)
    return (~(norm < torch.inf)).float(), scale.float()
