"""The loss of a batch on CPUs (train/loss.py defines)."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from .jit import jit


class Targets(NamedTuple):
    """What a batch of B frames and N atoms is compared with (train/targets.py)."""

    energy: np.ndarray  # (B,) eV
    energy_weight: np.ndarray  # (B,)
    forces: np.ndarray  # (N, 3) eV/Å
    force_weight: np.ndarray  # (N,)
    force_norm: np.ndarray  # (N,) eV/Å
    virial: np.ndarray  # (B, 6) eV
    virial_weight: np.ndarray  # (B,)


class Factors(NamedTuple):
    """Rules of train/loss.py."""

    root: bool  # of the mean squares: rmse
    terms: np.ndarray  # (3,) lambda_e, lambda_f, lambda_v
    virial: np.ndarray  # (6,)
    types: np.ndarray  # (T,)
    force_delta: np.ndarray  # (1,) eV/Å


@jit
def loss(factors, targets, types, energy, forces, virial, totals, numbers, energy_bar, force_bar, virial_bar):  # fmt: skip
    """``numbers`` (10,): the loss, its terms (3,), and its sums (6,); then its derivatives.

    ``virial`` may be empty. ``totals`` (6,): sums over a larger batch, or empty.
    """
    sums = np.zeros(6)
    for b in range(len(energy)):
        weight, error = targets.energy_weight[b], energy[b] - targets.energy[b]
        energy_bar[b] = weight * error
        sums[0] += weight * error * error
        sums[3] += weight > 0
    delta = factors.force_delta[0]
    for i in range(len(forces)):
        weight = targets.force_weight[i]
        sums[4] += 3 * (weight > 0)
        weight *= factors.types[types[i]]
        if delta > 0:
            weight *= delta / (delta + targets.force_norm[i])
        for x in range(3):
            error = forces[i, x] - targets.forces[i, x]
            force_bar[i, x] = weight * error
            sums[1] += weight * error * error
    for b in range(len(virial)):
        sums[5] += 6 * (targets.virial_weight[b] > 0)
        for x in range(6):
            weight = targets.virial_weight[b] * factors.virial[x]
            error = virial[b, x] - targets.virial[b, x]
            virial_bar[b, x] = weight * error
            sums[2] += weight * error * error
    for k, own in enumerate(sums):
        numbers[4 + k] = own
    for k, total in enumerate(totals):  # none, or six
        sums[k] = total
    slopes, value = np.empty(3, energy.dtype), 0.0
    for k in range(3):
        count = max(sums[3 + k], 1.0)
        term, slope = sums[k] / count, 2.0 * factors.terms[k] / count
        numbers[1 + k] = term
        if factors.root:
            # d sqrt(x) = dx / (2 sqrt(x)); at x = 0 every error is 0 and so is the derivative.
            term = math.sqrt(term)
            slope /= 2.0 * term if term > 0 else 1.0
        value += factors.terms[k] * term
        slopes[k] = slope
    numbers[0] = value
    energy_bar *= slopes[0]
    force_bar *= slopes[1]
    virial_bar *= slopes[2]
