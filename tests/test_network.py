"""The element networks against the plain formula and torch's second derivatives."""

import plain_nep
import pytest
import torch

from nepkit.model.fused_network import FusedNetwork
from nepkit.model.network import Network, NetworkWeights

WIDTH = 6


def random_weights(n_types, neurons, seed=0):
    generator = torch.Generator().manual_seed(seed)

    def numbers(*shape):
        return torch.randn(shape, generator=generator, dtype=torch.float64).requires_grad_()

    hidden, bias, width = [], [], WIDTH
    for count in neurons:
        hidden.append(numbers(n_types, count, width))
        bias.append(numbers(n_types, count))
        width = count
    return NetworkWeights(tuple(hidden), tuple(bias), numbers(n_types, width), numbers(n_types))


def flat(weights):
    return [*weights.hidden, *weights.bias, weights.output, weights.element]


def plain(weights, q, types):
    parameters = {f"hidden_weight_{k}": w for k, w in enumerate(weights.hidden)}
    parameters |= {f"hidden_bias_{k}": b for k, b in enumerate(weights.bias)}
    parameters |= {"output_weight": weights.output, "element_bias": weights.element}
    return plain_nep.network(q, types.long(), parameters, len(weights.hidden))


TYPES = {
    "one atom": (1, [0]),
    "one type": (1, [0] * 37),
    "two types": (2, [1, 0, 0, 1, 1] * 9),
    "a type that is absent": (3, [2, 0, 0, 2] * 5),
    "89 types": (89, list(range(88, -1, -2)) + [3] * 20),
}


@pytest.mark.parametrize("kind", [Network, FusedNetwork])
@pytest.mark.parametrize("neurons", [(4,), (1,), (4, 3), (3, 5)], ids=str)
@pytest.mark.parametrize("name", TYPES)
def test_energies_and_derivatives(name, neurons, kind):
    n_types, types = TYPES[name]
    types = torch.tensor(types, dtype=torch.int32)
    generator = torch.Generator().manual_seed(1)
    q, q_dot = torch.randn(2, len(types), WIDTH, generator=generator, dtype=torch.float64)
    energy_bar = torch.randn(len(types), generator=generator, dtype=torch.float64)
    weights = random_weights(n_types, neurons)
    q.requires_grad_()

    wanted = plain(weights, q, types)
    (slope,) = torch.autograd.grad(wanted.sum(), q, create_graph=True)
    fixed = NetworkWeights(*(
        tuple(w.detach() for w in part) if isinstance(part, tuple) else part.detach()
        for part in (weights.hidden, weights.bias, weights.output, weights.element)
    ))  # fmt: skip
    network = kind(fixed, types)
    energies, found_slope = network.forward(q.detach())
    torch.testing.assert_close(energies, wanted, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(found_slope, slope, rtol=1e-12, atol=1e-12)

    total = (energy_bar * wanted).sum() + (slope * q_dot).sum()
    gradients = torch.autograd.grad(total, [q, *flat(weights)])
    to_weights, to_q = network.backward(energy_bar, q_dot)
    torch.testing.assert_close(to_q, gradients[0], rtol=1e-11, atol=1e-11)
    for found, gradient in zip(flat(to_weights), gradients[1:], strict=True):
        torch.testing.assert_close(found, gradient, rtol=1e-11, atol=1e-11)
