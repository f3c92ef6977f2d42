"""Real solid harmonics of unit vectors, in GPUMD's normalisation.

Component index l^2 - 1 + (0 for m = 0, 2m - 1 for Re, 2m for Im), l from 1:
Y = Z_lm(z) * (1 | Re (x + iy)^m | Im (x + iy)^m), where Z_lm is the m-th derivative of the
Legendre polynomial P_l, scaled to integers without a common divisor. With the weights of
:func:`three_body_weights`, sum_m w_lm s_lm^2 = (2l + 1)/(4 pi) sum_jk g_j g_k P_l(cos theta_jk).
Fan et al., J. Chem. Phys. 157, 114801 (2022), eqs. (8)-(14).
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import cache

import numpy as np
import torch
from torch import Tensor


def component_count(l_max: int) -> int:
    """L, the number of components up to ``l_max``."""
    return (l_max + 1) ** 2 - 1


@cache
def degrees(l_max: int) -> tuple[int, ...]:
    """l of each component (L,)."""
    return tuple(l for l in range(1, l_max + 1) for _ in range(2 * l + 1))


@cache
def _derivative(l: int, m: int) -> tuple[tuple[int, ...], Fraction]:
    """Z_lm as integer coefficients of 1, z, z^2, ..., and the factor by which P_l^(m) exceeds it."""
    legendre = [[Fraction(1)], [Fraction(0), Fraction(1)]]
    for k in range(2, l + 1):
        up = [Fraction(0)] + [Fraction(2 * k - 1, k) * c for c in legendre[k - 1]]
        for power, c in enumerate(legendre[k - 2]):
            up[power] -= Fraction(k - 1, k) * c
        legendre.append(up)
    polynomial = legendre[l]
    for _ in range(m):
        polynomial = [power * c for power, c in enumerate(polynomial)][1:]
    scale = math.lcm(*(c.denominator for c in polynomial))
    integers = [c.numerator * (scale // c.denominator) for c in polynomial]
    divisor = math.gcd(*integers)
    return tuple(c // divisor for c in integers), Fraction(divisor, scale)


# At hand as numbers: torch's compiler follows the code of solid_harmonics, but not fractions.
_COEFFICIENTS = {(l, m): _derivative(l, m)[0] for l in range(1, 9) for m in range(l + 1)}


@cache
def three_body_weights(l_max: int) -> tuple[float, ...]:
    """Weight of each squared component (L,) in the invariants q_l, both m = +-|m| counted."""
    weights = []
    for l in range(1, l_max + 1):
        for m in range(l + 1):
            factor = _derivative(l, m)[1] ** 2
            ratio = Fraction(math.factorial(l - m), math.factorial(l + m))
            weight = float((2 * l + 1) * factor * ratio * (1 if m == 0 else 2)) / (4 * math.pi)
            weights += [weight] * (1 if m == 0 else 2)
    return tuple(weights)


@cache
def component_table(l_max: int) -> tuple[np.ndarray, np.ndarray]:
    """Each component as sum_p height[p] z^p times sum_c around[0, c] circle_c.

    The circle is 1, Re (x + iy), Im (x + iy), Re (x + iy)^2, ... Returns height (l_max + 1, L) and
    around (3, 2 l_max + 1, L), whose other two give the derivatives of the second factor to x and y.
    """
    n_components = component_count(l_max)
    height = np.zeros((l_max + 1, n_components))
    around = np.zeros((3, 2 * l_max + 1, n_components))
    component = 0
    for l in range(1, l_max + 1):
        for m in range(l + 1):
            coefficients = _derivative(l, m)[0]
            real, imaginary = max(2 * m - 1, 0), 2 * m
            real_below, imaginary_below = max(2 * m - 3, 0), 2 * m - 2  # of m - 1; Im of 0 is 0
            for part in range(1 if m == 0 else 2):
                height[: len(coefficients), component] = coefficients
                around[0, (real, imaginary)[part], component] = 1.0
                if m > 0:
                    to_x, to_y = ((real_below, imaginary_below), (imaginary_below, real_below))[
                        part
                    ]
                    sign = -1.0 if part == 0 else 1.0
                    if m > 1 or part == 0:
                        around[1, to_x, component] = m
                    if m > 1 or part == 1:
                        around[2, to_y, component] = sign * m
                component += 1
    return height, around


def component_powers(l_max: int) -> np.ndarray:
    """The m of each component, and 1 where it has Re (x + iy)^m, or Im (x + iy)^m, (3, L)."""
    place = component_table(l_max)[1][0].argmax(0)  # 0, then 2m - 1 and 2m
    imaginary = (place > 0) & (place % 2 == 0)
    return np.stack([(place + 1) // 2, ~imaginary, imaginary]).astype(np.float64)


def solid_harmonics(vectors: Tensor, distance: Tensor, l_max: int) -> tuple[Tensor, Tensor]:
    """Y and its gradient to ``vectors`` (Q, 3) Å with lengths ``distance`` (Q,) > 0.

    Returns Y (Q, L) and dY/dr (Q, 3, L), 1/Å.
    """
    inverse = distance.reciprocal()
    unit = vectors * inverse[:, None]
    x, y, z = unit.unbind(1)
    real, imaginary = [torch.ones_like(x)], [torch.zeros_like(x)]
    for _ in range(l_max):
        real.append(x * real[-1] - y * imaginary[-1])
        imaginary.append(x * imaginary[-1] + y * real[-2])
    values: list[Tensor] = []
    free: tuple[list[Tensor], ...] = ([], [], [])  # derivatives as polynomials of x, y, z
    zero = torch.zeros_like(z)
    powers = [None, z]
    for _ in range(l_max - 1):
        powers.append(powers[-1] * z)
    for l in range(1, l_max + 1):
        for m in range(l + 1):
            coefficients = _COEFFICIENTS[l, m]
            height = _polynomial(coefficients, powers, z)
            slope = _polynomial([k * c for k, c in enumerate(coefficients)][1:], powers, z)
            if m == 0:
                values.append(height)
                for component, derivative in zip(free, (zero, zero, slope)):
                    component.append(derivative)
                continue
            values += [height * real[m], height * imaginary[m]]
            scaled = height * m
            along, across = scaled * real[m - 1], scaled * imaginary[m - 1]
            free[0].extend([along, across])
            free[1].extend([-across, along])
            free[2].extend([slope * real[m], slope * imaginary[m]])
    value = torch.stack(values, dim=1)
    gradient = torch.stack([torch.stack(component, dim=1) for component in free], dim=1)
    # Only the part across the vector changes the direction.
    along = (gradient * unit[:, :, None]).sum(1, keepdim=True)
    gradient = (gradient - unit[:, :, None] * along) * inverse[:, None, None]
    return value, gradient


def _polynomial(coefficients, powers: list[Tensor], like: Tensor) -> Tensor:
    """sum_p coefficients[p] z^p, skipping zeros."""
    total = None
    for power, c in enumerate(coefficients):
        if c == 0 or power == 0:
            continue
        term = powers[power] * c
        total = term if total is None else total + term
    constant = coefficients[0] if coefficients else 0
    if total is None:
        return torch.full_like(like, constant)
    return total + constant if constant else total
