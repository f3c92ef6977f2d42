"""The evaluation on CPUs by fused kernels."""

from __future__ import annotations

import torch
from torch import Tensor

from ..data.batch import Selection
from ..ops.cpu import backward, forward, network
from ..ops.cpu.launch import PairData, Place, arrays, even_ranges, ranges, run, shape_of
from ..ops.stages import stage
from .nep import Evaluation, Nep
from .network import NetworkWeights

# Atoms whose gradient to an element's network is summed in one go.
NETWORK_TILE = 32


class CpuEvaluation(Evaluation):
    """The same numbers as RowEvaluation from kernels that keep nothing per pair but forces."""

    def __init__(
        self, model: Nep, selection: Selection, flat: Tensor, data: PairData, place: Place
    ):
        self.where = (shape_of(model.settings), data, place)
        self.parts = ranges(data, place)
        super().__init__(model, selection, flat)

    def _evaluate(self) -> tuple[Tensor, Tensor]:
        _, data, place = self.where
        self.coefficients = (self.radial_coefficients, self.angular_coefficients)
        like, n_atoms, weights = self.angular_coefficients, len(place.atom), self.weights
        self.s = like.new_empty(n_atoms, like.shape[1] * len(data.parity))
        self.s_slope = torch.empty_like(self.s)
        q = like.new_empty(n_atoms, self.model.settings.descriptor_length)
        self.scaled_q, self.q_slope = torch.empty_like(q), torch.empty_like(q)
        self.values = [like.new_empty(n_atoms, bias.shape[1]) for bias in weights.bias]
        self.slopes = [torch.empty_like(value) for value in self.values]
        energies = like.new_empty(n_atoms)
        self.pairs = like.new_empty(2 * place.half_start[-1], 3)
        self.hidden = arrays(weights.hidden)
        with stage("contraction to pair gradients"):  # one kernel, atom by atom
            run(
                forward.forward, self.parts, *self.where, *self.coefficients, self.batch.types,
                self.hidden, arrays(weights.bias), weights.output, self.model.q_scaler,
                self.s, q, self.scaled_q, arrays(self.values), energies, arrays(self.slopes),
                self.q_slope, self.s_slope, self.pairs,
            )  # fmt: skip
        return q, energies + weights.element.index_select(0, self.batch.types)

    def forces_and_virials(self) -> tuple[Tensor, Tensor]:
        """Forces (N, 3) eV/Å and virials (B, 6) eV, xx yy zz xy yz zx. Comes before gradient."""
        n_atoms = len(self.s)
        forces, virials = self.s.new_empty(n_atoms, 3), self.s.new_empty(n_atoms, 6)
        with stage("forces and virials"):
            run(forward.forces, self.parts, *self.where, self.pairs, forces, virials)
            return forces, self.frames.sum(virials)

    def _tangents(self, forces: Tensor, virials: Tensor | None) -> Tensor:
        if virials is None:
            virials = forces.new_zeros(len(self.batch), 6)
        _, data, place = self.where
        n_rows, n_halves = len(place.row), int(place.half_start[-1])
        change = forces.new_empty(n_halves, 4)
        bars = (forces.contiguous(), virials.contiguous())
        run(backward.changes, even_ranges(n_halves), *self.where, *bars, change)
        self.radial_rows = forces.new_empty(n_rows, self.radial_coefficients.shape[2])
        self.angular_rows = forces.new_empty(n_rows, data.angular_density.shape[1])
        self.s_dot, q_dot = torch.empty_like(self.s), torch.empty_like(self.q)
        run(
            backward.tangents, self.parts, *self.where, *self.coefficients, self.s, change,
            self.radial_rows, self.angular_rows, self.s_dot, q_dot,
        )  # fmt: skip
        return q_dot

    def _network_gradient(self, energies: Tensor, q_dot: Tensor) -> tuple[NetworkWeights, Tensor]:
        weights, n_layers = self.weights, len(self.hidden)
        n_types = len(weights.element)
        *tiles, first_tile = network.tiles_of(self.batch.types.numpy(), n_types, NETWORK_TILE)
        n_tiles = len(tiles[2])
        like = (*weights.hidden, *weights.bias, weights.output, weights.element)
        parts = [w.new_empty(n_tiles, *w.shape[1:]) for w in like]
        q_bar = torch.empty_like(q_dot)
        run(
            network.gradients, even_ranges(n_tiles), tuple(tiles), self.hidden, weights.output,
            self.scaled_q, arrays(self.values), arrays(self.slopes), energies, q_dot,
            arrays(parts[:n_layers]), arrays(parts[n_layers:-2]), *parts[-2:], q_bar,
        )  # fmt: skip
        sums = [torch.empty_like(w) for w in like]
        for part, total in zip(parts, sums):
            flat = (part.view(n_tiles, -1), total.view(n_types, -1))
            run(network.sum_tiles, [(0, n_types)], first_tile, *flat)
        hidden, bias = tuple(sums[:n_layers]), tuple(sums[n_layers:-2])
        return NetworkWeights(hidden, bias, *sums[-2:]), q_bar

    def _coefficient_gradients(self, q_bar: Tensor) -> tuple[Tensor, Tensor]:
        n_rows = len(self.where[2].row)
        rows = [c.new_empty(n_rows, *c.shape[1:]) for c in self.coefficients]
        run(
            backward.gradients, self.parts, *self.where, self.s, self.s_slope, self.s_dot,
            self.q_slope, q_bar, self.radial_rows, self.angular_rows, *rows,
        )  # fmt: skip
        sums = [torch.empty_like(c) for c in self.coefficients]
        flat = [values.flatten(1) for values in (*rows, *sums)]
        run(backward.sum_rows, [(0, len(sums[0]))], *self.where, *flat)
        return sums[0], sums[1]
