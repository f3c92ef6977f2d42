"""AdamW on a stretch of numbers for the CPU kernels (torch.optim.AdamW defines).

With gradient g / scale: m += (1 - beta_1) (g - m), v = beta_2 v + (1 - beta_2) g^2, then
x -= rate decay x + size m / (sqrt(v) / root + eps).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from .jit import inner

# Numbers worked on at once: they stay in the cache from one loop to the next.
CHUNK = 4096


class Moments(NamedTuple):
    """M numbers and the running means of their gradients."""

    value: np.ndarray  # (M,) x
    mean: np.ndarray  # (M,) m
    square: np.ndarray  # (M,) v


class Rules(NamedTuple):
    """Hyperparameters, of several groups of numbers."""

    betas: tuple[float, float]
    eps: float
    max_norm: float  # of the gradient
    edges: np.ndarray  # (groups + 1,) where a group begins
    decay: np.ndarray  # (groups,) weight decay; below 0 for what is not moved here


class Rates(NamedTuple):
    """What all numbers have in common in one step."""

    scale: float
    rate: float
    size: float  # rate / (1 - beta_1^step)
    root: float  # sqrt(1 - beta_2^step)


@inner
def adamw(first, last, moments, rules, rates, gradient, shift):
    """Move the numbers first to last; ``gradient`` begins with that to number ``shift``."""
    group = 0
    while rules.edges[group + 1] <= first:
        group += 1
    while first < last:
        end = min(last, rules.edges[group + 1], first + CHUNK)
        means, squares = moments.mean[first:end], moments.square[first:end]
        if rules.decay[group] >= 0:
            _take(means, squares, gradient[first - shift : end - shift], rules.betas, rates.scale)
            _move(moments.value[first:end], means, squares, rules.eps, rules.decay[group], rates)
        first = end
        group += first == rules.edges[group + 1]


# In a function of more arrays the compiler gives up to find out whether they overlap.
@inner
def _take(means, squares, gradient, betas, scale):
    real = gradient.dtype.type
    fresh, fresh_square = real(1.0 - betas[0]), real(1.0 - betas[1])
    beta, scale = real(betas[1]), real(scale)
    for i in range(len(gradient)):
        g = gradient[i] / scale
        means[i] += fresh * (g - means[i])
        squares[i] = beta * squares[i] + fresh_square * g * g


@inner
def _move(values, means, squares, eps, decay, rates):
    real = values.dtype.type
    keep, eps = real(1.0 - rates.rate * decay), real(eps)
    size, root = real(rates.size), real(rates.root)
    for i in range(len(values)):
        values[i] = values[i] * keep - size * means[i] / (np.sqrt(squares[i]) / root + eps)
