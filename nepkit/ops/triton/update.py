"""What a step does with its gradient, in three launches: train/step.py and train/optimizer.py define.

Squares of the gradient, in sums of fixed parts; AdamW or Adam on all latent numbers; then, after the
parameters of a shared base have been expanded, their average and the counters. A gradient whose norm
is not finite changes the average and the counters alone.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import triton
import triton.language as tl
from torch import Tensor

from .launch import options, padded
from .sums import of_products

# Of the exponential 1 - exp(-x), in which float32 loses its digits for small x.
SERIES_BELOW = 0.25


@triton.jit
def squares_kernel(gradient, squares, n_own, BLOCK: tl.constexpr):
    """Sum of the squares of BLOCK numbers."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    g = tl.load(gradient + i, mask=i < n_own, other=0.0)
    tl.store(squares + tl.program_id(0), of_products(g, g, 0))


@triton.jit
def _norm(squares, n_squares, SQUARES: tl.constexpr):
    k = tl.arange(0, SQUARES)
    return tl.sqrt(tl.sum(tl.load(squares + k, mask=k < n_squares, other=0.0), 0))


@triton.jit
def _forgotten(steps, log_beta, SERIES_BELOW: tl.constexpr):
    """1 - beta^steps, of ``log_beta`` = log beta."""
    x = -steps * log_beta
    series = x * (1 - x / 2 * (1 - x / 3 * (1 - x / 4 * (1 - x / 5 * (1 - x / 6)))))
    if x.dtype == tl.float64:
        return 1 - tl.exp(-x)
    return tl.where(x < SERIES_BELOW, series, 1 - tl.exp(-x))


@triton.jit
def move_kernel(
    values, mean, square, gradient, shared, decay, squares, steps, rate_at,
    n_own, n_all, n_squares,
    BETA: tl.constexpr, BETA_SQUARE: tl.constexpr, LOG_BETA: tl.constexpr,
    LOG_BETA_SQUARE: tl.constexpr, EPS: tl.constexpr, MAX_NORM: tl.constexpr,
    COUPLED: tl.constexpr, SERIES_BELOW: tl.constexpr, SQUARES: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """Move values (M,); decay (M,) is below 0 for those that Muon moves. COUPLED: Adam's decay."""
    norm = _norm(squares, n_squares, SQUARES)
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = i < tl.where(norm < float("inf"), n_all, 0)
    keep = tl.load(decay + i, mask=inside, other=-1.0)
    moves = inside & (keep >= 0)
    own = i < n_own
    g = tl.load(gradient + i, mask=moves & own, other=0.0)
    g += tl.load(shared + i - n_own, mask=moves & (i >= n_own), other=0.0)
    g = g / tl.maximum(norm / MAX_NORM, 1.0)
    x = tl.load(values + i, mask=moves, other=0.0)
    m = tl.load(mean + i, mask=moves, other=0.0)
    v = tl.load(square + i, mask=moves, other=0.0)
    rate = tl.load(rate_at).to(x.dtype)
    count = tl.load(steps).to(x.dtype) + 1
    if COUPLED:
        g += keep * x
    else:
        x -= rate * keep * x
    m += (1 - BETA) * (g - m)
    v = BETA_SQUARE * v + (1 - BETA_SQUARE) * g * g
    size = rate / _forgotten(count, LOG_BETA, SERIES_BELOW)
    root = tl.sqrt(_forgotten(count, LOG_BETA_SQUARE, SERIES_BELOW))
    x -= size * m / (tl.sqrt(v) / root + EPS)
    tl.store(values + i, x, mask=moves)
    tl.store(mean + i, m, mask=moves)
    tl.store(square + i, v, mask=moves)


@triton.jit
def average_kernel(
    flat, average, start, values, squares, steps, unusable, skipped, weight_at,
    n_own, n_squares, ANCHORED: tl.constexpr, SQUARES: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """average += weight (flat - average) (P,), flat = start + values if ANCHORED, and counters."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = i < n_own
    if ANCHORED:
        x = tl.load(start + i, mask=inside, other=0.0) + tl.load(values + i, mask=inside, other=0.0)
        tl.store(flat + i, x, mask=inside)
    else:
        x = tl.load(flat + i, mask=inside, other=0.0)
    a = tl.load(average + i, mask=inside, other=0.0)
    tl.store(average + i, a + tl.load(weight_at).to(a.dtype) * (x - a), mask=inside)
    if tl.program_id(0) == 0:
        taken = (_norm(squares, n_squares, SQUARES) < float("inf")).to(tl.float32)
        tl.store(steps, tl.load(steps) + taken)
        tl.store(unusable, (tl.load(unusable) + 1) * (1 - taken))
        tl.store(skipped, tl.load(skipped) + 1 - taken)


class Rules(NamedTuple):
    """Hyperparameters of all steps."""

    betas: tuple[float, float]
    eps: float
    max_norm: float  # of the gradient
    coupled: bool  # whether weight decay is part of the gradient, as Adam has it


def add_squares(gradient: Tensor) -> Tensor:
    """Sums of the squares of ``gradient`` (P,), block by block."""
    n_own, chosen = len(gradient), options("squares")
    squares = gradient.new_empty(triton.cdiv(n_own, chosen["BLOCK"]))
    squares_kernel[(len(squares),)](gradient, squares, n_own, **chosen)
    return squares


def move(
    values: Tensor,
    mean: Tensor,
    square: Tensor,
    gradient: Tensor,
    shared: Tensor,
    decay: Tensor,
    squares: Tensor,
    steps: Tensor,
    rate: Tensor,
    rules: Rules,
):
    """Move ``values`` (M,) by their gradient (P,) and (M - P,), clipped to ``rules.max_norm``.

    ``decay`` (M,): weight decay, below 0 for numbers to leave alone. ``steps`` (1,): taken before.
    """
    chosen, (beta, beta_square) = options("move"), rules.betas
    move_kernel[(triton.cdiv(len(values), chosen["BLOCK"]),)](
        values, mean, square, gradient, shared, decay, squares, steps, rate,
        len(gradient), len(values), len(squares),
        BETA=beta, BETA_SQUARE=beta_square, LOG_BETA=math.log(beta),
        LOG_BETA_SQUARE=math.log(beta_square), EPS=rules.eps, MAX_NORM=rules.max_norm,
        COUPLED=rules.coupled, SERIES_BELOW=SERIES_BELOW, SQUARES=padded(len(squares)), **chosen,
    )  # fmt: skip


def average(
    flat: Tensor,
    mean: Tensor,
    start: Tensor,
    values: Tensor,
    squares: Tensor,
    counters: tuple[Tensor, Tensor, Tensor],
    weight: Tensor,
):
    """Average ``flat`` (P,), which is ``start`` + ``values`` where that is not empty, into ``mean``.

    ``counters``: steps taken, steps not taken in a row, and all of these.
    """
    chosen = options("average")
    average_kernel[(triton.cdiv(len(flat), chosen["BLOCK"]),)](
        flat, mean, start, values, squares, *counters, weight, len(flat), len(squares),
        ANCHORED=len(start) > 0, SQUARES=padded(len(squares)), **chosen,
    )  # fmt: skip
