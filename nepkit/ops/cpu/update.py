"""What a step does with its gradient, compiled by numba for CPUs (train/step.py defines).

The latent tensor (train/parametrisation.py) holds a number for each parameter, and behind them what
the parameters of elements and pairs share, if anything.

A kernel kept on disk is compiled anew only when its own file changes: change this one with what it
calls.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from ..gather import Stretches
from .adamw import CHUNK, Moments, Rates, adamw
from .crowd import meet, share
from .jit import inner, jit
from .muon import move_matrices


class Plan(NamedTuple):
    """How the latent tensor becomes the parameters and their gradient its own: see SharedPieces."""

    edges: np.ndarray  # (c + 1,) where parameters that are worked on at once begin
    first: np.ndarray  # (c + 1,) and which pieces of ``expanded`` they are
    of_elements: Stretches
    expanded: Stretches
    of_rows: Stretches
    of_own: Stretches


class Moved(NamedTuple):
    """What a step changes, of M latent numbers and P parameters."""

    latent: Moments  # (M,)
    room: np.ndarray  # the latent tensor, and what elements give to coefficients behind it
    steps: np.ndarray  # (1,) taken
    flat: np.ndarray  # (P,)
    average: np.ndarray  # (P,)
    shared: np.ndarray  # (M - P,) gradient to what is shared
    squares: np.ndarray  # (P / CHUNK,) sums of squares of the gradient
    unusable: np.ndarray  # (1,)
    skipped: np.ndarray  # (1,)


@jit
def update(part, n_parts, crowd, plan, moved, rules, matrices, gradient, start, rate, weight):
    """Clip, move by AdamW and Muon, expand, average; a gradient that is not finite moves nothing.

    ``gradient`` (P,) is that to the parameters; ``start`` (P,) is added to the latent tensor, where
    it is not empty; ``matrices`` are what Muon moves, or None, and ``weight`` is that of new
    parameters in the average.
    """
    _squares(part, n_parts, gradient, moved.squares)
    _all_sums(part, n_parts, plan.of_rows, gradient, moved.shared)
    meet(crowd)
    norm, step, n_own = math.sqrt(moved.squares.sum()), moved.steps[0] + 1.0, len(gradient)
    taken = norm < math.inf
    rates = Rates(
        max(norm / rules.max_norm, 1.0), rate, rate / (1.0 - rules.betas[0] ** step),
        math.sqrt(1.0 - rules.betas[1] ** step),
    )  # fmt: skip
    n_shared = len(moved.shared)
    if n_shared > 0:
        _all_sums(part, n_parts, plan.of_own, moved.shared, moved.shared)
        meet(crowd)
        if taken:
            first, last = share(n_shared, part, n_parts)
            adamw(n_own + first, n_own + last, moved.latent, rules, rates, moved.shared, n_own)
    if matrices is not None and taken:
        first, last = share(len(matrices.place), part, n_parts)
        move_matrices(
            first, last, matrices.room[part], matrices, moved.latent, gradient, moved.shared, rates
        )
    if n_shared > 0:
        meet(crowd)
        _all_sums(part, n_parts, plan.of_elements, moved.room, moved.room)
    meet(crowd)
    if part == 0:
        moved.unusable[0] = 0.0 if taken else moved.unusable[0] + 1.0
        moved.skipped[0] += 0.0 if taken else 1.0
        moved.steps[0] += 1.0 if taken else 0.0
    # Some at once, which stay in the cache; the same ones whatever the number of threads.
    first, last = share(len(plan.edges) - 1, part, n_parts)
    for chunk in range(first, last):
        place, end = plan.edges[chunk], plan.edges[chunk + 1]
        if taken:
            adamw(place, end, moved.latent, rules, rates, gradient, 0)
        flat = moved.flat[place:end]
        if n_shared > 0:
            sums(plan.first[chunk], plan.first[chunk + 1], plan.expanded, moved.room, moved.flat)
        elif len(start) > 0:  # else the latent numbers are the parameters
            _add(flat, moved.latent.value[place:end], start[place:end])
        _average(moved.average[place:end], flat, weight)


@inner
def _squares(part, n_parts, gradient, squares):
    """Sums of fixed parts, so that their sum is that of any number of threads."""
    first, last = share(len(squares), part, n_parts)
    for chunk in range(first, last):
        total = gradient.dtype.type(0)
        for i in range(chunk * CHUNK, min((chunk + 1) * CHUNK, len(gradient))):
            total += gradient[i] * gradient[i]
        squares[chunk] = total


@inner
def _all_sums(part, n_parts, stretches, values, out):
    """A thread's share of the pieces."""
    first, last = share(len(stretches.place), part, n_parts)
    sums(first, last, stretches, values, out)


@inner
def sums(first, last, stretches, values, out):
    """Pieces first to last: sums of stretches of ``values``."""
    for piece in range(first, last):
        place, length = stretches.place[piece], stretches.length[piece]
        begin, end = stretches.start[piece], stretches.start[piece + 1]
        total = out[place : place + length]
        if begin == end:
            total[:] = 0
            continue
        source = stretches.source[begin]
        _set(total, values[source : source + length])
        for p in range(begin + 1, end):
            source = stretches.source[p]
            _increase(total, values[source : source + length])


@inner
def _set(total, values):
    for k in range(len(total)):
        total[k] = values[k]


@inner
def _increase(total, values):
    for k in range(len(total)):
        total[k] += values[k]


@inner
def _add(out, values, others):
    for k in range(len(out)):
        out[k] = values[k] + others[k]


@inner
def _average(average, flat, weight):
    fresh = flat.dtype.type(weight)
    for k in range(len(flat)):
        average[k] += fresh * (flat[k] - average[k])
