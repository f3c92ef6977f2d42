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
from typing import NamedTuple

import torch
from torch import Tensor

# Root mean square of an update against the learning rate, which for Adam is at most 1.
SIZE = 0.6
# Part of the gradient of now in its running mean.
FRESH = 0.05
# Odd polynomial, of x, x^3 and x^5, that draws singular values towards 1, and how often it acts.
POLYNOMIAL, TURNS = (3.4445, -4.7750, 2.0315), 5


class Matrices(NamedTuple):
    """A batch of matrices, each (B, n, m), with their gradient and its running mean."""

    values: Tensor
    gradient: Tensor
    momentum: Tensor
    decay: float  # weight decay


def move(batches: list[Matrices], rate: float | Tensor, sound: Tensor, scale: Tensor):
    """Move ``batches`` by their gradients over ``scale`` (); ``sound`` (): 1, or 0 to change nothing.

    Matrices of one shape are moved together: there are many small launches.
    """
    for shape in {batch.values.shape[1:] for batch in batches}:
        alike = [batch for batch in batches if batch.values.shape[1:] == shape]
        directions, reached = zip(*(_direction(batch, sound, scale) for batch in alike))
        counts = [len(batch.values) for batch in alike]
        updates = orthogonalised(torch.cat(directions)).split(counts)
        size = rate * SIZE * max(shape) ** 0.5
        for batch, update, there in zip(alike, updates, reached):
            batch.values.mul_(1.0 - sound * rate * batch.decay)
            batch.values.sub_(there * size * update)


def _direction(batch: Matrices, sound: Tensor, scale: Tensor) -> tuple[Tensor, Tensor]:
    """Where the running mean of the gradient points, and which matrices move: 0 or 1 (B, 1, 1)."""
    gradient = torch.where(sound > 0, batch.gradient, 0.0) / scale.to(sound.dtype)
    # An update is of full size however old its gradients are: matrices that nothing in the
    # batch depends on, those of its missing elements, decay and else stay as they are.
    reached = sound * gradient.flatten(1).any(dim=1)[:, None, None]
    batch.momentum.lerp_(gradient, FRESH * reached)
    return torch.lerp(gradient, batch.momentum, 1.0 - FRESH), reached


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
    first, third, fifth = POLYNOMIAL
    for _ in range(TURNS):
        square = wide @ wide.transpose(1, 2)
        wide = first * wide + (third * square + fifth * square @ square) @ wide
    return wide if matrices.shape[1] <= matrices.shape[2] else wide.transpose(1, 2)
