"""The element networks on CPUs: one atom after the other with the weights of its element.

Formulas as in model/network.py, the definition. ``weights`` and ``biases`` are tuples over hidden
layers of (T, H, in) and (T, H).
"""

from __future__ import annotations

import numpy as np

from .crowd import share
from .jit import inlined, inner, jit


@inlined
def tanh(x):
    """Replace x (H,) by its tanh, in operations that work on whole vector registers.

    tanh(x / 16) by its continued fraction, cut where double precision no longer sees it, and four
    times tanh(2 y) = 2 tanh(y) / (1 + tanh(y)^2); beyond 20 the result is 1. NaN stays NaN.
    """
    real = x.dtype.type
    one, limit, doublings = real(1), real(20), 4
    for h in range(len(x)):
        y = x[h]
        if y > limit:  # not min and max, which may lose NaN
            y = limit
        elif y < -limit:
            y = -limit
        y *= real(1 / 2**doublings)
        u = y * y
        above = real(135135) + u * (real(17325) + u * (real(378) + u))
        below = real(135135) + u * (real(62370) + u * (real(3150) + u * real(28)))
        y = y * above / below
        for _ in range(doublings):
            y = (y + y) / (one + y * y)
        x[h] = y


@inner
def evaluate(first, last, types, weights, biases, output, q, values, energies, slopes, q_slope):
    """Energies without the element's (N,), dU/dx of each layer, and dU/dq (N, D), of scaled q."""
    one = output.dtype.type(1)
    top = len(weights) - 1
    for i in range(first, last):
        t = types[i]
        for layer in range(len(weights)):
            value = values[layer][i]
            _push(weights[layer][t], q[i] if layer == 0 else values[layer - 1][i], value)
            for h in range(len(value)):
                value[h] -= biases[layer][t, h]
            tanh(value)
        total = output.dtype.type(0)
        for h in range(output.shape[1]):
            value_h = values[top][i, h]
            total += output[t, h] * value_h
            slopes[top][i, h] = output[t, h] * (one - value_h * value_h)
        energies[i] = total
        for layer in range(top, -1, -1):
            target = q_slope[i] if layer == 0 else slopes[layer - 1][i]
            _pull(weights[layer][t], slopes[layer][i], target)
            if layer > 0:
                for h in range(len(target)):
                    value_h = values[layer - 1][i, h]
                    target[h] *= one - value_h * value_h


@inlined
def _push(w, x, out):
    """out[h] = sum_d W[h, d] x[d], three neurons at once, the last ones perhaps twice."""
    last = len(out) - 1
    for h in range(0, len(out), 3):
        h_1, h_2 = min(h + 1, last), min(h + 2, last)
        y_0 = y_1 = y_2 = x.dtype.type(0)
        for d in range(w.shape[1]):
            y_0 += w[h, d] * x[d]
            y_1 += w[h_1, d] * x[d]
            y_2 += w[h_2, d] * x[d]
        out[h], out[h_1], out[h_2] = y_0, y_1, y_2


@inlined
def _pull(w, slope, target):
    """target[d] = sum_h slope[h] W[h, d], four neurons at once while there are four."""
    target[:] = target.dtype.type(0)
    whole = len(slope) // 4 * 4
    for h in range(0, whole, 4):
        y_0, y_1, y_2, y_3 = slope[h], slope[h + 1], slope[h + 2], slope[h + 3]
        for d in range(len(target)):
            upper = y_0 * w[h, d] + y_1 * w[h + 1, d]
            target[d] += upper + (y_2 * w[h + 2, d] + y_3 * w[h + 3, d])
    for h in range(whole, len(slope)):
        for d in range(len(target)):
            target[d] += slope[h] * w[h, d]


