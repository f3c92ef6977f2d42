"""The descriptors from sums over neighbours and their derivatives, as operators.

Plain torch, the definition, and Triton. q (N, D) holds the radial sums s_R (N, n_R) and then the
invariants of s (N, n, L) in blocks of n. Tables and ``quartic`` as in Terms.
"""

from __future__ import annotations

import torch
from torch import Tensor

from .operator import operator
from .policy import kernels_on
from .terms import QUARTIC_FACTOR


@operator("(Tensor near, Tensor s, Tensor factors, Tensor coefficients, int quartic) -> Tensor")
def descriptors(near, s, factors, coefficients, quartic):
    """q (N, D) of s_R (N, n_R) and s (N, n, L)."""
    if kernels_on(s.device):
        from .triton.invariants import launch_values

        return launch_values(near, s, None, None, factors, coefficients, quartic)
    x, y, z = _factors(s, factors, 1.0)
    blocks = (coefficients * x * y * z).sum(3)  # (N, n, I)
    if quartic >= 0:
        blocks[:, :, quartic] = QUARTIC_FACTOR * blocks[:, :, 0].square()
    return torch.cat([near, blocks.transpose(1, 2).flatten(1)], dim=1)


@descriptors.register_fake
def _(near, s, factors, coefficients, quartic):
    return s.new_empty(s.shape[0], near.shape[1] + coefficients.shape[0] * s.shape[1])


@operator(
    "(Tensor near_dot, Tensor s, Tensor s_dot, Tensor q, Tensor factors,"
    " Tensor coefficients, int quartic) -> Tensor"
)
def descriptor_changes(near_dot, s, s_dot, q, factors, coefficients, quartic):
    """Change of q (N, D) as the sums change by ``near_dot`` (N, n_R) and ``s_dot`` (N, n, L)."""
    if kernels_on(s.device):
        from .triton.invariants import launch_values

        return launch_values(near_dot, s, s_dot, q, factors, coefficients, quartic)
    x, y, z = _factors(s, factors, 1.0)
    dx, dy, dz = _factors(s_dot, factors, 0.0)
    blocks = (coefficients * (dx * y * z + x * dy * z + x * y * dz)).sum(3)
    if quartic >= 0:
        first = q[:, near_dot.shape[1] :][:, : s.shape[1]]
        blocks[:, :, quartic] = 2.0 * QUARTIC_FACTOR * first * blocks[:, :, 0]
    return torch.cat([near_dot, blocks.transpose(1, 2).flatten(1)], dim=1)


@descriptor_changes.register_fake
def _(near_dot, s, s_dot, q, factors, coefficients, quartic):
    return torch.empty_like(q)


@operator(
    "(Tensor q_slope, Tensor q, Tensor s, Tensor factors, Tensor coefficients, int quartic,"
    " int n_radial) -> Tensor"
)
def sum_slopes(q_slope, q, s, factors, coefficients, quartic, n_radial):
    """dU/ds (N, n, L) of dU/dq (N, D); ``factors`` and ``coefficients`` of the gradients."""
    if kernels_on(s.device):
        from .triton.invariants import launch_slopes

        others = (factors, coefficients, quartic, n_radial)
        return launch_slopes(q_slope, None, q, None, s, None, *others)
    weights, first = (_blocks(values, s, n_radial) for values in (q_slope, q))
    x, y = _factors(s, factors[:2], 1.0)
    slopes = (coefficients * _of_invariants(weights, factors) * x * y).sum(2)
    if quartic >= 0:
        slopes += _quartic(weights, quartic, coefficients, first[:, :, :1] * s)
    return slopes


@sum_slopes.register_fake
def _(q_slope, q, s, factors, coefficients, quartic, n_radial):
    return torch.empty_like(s)


@operator(
    "(Tensor q_bar, Tensor q_slope, Tensor q, Tensor q_dot, Tensor s, Tensor s_dot,"
    " Tensor factors, Tensor coefficients, int quartic, int n_radial) -> Tensor"
)
def sum_gradients(q_bar, q_slope, q, q_dot, s, s_dot, factors, coefficients, quartic, n_radial):
    """Gradient to s (N, n, L) of sum of q_bar q + dU/dq dq, where dq is the change of q as s changes
    by ``s_dot``; ``q_bar``, ``q_slope`` = dU/dq and ``q_dot`` = dq are (N, D)."""
    if kernels_on(s.device):
        from .triton.invariants import launch_slopes

        others = (factors, coefficients, quartic, n_radial)
        return launch_slopes(q_bar, q_slope, q, q_dot, s, s_dot, *others)
    slopes = sum_slopes(q_bar, q, s, factors, coefficients, quartic, n_radial)
    weights, first, first_dot = (_blocks(values, s, n_radial) for values in (q_slope, q, q_dot))
    (x, y), (dx, dy) = _factors(s, factors[:2], 1.0), _factors(s_dot, factors[:2], 0.0)
    changes = coefficients * _of_invariants(weights, factors) * (dx * y + x * dy)
    slopes = slopes + changes.sum(2)
    if quartic >= 0:
        change = first[:, :, :1] * s_dot + first_dot[:, :, :1] * s
        slopes += _quartic(weights, quartic, coefficients, change)
    return slopes


@sum_gradients.register_fake
def _(q_bar, q_slope, q, q_dot, s, s_dot, factors, coefficients, quartic, n_radial):
    return torch.empty_like(s)


def _factors(s: Tensor, factors: Tensor, last: float) -> tuple[Tensor, ...]:
    """s (N, n, L) at ``factors`` (F, A, B), each (N, n, A, B); ``last`` for the component L."""
    closed = torch.cat([s, s.new_full((*s.shape[:2], 1), last)], dim=2)
    return tuple(closed[:, :, places.long()] for places in factors)


def _blocks(q: Tensor, s: Tensor, n_radial: int) -> Tensor:
    """The invariants among the columns of q (N, D), as (N, n, I)."""
    return q[:, n_radial:].unflatten(1, (-1, s.shape[1])).transpose(1, 2)


def _of_invariants(weights: Tensor, factors: Tensor) -> Tensor:
    """Weight (N, n, I) of the invariant of each term of the gradients, (N, n, P, L)."""
    return weights[:, :, factors[2].long()]


def _quartic(weights: Tensor, quartic: int, coefficients: Tensor, change: Tensor) -> Tensor:
    """Gradient of q1111 = (7/15) q_1^2: 2 (7/15) dq_1/ds_l for q_1 s_l = ``change``, l = 0 to 2."""
    squares = torch.where(
        torch.arange(change.shape[2], device=change.device) < 3, coefficients[0], 0
    )
    return 2.0 * QUARTIC_FACTOR * weights[:, :, quartic, None] * squares * change
