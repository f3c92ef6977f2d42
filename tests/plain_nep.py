"""NEP4 by its formulas, as plain torch over directed pairs: the twin of the fast path.

Nothing here comes from nepkit.ops or nepkit.model but the table of monomials.
"""

import math

import numpy as np
import torch
from numpy.polynomial.legendre import leg2poly
from structures import brute_pairs

from nepkit.data.prepared import type_lookup
from nepkit.ops.monomials import MONOMIALS


def radial_functions(r, cutoff, count):
    """f_k(r) (P, count), with T_k(2 u^2 - 1) = T_2k(u) = cos(2 k arccos u), u = 1 - r/rc."""
    angle = 2.0 * torch.arccos(1.0 - r / cutoff)
    envelope = 0.5 * torch.cos(math.pi * r / cutoff) + 0.5
    higher = [0.5 * (torch.cos(k * angle) + 1.0) * envelope for k in range(1, count)]
    return torch.stack([envelope, *higher], dim=1)


def z_polynomial(l, m):
    """The m-th derivative of P_l as integers without a common divisor."""
    legendre = np.rint(leg2poly([0] * l + [1]) * 2**l).astype(int)
    for _ in range(m):
        legendre = (legendre * np.arange(len(legendre)))[1:]
    return legendre // np.gcd.reduce(legendre)


def harmonics(unit, l_max):
    """Y (P, L), m = 0, then the real and imaginary parts of m = 1, 2, ..."""
    x, y, z = unit.unbind(1)
    circle = torch.complex(x, y)
    columns = []
    for l in range(1, l_max + 1):
        for m in range(l + 1):
            height = sum(int(c) * z**p for p, c in enumerate(z_polynomial(l, m)) if c)
            wave = circle**m * height
            columns += [wave.real] if m == 0 else [wave.real, wave.imag]
    return torch.stack([c.expand(len(unit)) for c in columns], dim=1)


class PlainPairs:
    """Directed pairs of frames side by side, radial and angular."""

    def __init__(self, frames, settings):
        frames = list(frames)
        types = [type_lookup(settings.elements)[frame.numbers] for frame in frames]
        starts = np.cumsum([0, *map(len, frames)])
        self.n_atoms, self.n_frames = starts[-1], len(frames)
        self.types = torch.as_tensor(np.concatenate(types)).long()
        self.frame = torch.repeat_interleave(
            torch.arange(len(frames)), torch.tensor(np.diff(starts))
        )
        found = [
            brute_pairs(frame, of_atoms, settings.radial_cutoff)
            for frame, of_atoms in zip(frames, types)
        ]
        ends = np.concatenate([pairs + start for (pairs, _), start in zip(found, starts)])
        self.i, self.j = torch.as_tensor(ends).unbind(1)
        self.vectors = torch.as_tensor(np.concatenate([vectors for _, vectors in found]))
        self.radial_cutoff, self.angular_cutoff = (
            0.5 * (c[self.types[self.i]] + c[self.types[self.j]])
            for c in map(self.vectors.new_tensor, (settings.radial_cutoff, settings.angular_cutoff))
        )
        self.is_angular = self.vectors.norm(dim=1) < self.angular_cutoff

    def summed(self, values, where=slice(None)):
        """Sum of values (P, ...) over the pairs of each centre."""
        zeros = values.new_zeros(self.n_atoms, *values.shape[1:])
        return zeros.index_add(0, self.i[where], values)


def densities(pairs, settings):
    """sum_j f_k (N, T, K_R) and sum_j f_k Y (N, T, K_A, L) by centre and neighbour type."""
    n_types = len(settings.elements)
    r = pairs.vectors.norm(dim=1)
    radial = radial_functions(r, pairs.radial_cutoff, settings.basis_size[0] + 1)
    near = pairs.is_angular
    basis = radial_functions(r[near], pairs.angular_cutoff[near], settings.basis_size[1] + 1)
    y = harmonics(pairs.vectors[near] / r[near, None], settings.l_max)
    product = basis[:, :, None] * y[:, None, :]
    radial_sum = torch.zeros(pairs.n_atoms, n_types, radial.shape[1], dtype=r.dtype)
    angular_sum = torch.zeros(pairs.n_atoms, n_types, *product.shape[1:], dtype=r.dtype)
    for p in range(len(r)):
        radial_sum[pairs.i[p], pairs.types[pairs.j[p]]] += radial[p]
    for p, (i, j) in enumerate(zip(pairs.i[near], pairs.j[near])):
        angular_sum[i, pairs.types[j]] += product[p]
    return radial_sum, angular_sum


