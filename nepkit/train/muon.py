"""Muon for the coefficients and the first weights of the networks, AdamW for everything else.

The first weights of an element and the coefficients of a pair are matrices, and their updates have
singular values of about 1: all directions of the descriptor learn at the same rate, small ones
too. K. Jordan et al., Muon, 2024 (kellerjordan.github.io/posts/muon), whose five iterations and coefficients these are.

Errors on frames held out, with it and with AdamW alone: NbMoTaW (4,000 steps of 8 frames, three
seeds) energy 6.9 and 7.9 meV/atom, forces 107 and 115 meV/Å, virial 34 and 41 meV/atom; PbTe
(1,500 steps of 2 frames, one and two seeds) energy 0.29 and 0.70, forces 36.4 and 41.6.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import torch
from torch import Tensor

# Root mean square of an update against the learning rate, which for Adam is at most 1.
SIZE = 0.6
# Part of the gradient of now in its running mean.
FRESH = 0.05


class Muon(torch.optim.AdamW):
    """AdamW, but for groups marked ``matrices``: their parameters are batches of matrices (B, n, m).

    ``found_inf`` and ``grad_scale`` act as in fused optimizers: a step without a finite gradient
    changes nothing.
    """

    def step(self, closure: None = None):
        groups = self.param_groups
        self.param_groups = [group for group in groups if not group.get("matrices")]
        try:
            super().step(closure)
        finally:
            self.param_groups = groups
        matrices = [
            (p, group) for group in groups if group.get("matrices") for p in group["params"]
        ]
        with torch.no_grad():
            for shape in {p.shape[1:] for p, _ in matrices}:
                self._move([(p, group) for p, group in matrices if p.shape[1:] == shape])

    def _move(self, matrices: list[tuple[Tensor, dict]]):
        """Move batches of matrices of one shape, together: there are many small launches."""
        sound = 1.0 - self.found_inf.to(matrices[0][0].dtype)
        directions, reached = zip(*(self._direction(p, sound) for p, _ in matrices))
        updates = orthogonalised(torch.cat(directions)).split([len(p) for p, _ in matrices])
        for (parameter, group), update, there in zip(matrices, updates, reached):
            rate = group["lr"] * SIZE * max(parameter.shape[1:]) ** 0.5
            parameter.mul_(1.0 - sound * group["lr"] * group["weight_decay"])
            parameter.sub_(there * rate * update)

    def _direction(self, parameter: Tensor, sound: Tensor) -> tuple[Tensor, Tensor]:
        """Where the running mean of the gradient points, and which matrices move: 0 or 1 (B, 1, 1).

        ``sound`` (): 0 where the gradient is not finite, else 1.
        """
        state = self.state[parameter]
        if not state:
            state["momentum"] = torch.zeros_like(parameter)
            state["step"] = torch.zeros((), device=parameter.device)  # AdamW looks for it
        momentum, gradient = state["momentum"], torch.where(sound > 0, parameter.grad, 0.0)
        gradient = gradient / getattr(self, "grad_scale", sound.new_ones(())).to(parameter.dtype)
        # An update is of full size however old its gradients are: matrices that nothing in the
        # batch depends on, those of its missing elements, decay and else stay as they are.
        reached = sound * gradient.flatten(1).any(dim=1)[:, None, None]
        momentum.lerp_(gradient, FRESH * reached)
        return torch.lerp(gradient, momentum, 1.0 - FRESH), reached


def cut(
    part: slice, matrices: Iterable[tuple[slice, tuple[int, ...]]]
) -> Iterator[tuple[slice, tuple[int, ...] | None]]:
    """The pieces of ``part``: those of ``matrices``, which rise, with their shape, and the rest."""
    first = part.start
    for stretch, shape in matrices:
        if part.start <= stretch.start < part.stop:
            if first < stretch.start:
                yield slice(first, stretch.start), None
            yield stretch, shape
            first = stretch.stop
    if first < part.stop:
        yield slice(first, part.stop), None


def orthogonalised(matrices: Tensor) -> Tensor:
    """Matrices (B, n, m) with the same singular vectors, and singular values near 1 or still 0."""
    wide = matrices if matrices.shape[1] <= matrices.shape[2] else matrices.transpose(1, 2)
    tiny = torch.finfo(wide.dtype).tiny
    wide = wide / wide.abs().amax((1, 2), keepdim=True).clamp_min(tiny)  # squares may underflow
    wide = wide / wide.square().sum((1, 2), keepdim=True).sqrt().clamp_min(tiny)
    for _ in range(5):
        square = wide @ wide.transpose(1, 2)
        wide = 3.4445 * wide + (-4.7750 * square + 2.0315 * square @ square) @ wide
    return wide if matrices.shape[1] <= matrices.shape[2] else wide.transpose(1, 2)
