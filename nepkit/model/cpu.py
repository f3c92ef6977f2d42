"""The evaluation on CPUs by fused kernels."""

from __future__ import annotations

import torch
from torch import Tensor

from ..data.batch import Selection
from ..ops.cpu.backward import backward
from ..ops.cpu.forward import forward
from ..ops.cpu.launch import PairData, Place, ranges, shape_of
from ..ops.cpu.network import atoms_by_type
from ..ops.cpu.threads import arrays, run_together
from ..ops.stages import stage
from .nep import Evaluation, Nep


class CpuEvaluation(Evaluation):
    """The same numbers as RowEvaluation from kernels that keep nothing per pair but forces."""

    def __init__(
        self, model: Nep, selection: Selection, flat: Tensor, data: PairData, place: Place
    ):
        self.where = (shape_of(model.settings), data, place)
        self.ends = ranges(data, place)
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
        pairs, virials = like.new_empty(place.pair_start[-1], 3), like.new_empty(n_atoms, 6)
        self.forces, n_frames = like.new_empty(n_atoms, 3), len(self.batch)
        self.frame_energies, self.virials = like.new_zeros(n_frames), like.new_zeros(n_frames, 6)
        self.hidden = arrays(weights.hidden)
        with stage("contraction to forces"):  # one kernel, atom by atom
            run_together(
                forward, len(self.ends) - 1, self.ends, *self.where, self.batch.atom_start,
                *self.coefficients, self.batch.types, self.hidden, arrays(weights.bias),
                weights.output, weights.element, self.model.q_scaler, self.s, q, self.scaled_q,
                arrays(self.values), energies, arrays(self.slopes), self.q_slope, self.s_slope,
                pairs, self.forces, virials, self.frame_energies, self.virials,
            )  # fmt: skip
        return q, energies

    def sums_of_frames(self) -> Tensor:
        """As Evaluation.sums_of_frames says."""
        return self.frame_energies

    def forces_and_virials(self) -> tuple[Tensor, Tensor]:
        """Forces (N, 3) eV/Å and virials (B, 6) eV, xx yy zz xy yz zx."""
        return self.forces, self.virials

    def gradient(
        self, energies: Tensor, forces: Tensor, virials: Tensor | None
    ) -> dict[str, Tensor]:
        """As Evaluation.gradient says."""
        out = torch.empty_like(self.model.flat)
        self.gradient_into(out, energies, forces, virials)
        return self.model.views(out)

    def gradient_into(self, out: Tensor, energies: Tensor, forces: Tensor, virials: Tensor | None):
        """As Evaluation.gradient_into says, without a copy."""
        if virials is None:
            virials = forces.new_zeros(len(self.batch), 6)
        with stage("tangent densities to parameter gradients"):  # one kernel, atom by atom
            self._gradient_into(out, energies, forces, virials)

    def _gradient_into(self, out: Tensor, energies: Tensor, forces: Tensor, virials: Tensor):
        _, data, place = self.where
        energies, views = energies.contiguous(), self.model.views(out)
        types, values, slopes = self.batch.types, arrays(self.values), arrays(self.slopes)
        by_type = atoms_by_type(types.numpy(), len(views["element_bias"]))
        layers = range(len(values))
        coefficients = [views[f"{kind}_coefficients"].flatten(1) for kind in ("radial", "angular")]
        rows = [c.new_empty(place.row_start[-1], *c.shape[1:]) for c in self.coefficients]
        x_dot = torch.empty_like(self.scaled_q)
        value_dots = arrays(torch.empty_like(value) for value in self.values)
        x_bars = arrays(torch.empty_like(value) for value in self.values)
        run_together(
            backward, len(self.ends) - 1, self.ends, *self.where, *self.coefficients, types,
            self.hidden, self.weights.output, self.model.q_scaler, self.s, self.s_slope,
            self.q_slope, values, slopes, energies, forces.contiguous(), virials.contiguous(),
            x_dot, value_dots, x_bars, *rows, self.scaled_q, by_type, *coefficients,
            arrays(views[f"hidden_weight_{k}"] for k in layers),
            arrays(views[f"hidden_bias_{k}"] for k in layers),
            views["output_weight"], views["element_bias"],
        )  # fmt: skip