def descriptors(pairs, vectors, coefficients, settings):
    """q (N, D), not scaled, of pair ``vectors``, with (T, T, n, K) radial, angular coefficients."""
    radial_c, angular_c = (c[pairs.types[pairs.i], pairs.types[pairs.j]] for c in coefficients)
    r = vectors.norm(dim=1)
    basis = radial_functions(r, pairs.radial_cutoff, settings.basis_size[0] + 1)
    radial = pairs.summed((radial_c * basis[:, None, :]).sum(2))
    near = pairs.is_angular
    basis = radial_functions(r[near], pairs.angular_cutoff[near], settings.basis_size[1] + 1)
    g = (angular_c[near] * basis[:, None, :]).sum(2)
    y = harmonics(vectors[near] / r[near, None], settings.l_max)
    s = pairs.summed(g[:, :, None] * y[:, None, :], near)
    return torch.cat([radial, *invariants(s, settings.l_max, settings.invariants)], dim=1)


def invariants(s, l_max, higher):
    """Blocks (N, n): q_1 ... q_lmax, then the higher ones."""
    blocks = []
    for l in range(1, l_max + 1):
        total, component = 0.0, l * l - 1
        for m in range(l + 1):
            unscaled = np.polynomial.polynomial.polyval(0.37, z_polynomial(l, m))
            ratio = _legendre_derivative(l, m, 0.37) / unscaled
            weight = (2 * l + 1) / (4 * math.pi) * ratio**2
            weight *= math.factorial(l - m) / math.factorial(l + m) * (1 if m == 0 else 2)
            for _ in range(1 if m == 0 else 2):
                total = total + weight * s[:, :, component] ** 2
                component += 1
        blocks.append(total)
    for name in higher:
        if name == "q1111":
            blocks.append(7 / 15 * blocks[0] ** 2)
        else:
            blocks.append(
                sum(w * s[:, :, a] * s[:, :, b] * s[:, :, c] for (a, b, c), w in MONOMIALS[name])
            )
    return blocks


def _legendre_derivative(l, m, z):
    polynomial = leg2poly([0] * l + [1])
    for _ in range(m):
        polynomial = (polynomial * np.arange(len(polynomial)))[1:]
    return np.polynomial.polynomial.polyval(z, polynomial)


def network(q, types, parameters, n_layers):
    """U (N,) of scaled q, with the model's parameters by name."""
    value = q
    for layer in range(n_layers):
        weight = parameters[f"hidden_weight_{layer}"][types]
        bias = parameters[f"hidden_bias_{layer}"][types]
        value = torch.tanh((weight * value[:, None, :]).sum(2) - bias)
    return (parameters["output_weight"][types] * value).sum(1) + parameters["element_bias"][types]


def evaluate(model, pairs, flat=None, create_graph=False):
    """Atom energies (N,), forces (N, 3), virials (B, 6) by torch's autograd through the pairs.

    ``model``: a nepkit model with coefficients for every pair type, read but not run.
    """
    settings = model.settings
    n_types = len(settings.elements)
    parameters = model.views(model.flat if flat is None else flat)
    coefficients = [
        parameters[f"{name}_coefficients"].unflatten(0, (n_types, n_types))
        for name in ("radial", "angular")
    ]
    vectors = pairs.vectors.clone().requires_grad_()
    q = descriptors(pairs, vectors, coefficients, settings)
    energies = network(q * model.q_scaler, pairs.types, parameters, len(settings.neuron))
    (pull,) = torch.autograd.grad(energies.sum(), vectors, create_graph=create_graph)
    forces = pairs.summed(pull).index_add(0, pairs.j, -pull)
    products = vectors[:, [0, 1, 2, 0, 1, 2]] * pull[:, [0, 1, 2, 1, 2, 0]]
    virials = pull.new_zeros(pairs.n_frames, 6).index_add(0, pairs.frame[pairs.i], -products)
    return energies, forces, virials
