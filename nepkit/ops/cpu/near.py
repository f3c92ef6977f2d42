"""One atom's neighbours, fresh from the positions, and its radial functions (ops/basis.py defines).

What they are given: ``model`` is Field, ``work`` Work of records.py, ``pairs`` PairList of skin.py.
With u = 1 - r / rc the basis is f_k = h (T_k(x) + 1) with h = sin^2(pi u / 2) / 2 and
x = 2 u^2 - 1, and f_0 = 2 h. Loops over pairs are as long as a row; their arrays are few or one, so
that the compiler need not ask whether they overlap.
"""

from __future__ import annotations

import math

from .jit import inlined

CHUNK = 256  # pairs of a row whose recursions run side by side
HALF_PI = math.pi / 2.0
# 1, 1/3!, 1/5!, ... and 1, 1/2!, 1/4!, ... with their signs: enough for [0, pi/2] in float64.
SINE = tuple((-1.0) ** k / math.factorial(2 * k + 1) for k in range(10))
COSINE = tuple((-1.0) ** k / math.factorial(2 * k) for k in range(11))


@inlined
def series(coefficients, square, real):
    """sum_k coefficients[k] square^k."""
    total = real(coefficients[-1])
    for k in range(len(coefficients) - 2, -1, -1):
        total = total * square + real(coefficients[k])
    return total


@inlined
def collect(i, model, pairs, positions, shifts, types, work):
    """Keep the pairs of atom i that lie within their cutoff; returns how many rows there are.

    ``work.row_end`` tells where each row of kept pairs ends, ``work.near_end`` the same of
    ``work.near``, the places of the angular ones.
    """
    total, close, n_types = 0, 0, len(model.element_energy)
    x_i, y_i, z_i = positions[i, 0], positions[i, 1], positions[i, 2]
    first = pairs.row_start[i]
    for row in range(first, pairs.row_start[i + 1]):
        pair_type = types[i] * n_types + pairs.row_type[row]
        reach, near_reach = model.radial_square[pair_type], model.angular_square[pair_type]
        for d in range(pairs.pair_start[row], pairs.pair_start[row + 1]):
            j, s = pairs.neighbor[d], pairs.shift[d]
            x = positions[j, 0] + shifts[s, 0] - x_i
            y = positions[j, 1] + shifts[s, 1] - y_i
            z = positions[j, 2] + shifts[s, 2] - z_i
            square = x * x + y * y + z * z
            # Written in any case, and counted if it is one: no branch to guess.
            work.neighbor[total] = j
            work.x[total], work.y[total], work.z[total] = x, y, z
            work.square[total] = square
            work.near[close] = total
            close += square < near_reach
            total += square < reach
        work.row_end[row - first] = total
        work.near_end[row - first] = close
    return pairs.row_start[i + 1] - first


@inlined
def radial_sums(begin, end, cutoff, square, chunk, sums):
    """sums[k] = sum over the pairs begin to end of f_k."""
    real = square.dtype.type
    one, two, half = real(1), real(2), real(0.5)
    inverse = one / real(cutoff)
    sums[:] = real(0)
    for start in range(begin, end, CHUNK):
        count = min(CHUNK, end - start)
        zeroth, first = real(0), real(0)
        for p in range(count):
            u = one - math.sqrt(square[start + p]) * inverse
            angle = real(HALF_PI) * u
            sine = angle * series(SINE, angle * angle, real)
            h = half * sine * sine
            x = two * u * u - one
            chunk[p] = two * x
            chunk[CHUNK + p] = h
            chunk[2 * CHUNK + p] = x * h
            zeroth += h
            first += x * h
        sums[0] += two * zeroth
        if len(sums) > 1:
            sums[1] += first + zeroth
        # h T_k by its recursion, two at a time.
        for k in range(2, len(sums), 2):
            even, odd = real(0), real(0)
            for p in range(count):
                below = chunk[p] * chunk[2 * CHUNK + p] - chunk[CHUNK + p]
                above = chunk[p] * below - chunk[2 * CHUNK + p]
                chunk[CHUNK + p], chunk[2 * CHUNK + p] = below, above
                even += below
                odd += above
            sums[k] += even + zeroth
            if k + 1 < len(sums):
                sums[k + 1] += odd + zeroth


@inlined
def radial_forces(begin, end, cutoff, shape, weights, square, out):
    """out[p] = sum_k weights[k] f_k'(r) / r of the pairs begin to end."""
    real = square.dtype.type
    one, two, n_functions = real(1), real(2), len(shape.k_radial)
    inverse, constant = one / real(cutoff), real(0)
    for k in range(1, n_functions):
        constant += weights[k]
    constant += two * weights[0]
    for p in range(begin, end):
        r = math.sqrt(square[p])
        u = one - r * inverse
        angle = real(HALF_PI) * u
        angle_square = angle * angle
        sine = angle * series(SINE, angle_square, real)
        cosine = series(COSINE, angle_square, real)
        x = two * u * u - one
        twice = two * x
        # Clenshaw's recursion for sum w_k T_k and sum k w_k U_(k-1), down from the last.
        value, value_above, slope, slope_above = real(0), real(0), real(0), real(0)
        for k in range(n_functions - 1, 0, -1):
            weight = weights[k]
            following = weight + twice * value - value_above
            value_above, value = value, following
            following = real(k) * weight + twice * slope - slope_above
            slope_above, slope = slope, following
        total = constant + x * value - value_above
        # dh/dr and h dx/dr
        rate = -real(HALF_PI) * inverse * sine * cosine
        turn = -two * inverse * u * sine * sine
        out[p] = (rate * total + turn * slope) / r