@inlined
def adjoint(
    i, t, weights, output, values, slopes, energy, x_dot, value_dots, x_bars, rates, q_bar
):  # fmt: skip
    """Tangents and gradients in the network of atom i, of energy U_i + dU_i/dq . q_dot_i.

    ``x_dot`` (N, D) is the tangent of scaled q; ``value_dots`` are those of each layer's values,
    ``x_bars`` the gradients to what goes into each layer's tanh, ``q_bar`` (D,) that to scaled q.
    ``rates`` (layers, H) holds the tangents of what goes into tanh.
    """
    one, two = output.dtype.type(1), output.dtype.type(2)
    top = len(weights) - 1
    for layer in range(len(weights)):
        value, value_dot = values[layer][i], value_dots[layer][i]
        x, rate = x_dot[i] if layer == 0 else value_dots[layer - 1][i], rates[layer, : len(value)]
        _push(weights[layer][t], x, rate)
        for h in range(len(value)):
            value_dot[h] = (one - value[h] * value[h]) * rate[h]
    value, bar = values[top][i], x_bars[top][i]
    for h in range(len(value)):
        to_value = energy - two * value[h] * rates[top, h]
        bar[h] = output[t, h] * to_value * (one - value[h] * value[h])
    for layer in range(top, 0, -1):
        # What comes down to the values of the layer below, and to their tangents.
        below, value = x_bars[layer - 1][i], values[layer - 1][i]
        to_tangent = np.empty_like(below)
        _pull(weights[layer][t], x_bars[layer][i], below)
        _pull(weights[layer][t], slopes[layer][i], to_tangent)
        for h in range(len(value)):
            below[h] -= two * value[h] * rates[layer - 1, h] * to_tangent[h]
            below[h] *= one - value[h] * value[h]
    _pull(weights[0][t], x_bars[0][i], q_bar)


@jit
def atoms_by_type(types, n_types):
    """The atoms (N,) sorted by type, and the start of each type's (T + 1,)."""
    starts = np.zeros(n_types + 1, np.int64)
    for t in types:
        starts[t + 1] += 1
    starts = np.cumsum(starts)
    place, order = starts.copy(), np.empty(len(types), np.int64)
    for i in range(len(types)):
        order[place[types[i]]] = i
        place[types[i]] += 1
    return order, starts


@inner
def weight_gradients(
    part, n_parts, atoms, values, slopes, energy_bar, inputs, x_dot, value_dots, x_bars,
    weight_out, bias_out, output_out, element_out,
):  # fmt: skip
    """The gradient to the weights of one of ``n_parts`` parts of the neurons, all elements'."""
    order, starts = atoms
    top = len(values) - 1
    for layer in range(top + 1):
        x, rate = inputs, x_dot
        if layer > 0:
            x, rate = values[layer - 1], value_dots[layer - 1]
        _sum_outer(
            part, n_parts, order, starts, x_bars[layer], slopes[layer], x, rate,
            weight_out[layer], bias_out[layer],
        )  # fmt: skip
    value, value_dot, n_neurons = values[top], value_dots[top], output_out.shape[1]
    first, last = share(n_neurons, part, n_parts)
    for t in range(len(element_out)):
        output_out[t, first:last] = 0
        for k in range(starts[t], starts[t + 1]):
            i = order[k]
            for h in range(first, last):
                output_out[t, h] += energy_bar[i] * value[i, h] + value_dot[i, h]
        if part == 0:
            # In a loop of its own: the order of a sum must not depend on the part's neurons.
            total = element_out.dtype.type(0)
            for k in range(starts[t], starts[t + 1]):
                total += energy_bar[order[k]]
            element_out[t] = total


@inner
def _sum_outer(part, n_parts, order, starts, bars, slopes, x, rate, out, bias_out):
    """Sum bar x + slope rate over the atoms of each type, for one part of the neurons."""
    n_neurons, zero = bars.shape[1], out.dtype.type(0)
    first, last = share(n_neurons, part, n_parts)
    for t in range(len(out)):
        out[t, first:last] = 0
        bias_out[t, first:last] = 0
        for k in range(starts[t], starts[t + 1], 2):  # two atoms at once, or one
            i, j = order[k], order[min(k + 1, starts[t + 1] - 1)]
            for h in range(first, last):
                bar_i, slope_i = bars[i, h], slopes[i, h]
                bar_j, slope_j = (bars[j, h], slopes[j, h]) if j != i else (zero, zero)
                bias_out[t, h] -= bar_i + bar_j
                for d in range(out.shape[2]):
                    of_i = bar_i * x[i, d] + slope_i * rate[i, d]
                    out[t, h, d] += of_i + (bar_j * x[j, d] + slope_j * rate[j, d])
