"""What a step does with its gradient, compiled by numba for CPUs (train/step.py defines).

The latent tensor (train/parametrisation.py) holds blocks, the parameters by name, and behind them
what their rows share. A block has a row for each element or pair type.

A kernel kept on disk is compiled anew only when its own file changes: change this one with what it
calls.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from .adamw import CHUNK, Moments, Rates, adamw
from .crowd import meet
from .jit import inlined, jit


class Blocks(NamedTuple):
    """How b blocks become the parameters, of T elements and G pair types; -1 where nothing is shared."""

    first: np.ndarray  # (b + 1,) where a block begins
    width: np.ndarray  # (b,) of its rows
    base: np.ndarray  # (b,) where in the latent tensor what all rows share begins
    ends: np.ndarray  # (b, 2) where what the rows of an element share begins, by end
    owner: np.ndarray  # (2, G) the element at each end of a pair
    order: np.ndarray  # (2, G) pairs by it
    start: np.ndarray  # (2, T + 1) where those of an element begin in ``order``


class Moved(NamedTuple):
    """What a step changes, of M latent numbers and P parameters."""

    latent: Moments  # (M,)
    steps: np.ndarray  # steps taken, once for each piece of the latent tensor
    flat: np.ndarray  # (P,)
    average: np.ndarray  # (P,)
    shared: np.ndarray  # (M - P,) gradient to what is shared
    squares: np.ndarray  # (P / CHUNK,) sums of squares of the gradient
    unusable: np.ndarray  # (1,)
    skipped: np.ndarray  # (1,)


@jit
def update(part, n_parts, crowd, blocks, moved, rules, gradient, start, rate, weight):
    """Clip, move by AdamW, expand, average; a gradient that is not finite moves nothing.

    ``gradient`` (P,) is that to the parameters; ``start`` (P,) is added to the latent tensor, where
    it is not empty; ``weight`` is that of new parameters in the average.
    """
    _squares(part, n_parts, gradient, moved.squares)
    _pull(part, n_parts, blocks, gradient, moved.shared)
    meet(crowd)
    norm, step, n_own = math.sqrt(moved.squares.sum()), moved.steps[0] + 1.0, len(gradient)
    taken = norm < math.inf
    rates = Rates(
        max(norm / rules.max_norm, 1.0), rate, rate / (1.0 - rules.betas[0] ** step),
        math.sqrt(1.0 - rules.betas[1] ** step),
    )  # fmt: skip
    if part == 0:
        _bases(blocks, moved.shared, n_own)
        if taken:
            adamw(n_own, len(moved.latent.value), moved.latent, rules, rates, moved.shared, n_own)
    meet(crowd)
    if part == 0:
        moved.unusable[0] = 0.0 if taken else moved.unusable[0] + 1.0
        moved.skipped[0] += 0.0 if taken else 1.0
        moved.steps[:] += 1.0 if taken else 0.0
    for block in range(len(blocks.width)):
        begin, width = blocks.first[block], blocks.width[block]
        n_rows, some = (blocks.first[block + 1] - begin) // width, max(1, CHUNK // width)
        # Some rows at once, which stay in the cache; the same ones whatever the number of threads.
        first, last = _share((n_rows + some - 1) // some, part, n_parts)
        for row in range(first * some, min(last * some, n_rows), some):
            stop = min(row + some, n_rows)
            place, end = begin + row * width, begin + stop * width
            if taken:
                adamw(place, end, moved.latent, rules, rates, gradient, 0)
            _expand(block, row, stop, place, end, blocks, moved, start)
            _average(moved.average[place:end], moved.flat[place:end], weight)


@inlined
def _share(count, part, n_parts):
    return count * part // n_parts, count * (part + 1) // n_parts


@inlined
def _squares(part, n_parts, gradient, squares):
    """Sums of fixed parts, so that their sum is that of any number of threads."""
    first, last = _share(len(squares), part, n_parts)
    for chunk in range(first, last):
        total = gradient.dtype.type(0)
        for i in range(chunk * CHUNK, min((chunk + 1) * CHUNK, len(gradient))):
            total += gradient[i] * gradient[i]
        squares[chunk] = total


@inlined
def _pull(part, n_parts, blocks, gradient, shared):
    """Sums of the gradient over what shares; over all pairs later, from those of the elements."""
    n_own, n_types = len(gradient), blocks.start.shape[1] - 1
    for block in range(len(blocks.width)):
        width, base = blocks.width[block], blocks.base[block]
        if base < 0:
            continue
        rows = gradient[blocks.first[block] : blocks.first[block + 1]].reshape(-1, width)
        if blocks.ends[block, 0] < 0:
            first, last = _share(width, part, n_parts)
            _sum_columns(first, last, rows, shared[base - n_own : base - n_own + width])
            continue
        first, last = _share(n_types, part, n_parts)
        for side in range(2):
            place = blocks.ends[block, side] - n_own
            out = shared[place : place + n_types * width].reshape(-1, width)
            _sum_ends(first, last, rows, blocks.order[side], blocks.start[side], out)


@jit
def _sum_columns(first, last, rows, out):
    out[first:last] = 0
    for row in range(len(rows)):
        for k in range(first, last):
            out[k] += rows[row, k]


@jit
def _sum_ends(first, last, rows, order, start, out):
    """Sums of the rows of the elements first to last."""
    for t in range(first, last):
        out[t] = 0
        for p in range(start[t], start[t + 1]):
            for k in range(out.shape[1]):
                out[t, k] += rows[order[p], k]


@inlined
def _bases(blocks, shared, n_own):
    """Sums over all pairs."""
    n_types = blocks.start.shape[1] - 1
    for block in range(len(blocks.width)):
        width, place = blocks.width[block], blocks.ends[block, 0] - n_own
        if blocks.ends[block, 0] >= 0:
            rows = shared[place : place + n_types * width].reshape(-1, width)
            base = blocks.base[block] - n_own
            _sum_columns(0, width, rows, shared[base : base + width])


@inlined
def _expand(block, row, stop, place, end, blocks, moved, start):
    """The parameters of the rows from row until before stop."""
    width, base, latent = blocks.width[block], blocks.base[block], moved.latent.value
    flat, rows = moved.flat[place:end], latent[place:end]
    if len(start) > 0:
        _add(flat.reshape(1, -1), rows.reshape(1, -1), start[place:end])
    elif base >= 0:
        flat = flat.reshape(-1, width)
        _add(flat, rows.reshape(-1, width), latent[base : base + width])
        u, v = blocks.ends[block]
        if u >= 0:
            size = (blocks.start.shape[1] - 1) * width
            of_ends = latent[u : u + size], latent[v : v + size]
            _add_ends(flat, of_ends, blocks.owner[:, row:stop])
    elif len(moved.shared) > 0:  # else the latent numbers are the parameters
        flat[:] = rows


@jit
def _add(out, rows, base):
    for row in range(len(out)):
        for k in range(out.shape[1]):
            out[row, k] = rows[row, k] + base[k]


@jit
def _add_ends(out, of_ends, owner):
    width = out.shape[1]
    u, v = of_ends[0].reshape(-1, width), of_ends[1].reshape(-1, width)
    for row in range(len(out)):
        i, j = owner[0, row], owner[1, row]
        for k in range(width):
            out[row, k] += u[i, k] + v[j, k]


@jit
def _average(average, flat, weight):
    fresh = flat.dtype.type(weight)
    for k in range(len(flat)):
        average[k] += fresh * (flat[k] - average[k])
