"""Muon on matrices for the CPU kernels (train/muon.py defines); their products are BLAS's."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from .jit import inlined, inner


class Matrices(NamedTuple):
    """Matrices of the latent tensor, row by row, and what a thread needs to move one of them."""

    place: np.ndarray  # (k,) where one begins
    rows: np.ndarray  # (k,)
    columns: np.ndarray  # (k,)
    decay: np.ndarray  # (k,) weight decay
    fresh: float  # part of the gradient of now in its running mean
    size: float  # of an update against the learning rate
    polynomial: tuple[float, float, float]  # factors of x, x^3 and x^5
    turns: int  # times that it acts on the singular values
    room: np.ndarray  # (threads, numbers) for work on the largest


@inner
def move_matrices(first, last, room, matrices, moments, gradient, shared, rates):
    """Move the matrices first to last; ``gradient`` (P,) and then ``shared`` are all numbers'."""
    for k in range(first, last):
        begin, n, m = matrices.place[k], matrices.rows[k], matrices.columns[k]
        end, n_own = begin + n * m, len(gradient)
        given = gradient[begin:end] if begin < n_own else shared[begin - n_own : end - n_own]
        values, momentum = moments.value[begin:end], moments.mean[begin:end]
        short, long = min(n, m), max(n, m)
        wide = room[: n * m].reshape((short, long))
        _keep(values, values.dtype.type(1.0 - rates.rate * matrices.decay[k]))
        if _direction(given, momentum, wide, rates.scale, matrices.fresh, n > m):
            _orthogonalise(wide, room[n * m :], matrices.polynomial, matrices.turns)
            size = values.dtype.type(rates.rate * matrices.size * np.sqrt(long))
            _subtract(values, wide, size, n > m)


@inlined
def _keep(values, part):
    for i in range(len(values)):
        values[i] *= part


@inlined
def _direction(given, momentum, wide, scale, fresh, turned):
    """Where the running mean points, short side first; whether anything depends on the matrix."""
    real, reached = given.dtype.type, False
    short, long = wide.shape
    for i in range(len(given)):
        reached |= given[i] != 0
    for i in range(len(given)):
        g = given[i] / real(scale)
        if reached:
            momentum[i] += real(fresh) * (g - momentum[i])
        place = (i % short, i // short) if turned else (i // long, i % long)
        wide[place] = g + real(1.0 - fresh) * (momentum[i] - g)
    return reached


@inlined
def _subtract(values, wide, size, turned):
    short, long = wide.shape
    for i in range(len(values)):
        place = (i % short, i // short) if turned else (i // long, i % long)
        values[i] -= size * wide[place]


@inner
def _orthogonalise(wide, room, polynomial, turns):
    """Make the singular values of ``wide`` (n, m), n <= m, near 1, those of 0 apart."""
    n, m = wide.shape
    real = wide.dtype.type
    square = room[: n * n].reshape((n, n))
    mixed = room[n * n : 2 * n * n].reshape((n, n))
    turned = room[2 * n * n : 2 * n * n + n * m].reshape((m, n))
    new = room[2 * n * n + n * m : 2 * n * n + 2 * n * m].reshape((n, m))
    largest, tiny = real(0), real(np.finfo(wide.dtype).tiny)
    for i in range(n):
        for j in range(m):
            largest = max(largest, abs(wide[i, j]))
    _shrink(wide, max(largest, tiny))  # squares may underflow
    total = real(0)
    for i in range(n):
        for j in range(m):
            total += wide[i, j] * wide[i, j]
    _shrink(wide, max(np.sqrt(total), tiny))
    first, third, fifth = real(polynomial[0]), real(polynomial[1]), real(polynomial[2])
    for _ in range(turns):
        turned[:] = wide.T
        np.dot(wide, turned, square)
        np.dot(square, square, mixed)
        for i in range(n):
            for j in range(n):
                mixed[i, j] = third * square[i, j] + fifth * mixed[i, j]
            mixed[i, i] += first
        np.dot(mixed, wide, new)
        wide[:] = new


@inlined
def _shrink(wide, by):
    for i in range(wide.shape[0]):
        for j in range(wide.shape[1]):
            wide[i, j] /= by


def room_for(rows: int, columns: int) -> int:
    """Numbers that a thread needs to work on a matrix."""
    return 3 * rows * columns + 2 * min(rows, columns) ** 2
