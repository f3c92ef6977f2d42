"""The element networks by kernels; the definition is model/network.py.

Letters: T types, H neurons of a layer, D descriptor length.
"""

from __future__ import annotations

from torch import Tensor

from ..ops.groups import TiledGroups
from ..ops.layers import (
    ATOM_TILE,
    layer_bars,
    layer_gradients,
    layer_rates,
    layer_slopes,
    layer_values,
)
from .network import NetworkWeights


class FusedNetwork:
    """One evaluation on a batch, and its derivatives: the same numbers as Network.

    ``forward`` comes first and keeps what the other needs.
    """

    def __init__(self, weights: NetworkWeights, types: Tensor):
        self.weights = weights
        groups = TiledGroups(types, len(weights.output), ATOM_TILE)
        self.tiles = groups.tiles
        self.where = groups.member, groups.tiles.owner

    def forward(self, q: Tensor) -> tuple[Tensor, Tensor]:
        """U (N,) eV and dU/dq (N, D) of descriptors q (N, D), as the first weights take them."""
        weights = self.weights
        self.inputs = [q]
        for weight, bias in zip(weights.hidden, weights.bias):
            self.inputs.append(layer_values(self.inputs[-1], weight, bias, *self.where))
        # dU/dv and dU/dx of each layer, from the last to the first.
        self.to_value, self.to_x, slope, energies = [], [], weights.output, None
        for weight, value in zip(reversed(weights.hidden), reversed(self.inputs[1:])):
            last = energies is None
            self.to_value.insert(0, slope)
            to_x, slope, sums = layer_slopes(
                value, slope, weights.element, weight, *self.where, last
            )
            self.to_x.insert(0, to_x)
            energies = sums if last else energies
        return energies, slope

    def backward(self, energy_bar: Tensor, q_dot: Tensor) -> tuple[NetworkWeights, Tensor]:
        """Gradient of sum_i [energy_bar_i U_i + dU_i/dq . q_dot_i], energy_bar and q_dot constant.

        ``energy_bar`` (N,), ``q_dot`` (N, D). Returns the gradients to all weights and to q (N, D).
        """
        hidden, n_layers = self.weights.hidden, len(self.weights.hidden)
        tangents, rates = [q_dot], []
        for weight, value in zip(hidden, self.inputs[1:]):
            rate, tangent = layer_rates(tangents[-1], weight, value, *self.where)
            rates.append(rate)
            tangents.append(tangent)
        bar, weight_bars, bias_bars = energy_bar, [], []
        for layer in reversed(range(n_layers)):
            last, value = layer == n_layers - 1, self.inputs[layer + 1]
            to_x, bar = layer_bars(
                value, rates[layer], self.to_value[layer], bar, hidden[layer], *self.where, last
            )
            of_output = (energy_bar, value, tangents[-1]) if last else (None, None, None)
            parts = layer_gradients(
                to_x, self.inputs[layer], self.to_x[layer], tangents[layer], self.where[0],
                *of_output,
            )  # fmt: skip
            sums = self.tiles.sum(parts)
            n_neurons, n_inputs = hidden[layer].shape[1:]
            size = n_neurons * n_inputs
            weight_bars.insert(0, sums[:, :size].unflatten(1, (n_neurons, n_inputs)))
            bias_bars.insert(0, sums[:, size : size + n_neurons])
            if last:
                output, element = sums[:, size + n_neurons : -1], sums[:, -1]
        return NetworkWeights(tuple(weight_bars), tuple(bias_bars), output, element), bar
