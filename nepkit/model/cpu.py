"""The evaluation on CPUs by fused kernels."""

from __future__ import annotations

import torch
from torch import Tensor

from ..data.batch import Selection
from ..ops.cpu import kernels
from ..ops.cpu.launch import PairData, Place, even_ranges, ranges, run, shape_of
from ..ops.segment import segment_sum
from .nep import Evaluation, Nep


class CpuEvaluation(Evaluation):
    """The same numbers as RowEvaluation from kernels that keep nothing per pair but forces."""

    def __init__(
        self, model: Nep, selection: Selection, flat: Tensor, data: PairData, place: Place
    ):
        self.where = (shape_of(model.settings), data, place)
        self.parts = ranges(data, place)
        super().__init__(model, selection, flat)

    def _run(self, kernel, *arguments):
        run(kernel, self.parts, *self.where, *arguments)

    def _descriptors(self) -> Tensor:
        _, data, place = self.where
        self.coefficients = (self.radial_coefficients, self.angular_coefficients)
        like, n_atoms = self.angular_coefficients, len(place.atom)
        self.s = like.new_empty(n_atoms, like.shape[1] * len(data.parity))
        q = like.new_empty(n_atoms, self.model.settings.descriptor_length)
        self._run(kernels.descriptors, *self.coefficients, self.s, q)
        return q

    def forces_and_virials(self) -> tuple[Tensor, Tensor]:
        """Forces (N, 3) eV/Å and virials (B, 6) eV, xx yy zz xy yz zx."""
        place = self.where[2]
        pairs = self.s.new_empty(2 * place.half_start[-1], 3)
        self.s_slope = torch.empty_like(self.s)
        self._run(
            kernels.pair_forces, *self.coefficients, self.s, self.q_slope, self.s_slope, pairs
        )
        forces = self.s.new_empty(len(place.atom), 3)
        virials = self.s.new_empty(len(place.atom), 6)
        self._run(kernels.forces, pairs, forces, virials)
        return forces, segment_sum(virials, self.batch.atom_start)

    def _tangents(self, forces: Tensor, virials: Tensor | None) -> Tensor:
        if virials is None:
            virials = forces.new_zeros(len(self.batch), 6)
        _, data, place = self.where
        n_rows, n_halves = len(place.row), int(place.half_start[-1])
        change = forces.new_empty(n_halves, 4)
        bars = (forces.contiguous(), virials.contiguous())
        run(kernels.changes, even_ranges(n_halves), *self.where, *bars, change)
        self.radial_rows = forces.new_empty(n_rows, self.radial_coefficients.shape[2])
        self.angular_rows = forces.new_empty(n_rows, data.angular_density.shape[1])
        self.s_dot, q_dot = torch.empty_like(self.s), torch.empty_like(self.q)
        self._run(
            kernels.tangents, *self.coefficients, self.s, change,
            self.radial_rows, self.angular_rows, self.s_dot, q_dot,
        )  # fmt: skip
        return q_dot

    def _coefficient_gradients(self, q_bar: Tensor) -> tuple[Tensor, Tensor]:
        place = self.where[2]
        rows = [c.new_empty(len(place.row), *c.shape[1:]) for c in self.coefficients]
        self._run(
            kernels.gradients, self.s, self.s_slope, self.s_dot, self.q_slope, q_bar,
            self.radial_rows, self.angular_rows, *rows,
        )  # fmt: skip
        sums = [torch.empty_like(c) for c in self.coefficients]
        flat = [values.flatten(1) for values in (*rows, *sums)]
        run(kernels.sum_rows, even_ranges(len(sums[0])), *self.where, *flat)
        return sums[0], sums[1]
