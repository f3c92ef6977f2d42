"""The layers of the element networks and their derivatives, as operators.

Plain torch, the definition, and Triton. A layer is v = tanh(x), x = W_t in - b_t, with weights
(T, H, A) and biases (T, H) of the element t of an atom. Atoms are in tiles of ATOM_TILE slots of one
element: ``member`` (tiles * ATOM_TILE,) are the atoms in slots, N where one is empty, ``tile_type``
(tiles,) the elements. U = w_out . v of the last layer, plus an energy of the element. The weights
of the output (T, H) stand for dU/dv where ``last`` is set.
"""

from __future__ import annotations

import torch
from torch import Tensor

from .operator import operator
from .policy import kernels_on

# The least that matrix instructions take: small batches make many tiles.
ATOM_TILE = 16


@operator("(Tensor inputs, Tensor weight, Tensor bias, Tensor member, Tensor tile_type) -> Tensor")
def layer_values(inputs, weight, bias, member, tile_type):
    """v (N, H) of ``inputs`` (N, A)."""
    if kernels_on(inputs.device):
        from .triton.layers import launch_values

        return launch_values(inputs, weight, bias, None, member, tile_type, ATOM_TILE)[1]
    x = _in_tiles(inputs, member) @ _of_tiles(weight, tile_type).transpose(1, 2)
    return _of_atoms(torch.tanh(x - _of_tiles(bias, tile_type)[:, None]), member, len(inputs))


@layer_values.register_fake
def _(inputs, weight, bias, member, tile_type):
    return inputs.new_empty(inputs.shape[0], weight.shape[1])


@operator(
    "(Tensor tangents, Tensor weight, Tensor values, Tensor member, Tensor tile_type)"
    " -> (Tensor, Tensor)"
)
def layer_rates(tangents, weight, values, member, tile_type):
    """Changes of x and v (N, H) as the inputs change by ``tangents`` (N, A)."""
    if kernels_on(values.device):
        from .triton.layers import launch_values

        return launch_values(tangents, weight, None, values, member, tile_type, ATOM_TILE)
    rates = _in_tiles(tangents, member) @ _of_tiles(weight, tile_type).transpose(1, 2)
    rates = _of_atoms(rates, member, len(values))
    return rates, (1.0 - values * values) * rates


@layer_rates.register_fake
def _(tangents, weight, values, member, tile_type):
    return torch.empty_like(values), torch.empty_like(values)


@operator(
    "(Tensor values, Tensor slope, Tensor element, Tensor weight, Tensor member,"
    " Tensor tile_type, bool last) -> (Tensor, Tensor, Tensor)"
)
def layer_slopes(values, slope, element, weight, member, tile_type, last):
    """dU/dx (N, H) and dU/d(inputs) (N, A) of dU/dv = ``slope``, and U (N,), of the last layer."""
    n_atoms = len(values)
    if kernels_on(values.device):
        from .triton.layers import launch_slopes

        return launch_slopes(values, slope, element, weight, member, tile_type, last, ATOM_TILE)
    energies = values.new_empty(0)
    if last:
        slope, element = (_of_elements(t, member, tile_type, n_atoms) for t in (slope, element))
        energies = (values * slope).sum(1) + element.squeeze(1)
    slopes = slope * (1.0 - values * values)
    below = _in_tiles(slopes, member) @ _of_tiles(weight, tile_type)
    return slopes, _of_atoms(below, member, n_atoms), energies


@layer_slopes.register_fake
def _(values, slope, element, weight, member, tile_type, last):
    below = values.new_empty(values.shape[0], weight.shape[2])
    return torch.empty_like(values), below, values.new_empty(values.shape[0] if last else 0)


