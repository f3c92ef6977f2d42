"""The element networks on CPUs: one atom after the other with the weights of its element.

Formulas as in model/network.py, the definition. ``weights`` and ``biases`` are tuples over hidden
layers of (T, H, in) and (T, H).
"""

from __future__ import annotations

import numpy as np

from .jit import jit


@jit
def tanh(x):
    """Replace x (H,) by its tanh, in operations that work on whole vector registers.

    tanh(x / 16) by its continued fraction, cut where double precision no longer sees it, and four
    times tanh(2 y) = 2 tanh(y) / (1 + tanh(y)^2); beyond 20 the result is 1. NaN stays NaN.
    """
    real = x.dtype.type
    one, limit, doublings = real(1), real(20), 4
    for h in range(len(x)):
        y = limit if x[h] > limit else x[h]
        y = (-limit if y < -limit else y) * real(1 / 2**doublings)
        u = y * y
        above = real(135135) + u * (real(17325) + u * (real(378) + u))
        below = real(135135) + u * (real(62370) + u * (real(3150) + u * real(28)))
        y = y * above / below
        for _ in range(doublings):
            y = (y + y) / (one + y * y)
        x[h] = y


@jit
def evaluate(first, last, types, weights, biases, output, q, values, energies, slopes, q_slope):
    """Energies without the element's (N,), dU/dx of each layer, and dU/dq (N, D), of scaled q."""
    one = output.dtype.type(1)
    top = len(weights) - 1
    for i in range(first, last):
        t = types[i]
        for layer in range(len(weights)):
            w, x = weights[layer][t], q[i] if layer == 0 else values[layer - 1][i]
            value = values[layer][i]
            for h in range(len(value)):
                total = -biases[layer][t, h]
                for d in range(len(x)):
                    total += w[h, d] * x[d]
                value[h] = total
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


@jit
def _pull(w, slope, target):
    """target[d] = sum_h slope[h] W[h, d]."""
    target[:] = target.dtype.type(0)
    for h in range(len(slope)):
        row, s = w[h], slope[h]
        for d in range(len(target)):
            target[d] += s * row[d]


@jit
def tiles_of(types, n_types, size):
    """Atoms (N,) sorted by type and cut into tiles of one type, ``size`` atoms at most.

    Returns the order, the start of each tile in it, its type, and the first tile of each type.
    """
    counts = np.zeros(n_types + 1, np.int64)
    for t in types:
        counts[t + 1] += 1
    first_tile = np.zeros(n_types + 1, np.int64)
    for t in range(n_types):
        first_tile[t + 1] = first_tile[t] + (counts[t + 1] + size - 1) // size
    place = np.cumsum(counts)
    n_tiles = first_tile[n_types]
    starts, tile_type = np.empty(n_tiles + 1, np.int64), np.empty(n_tiles, np.int64)
    for t in range(n_types):
        for k in range(first_tile[t], first_tile[t + 1]):
            starts[k], tile_type[k] = place[t] + (k - first_tile[t]) * size, t
    starts[n_tiles] = len(types)
    order = np.empty(len(types), np.int64)
    for i in range(len(types)):
        order[place[types[i]]] = i
        place[types[i]] += 1
    return order, starts, tile_type, first_tile


@jit
def gradients(
    first, last, tiles, weights, output, inputs, values, slopes_in, energy_bar, q_dot,
    weight_out, bias_out, output_out, element_out, q_bar,
):  # fmt: skip
    """Gradient of sum_i [energy_bar_i U_i + dU_i/dq . q_dot_i] by tile of atoms, and to q (N, D)."""
    order, starts, tile_type = tiles
    zero, one, two = output.dtype.type(0), output.dtype.type(1), output.dtype.type(2)
    n_layers = len(weights)
    widest = max([w.shape[1] for w in weights])
    rates = np.empty((n_layers, widest), output.dtype)
    tangents = np.empty((n_layers, widest), output.dtype)
    x_bar = np.empty((n_layers, widest), output.dtype)
    down = np.empty(widest, output.dtype)
    for tile in range(first, last):
        t = tile_type[tile]
        for layer in range(n_layers):
            weight_out[layer][tile] = zero
            bias_out[layer][tile] = zero
        output_out[tile] = zero
        element_out[tile] = zero
        for member in range(starts[tile], starts[tile + 1]):
            i = order[member]
            e = energy_bar[i]
            element_out[tile] += e
            for layer in range(n_layers):
                w, x = weights[layer][t], q_dot[i] if layer == 0 else tangents[layer - 1]
                value = values[layer][i]
                for h in range(w.shape[0]):
                    total, row = zero, w[h]
                    for d in range(len(row)):
                        total += row[d] * x[d]
                    rates[layer, h] = total
                    tangents[layer, h] = (one - value[h] * value[h]) * total
            top = n_layers - 1
            value = values[top][i]
            for h in range(output.shape[1]):
                output_out[tile, h] += e * value[h] + tangents[top, h]
                bar = e * output[t, h] - two * value[h] * rates[top, h] * output[t, h]
                x_bar[top, h] = bar * (one - value[h] * value[h])
            for layer in range(top, -1, -1):
                w, slope = weights[layer][t], slopes_in[layer][i]
                n_in = w.shape[1]
                x = inputs[i] if layer == 0 else values[layer - 1][i]
                x_dot = q_dot[i] if layer == 0 else tangents[layer - 1]
                for h in range(w.shape[0]):
                    bar, s, row = x_bar[layer, h], slope[h], weight_out[layer][tile, h]
                    bias_out[layer][tile, h] -= bar
                    for d in range(n_in):
                        row[d] += bar * x[d] + s * x_dot[d]
                if layer == 0:
                    _pull(w, x_bar[0, : w.shape[0]], q_bar[i])
                    continue
                # What comes down to the values of the layer below, and to their tangents.
                below, to_tangent = x_bar[layer - 1, :n_in], down[:n_in]
                _pull(w, x_bar[layer, : w.shape[0]], below)
                _pull(w, slope, to_tangent)
                under = values[layer - 1][i]
                for h in range(n_in):
                    below[h] -= two * under[h] * rates[layer - 1, h] * to_tangent[h]
                    below[h] *= one - under[h] * under[h]


@jit
def sum_tiles(first, last, first_tile, tiles, out):
    """Sum the tiles (tiles, A) of each type from first to last."""
    for t in range(first, last):
        out[t] = out.dtype.type(0)
        for tile in range(first_tile[t], first_tile[t + 1]):
            for k in range(out.shape[1]):
                out[t, k] += tiles[tile, k]
