"""The evaluation on GPUs by fused kernels."""

from __future__ import annotations

from dataclasses import replace

from torch import Tensor

from ..data.batch import Batch
from ..ops.geometry import Geometry
from ..ops.groups import TiledGroups
from ..ops.invariants import descriptor_changes, descriptors, sum_gradients, sum_slopes
from ..ops.products import ROW_TILE, coefficient_products, contracted_rows, expanded_rows
from ..ops.stages import stage
from .fused_network import FusedNetwork
from .nep import Evaluation
from .network import NetworkWeights


class FusedEvaluation(Evaluation):
    """The same numbers as RowEvaluation from some twenty kernels that keep nothing per pair but
    forces."""

    def _evaluate(self) -> tuple[Tensor, Tensor]:
        batch: Batch = self.batch
        model, terms = self.model, self.model.terms
        self.coefficients = (self.radial_coefficients, self.angular_coefficients)
        self.geometry = Geometry(batch, model.settings, self.radial_coefficients.dtype)
        self.group = model.group_of_pair_type.index_select(0, batch.row_pair_type)
        self.n_radial = model.settings.n_max[0] + 1
        self.values = (terms.factors, terms.coefficients, terms.quartic)
        slopes = (terms.slope_factors, terms.slope_coefficients)
        self.slopes = (*slopes, terms.quartic, self.n_radial)
        with stage("densities"):
            self.place, self.densities = self.geometry.placed_densities()
        with stage("contraction"):
            near, self.s = self._contracted(*self.densities, self.place)
        with stage("invariants"):
            q = descriptors(near, self.s, *self.values)
        with stage("network"):
            # The q_scaler in the first weights, which are fewer than descriptors.
            first, *others = self.weights.hidden
            scaled = replace(self.weights, hidden=(first * model.q_scaler, *others))
            self.network = FusedNetwork(scaled, batch.types)
            energies, self.q_slope = self.network.forward(q)  # dU/dq (N, D)
        return q, energies

    def _contracted(
        self, radial: Tensor, angular: Tensor, place: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Sums over neighbours (N, n_R) and (N, n_A, L) of densities of rows."""
        start = self.batch.row_start
        return contracted_rows(radial, angular, *self.coefficients, self.group, start, place)

    def sums_of_atoms(self) -> Tensor:
        """Force (3), eV/Å, and half of the pairs' virials (6), eV, of each atom (N, 9)."""
        with stage("pair gradients"):
            self.s_slope = sum_slopes(self.q_slope, self.q, self.s, *self.slopes)
            center = self.batch.row_center
            rows = expanded_rows(self.q_slope, self.s_slope, *self.coefficients, self.group, center)
        with stage("forces and virials"):
            return self.geometry.sums_of_atoms(*rows)

    def forces_and_virials(self) -> tuple[Tensor, Tensor]:
        """Forces (N, 3) eV/Å and virials (B, 6) eV, xx yy zz xy yz zx. Comes before gradient."""
        sums = self.sums_of_atoms()
        return sums[:, :3], self.frames.sum(sums[:, 3:])

    def _tangents(self, forces: Tensor, virials: Tensor | None) -> Tensor:
        self.tangents = self.geometry.tangent_densities(forces, virials)
        near, self.s_dot = self._contracted(*self.tangents)
        self.q_dot = descriptor_changes(near, self.s, self.s_dot, self.q, *self.values)
        return self.q_dot

    def _network_gradient(self, energies: Tensor, q_dot: Tensor) -> tuple[NetworkWeights, Tensor]:
        weights, q_bar = self.network.backward(energies, q_dot)
        first, *others = weights.hidden
        return replace(weights, hidden=(first * self.model.q_scaler, *others)), q_bar

    def _coefficient_gradients(self, q_bar: Tensor) -> tuple[Tensor, Tensor]:
        s_bar = sum_gradients(
            q_bar, self.q_slope, self.q, self.q_dot, self.s, self.s_dot, *self.slopes
        )
        groups = TiledGroups(self.group, len(self.model.pair_types), ROW_TILE)
        parts = coefficient_products(
            q_bar, s_bar, self.q_slope, self.s_slope, *self.densities, *self.tangents,
            self.batch.row_center, groups.member, self.n_radial, self.place,
        )  # fmt: skip
        radial, angular = self.coefficients
        size = radial[0].numel()
        sums = groups.tiles.sum(parts)
        return sums[:, :size].view_as(radial), sums[:, size:].view_as(angular)