@operator(
    "(Tensor values, Tensor rates, Tensor slope, Tensor bar, Tensor weight, Tensor member,"
    " Tensor tile_type, bool last) -> (Tensor, Tensor)"
)
def layer_bars(values, rates, slope, bar, weight, member, tile_type, last):
    """Gradients to x (N, H) and to the inputs (N, A) of what ``bar`` (N, H) is the gradient to v of,
    plus dU/dx . rates.

    ``bar`` is that to U (N,) where ``last`` is set.
    """
    n_atoms = len(values)
    if kernels_on(values.device):
        from .triton.layers import launch_bars

        return launch_bars(values, rates, slope, bar, weight, member, tile_type, last, ATOM_TILE)
    if last:
        slope = _of_elements(slope, member, tile_type, n_atoms)
        bar = bar[:, None] * slope
    bars = (bar - 2.0 * values * rates * slope) * (1.0 - values * values)
    below = _in_tiles(bars, member) @ _of_tiles(weight, tile_type)
    return bars, _of_atoms(below, member, n_atoms)


@layer_bars.register_fake
def _(values, rates, slope, bar, weight, member, tile_type, last):
    return torch.empty_like(values), values.new_empty(values.shape[0], weight.shape[2])


@operator(
    "(Tensor bars, Tensor inputs, Tensor slopes, Tensor tangents, Tensor member,"
    " Tensor? energy_bar, Tensor? values, Tensor? changes) -> Tensor"
)
def layer_gradients(bars, inputs, slopes, tangents, member, energy_bar, values, changes):
    """Gradients to the weights, from each tile: columns of W (H A), b (H) and, of the last layer,
    w_out (H) and the energy of the element (1).

    Of the gradient to x, ``bars``, and dU/dx, ``slopes`` (N, H), with the inputs and their tangents
    (N, A). For the last layer ``energy_bar`` (N,), v and its changes (N, H) are given too.
    """
    if kernels_on(bars.device):
        from .triton.layer_gradients import launch

        others = (energy_bar, values, changes)
        return launch(bars, inputs, slopes, tangents, member, *others, ATOM_TILE)
    left, right, slopes, tangents = (_in_tiles(t, member) for t in (bars, inputs, slopes, tangents))
    weight = left.transpose(1, 2) @ right + slopes.transpose(1, 2) @ tangents
    parts = [weight.flatten(1), -left.sum(1)]
    if energy_bar is not None:
        output = energy_bar[:, None] * values + changes
        parts += [_in_tiles(t, member).sum(1) for t in (output, energy_bar[:, None])]
    return torch.cat(parts, dim=1)


@layer_gradients.register_fake
def _(bars, inputs, slopes, tangents, member, energy_bar, values, changes):
    n_neurons = bars.shape[1]
    width = n_neurons * (inputs.shape[1] + 1) + (0 if energy_bar is None else n_neurons + 1)
    return bars.new_empty(member.shape[0] // ATOM_TILE, width)


def _in_tiles(values: Tensor, member: Tensor) -> Tensor:
    """values (N, A) in slots (tiles, ATOM_TILE, A), zeros in empty ones."""
    padded = torch.cat([values, values.new_zeros(1, values.shape[1])])
    return padded.index_select(0, member).unflatten(0, (-1, ATOM_TILE))


def _of_atoms(tiles: Tensor, member: Tensor, n_atoms: int) -> Tensor:
    """(tiles, ATOM_TILE, A) back in the order of atoms (N, A)."""
    values = tiles.new_zeros(n_atoms + 1, tiles.shape[2])
    values[member.long()] = tiles.flatten(0, 1)
    return values[:-1].clone()


def _of_tiles(weight: Tensor, tile_type: Tensor) -> Tensor:
    return weight.index_select(0, tile_type)


def _of_elements(weight: Tensor, member: Tensor, tile_type: Tensor, n_atoms: int) -> Tensor:
    """Weights (T,) or (T, H) of the elements of atoms, (N, H)."""
    tiles = _of_tiles(weight.view(len(weight), 1, -1), tile_type)
    return _of_atoms(tiles.expand(-1, ATOM_TILE, -1), member, n_atoms)
