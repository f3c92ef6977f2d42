"""What a step on a GPU does with its gradient, by Triton's kernels."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ..ops.triton.update import Rules, add_squares, average, move
from .optimizer import BETAS, EPS, clipping

if TYPE_CHECKING:
    from .step import Step


class GpuUpdate:
    """Clips, moves, expands and averages: Step's update, in few launches.

    The state is that of ``step``: its optimizer, average and counters.
    """

    def __init__(self, step: Step):
        self.parameters, self.optimizer, self.average = (
            step.parameters,
            step.optimizer,
            step.average,
        )
        self.counters = step.optimizer.steps, step.unusable, step.skipped
        coupled = step.optimizer.name == "adam"
        self.rules = Rules(BETAS, EPS, step.stage.max_grad_norm, coupled)
        self.decay = torch.empty_like(step.parameters.latent)
        for part in step.optimizer.parts:
            self.decay[part.place] = part.decay_by_adam
        self.with_matrices = any(part.shape for part in step.optimizer.parts)

    def __call__(self, rate: Tensor, weight: Tensor):
        """Take the step with learning rate ``rate`` (); ``weight`` (): of the new in the average."""
        parameters, optimizer = self.parameters, self.optimizer
        gradient, shared, flat = optimizer.gradient, optimizer.shared, parameters.model.flat
        parameters.pull(gradient, shared)
        squares = add_squares(gradient)
        move(
            parameters.latent, optimizer.mean, optimizer.square, gradient, shared, self.decay,
            squares, optimizer.steps, rate, self.rules,
        )  # fmt: skip
        if self.with_matrices:
            optimizer.move_matrices(rate, *clipping(squares.sum().sqrt(), self.rules.max_norm))
        if len(parameters.start) == 0:
            parameters.expand(flat)
        average(
            flat, self.average, parameters.start, parameters.latent, squares, self.counters, weight
        )
