"""The element networks: U = w_out . tanh(... tanh(w0 . q - b0) ...), one or two hidden layers.

Atoms are grouped by element in tiles; every product is a dense block with the weights of one
element. Letters: T types, H neurons of a layer, D descriptor length; t tiles of ``tile`` slots.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ..ops.groups import TiledGroups
from ..ops.policy import network_tile


@dataclass(frozen=True, eq=False, slots=True)
class NetworkWeights:
    """Weights of all elements: hidden ((T, H, in), ...), biases ((T, H), ...), output (T, H).

    ``element`` (T,) eV is added to the energy of each atom of an element.
    """

    hidden: tuple[Tensor, ...]
    bias: tuple[Tensor, ...]
    output: Tensor
    element: Tensor


class Network:
    """One evaluation of the element networks on a batch, and its derivatives.

    ``forward`` comes first and keeps what the other needs.
    """

    def __init__(self, weights: NetworkWeights, types: Tensor):
        self.groups = TiledGroups(types, len(weights.output), network_tile(types.device.type))
        of_tile = self.groups.tiles.spread
        self.hidden = [of_tile(w) for w in weights.hidden]
        self.bias = [of_tile(b)[:, None] for b in weights.bias]
        self.output = of_tile(weights.output)[:, None]  # (t, 1, H)
        self.element = of_tile(weights.element)[:, None, None]

    def forward(self, q: Tensor) -> tuple[Tensor, Tensor]:
        """U (N,) eV and dU/dq (N, D) of scaled descriptors q (N, D)."""
        self.inputs, self.values = [self.groups.gather(q)], []
        for weight, bias in zip(self.hidden, self.bias):
            x = torch.baddbmm(bias, self.inputs[-1], weight.transpose(1, 2), beta=-1)
            self.inputs.append(torch.tanh(x))
        last = self.inputs[-1]
        energy = (last * self.output).sum(2, keepdim=True) + self.element
        # slope: dU/dx of each layer, from the last to the first.
        self.slopes, change = [], self.output
        for weight, value in zip(reversed(self.hidden), reversed(self.inputs[1:])):
            slope = change * (1.0 - value * value)
            self.slopes.insert(0, slope)
            change = torch.bmm(slope, weight)
        return self.groups.spread(energy).squeeze(1), self.groups.spread(change)

    def backward(self, energy_bar: Tensor, q_dot: Tensor) -> tuple[NetworkWeights, Tensor]:
        """Gradient of sum_i [energy_bar_i U_i + dU_i/dq . q_dot_i], energy_bar and q_dot constant.

        ``energy_bar`` (N,), ``q_dot`` (N, D). Returns the gradients to all weights and to q (N, D).
        The gradient to q_dot is dU/dq.
        """
        tangents, rates = [self.groups.gather(q_dot)], []
        for weight, value in zip(self.hidden, self.inputs[1:]):
            rate = torch.bmm(tangents[-1], weight.transpose(1, 2))
            rates.append(rate)
            tangents.append((1.0 - value * value) * rate)
        energy_bar = self.groups.gather(energy_bar[:, None])
        last = torch.cat([energy_bar, torch.ones_like(energy_bar)], dim=1).transpose(1, 2)
        both = torch.cat([self.inputs[-1], tangents[-1]], dim=1)
        output = torch.bmm(last, both).squeeze(1)

        reduce = self.groups.tiles.sum
        value_bar, tangent_bar = energy_bar * self.output, self.output
        hidden, bias = [], []
        for layer in reversed(range(len(self.hidden))):
            value, slope = self.inputs[layer + 1], self.slopes[layer]
            value_bar = value_bar - 2.0 * value * rates[layer] * tangent_bar
            x_bar = value_bar * (1.0 - value * value)
            weight_bar = torch.bmm(x_bar.transpose(1, 2), self.inputs[layer])
            weight_bar.baddbmm_(slope.transpose(1, 2), tangents[layer])
            hidden.insert(0, reduce(weight_bar))
            bias.insert(0, reduce(-x_bar.sum(1)))
            value_bar = torch.bmm(x_bar, self.hidden[layer])
            if layer:
                tangent_bar = torch.bmm(slope, self.hidden[layer])
        element = reduce(energy_bar.sum(1)).squeeze(1)
        gradient = NetworkWeights(tuple(hidden), tuple(bias), reduce(output), element)
        return gradient, self.groups.spread(value_bar)
