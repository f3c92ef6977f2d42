"""The evaluation by rows, in plain torch: the definition that every other is tested against."""

from __future__ import annotations

import torch
from torch import Tensor

from ..data.batch import Batch
from ..ops.geometry import Geometry
from ..ops.groups import Groups
from ..ops.policy import contraction_form
from .contraction import Contraction
from .invariants import Invariants
from .nep import Evaluation
from .network import Network, NetworkWeights


class RowEvaluation(Evaluation):
    """Densities of rows, contraction with their coefficients, and the maps to and from pairs."""

    def _evaluate(self) -> tuple[Tensor, Tensor]:
        q, scaler = self._descriptors(), self.model.q_scaler
        self.network = Network(self.weights, self.batch.types)
        energies, slope = self.network.forward(q * scaler)
        self.q_slope = slope * scaler  # dU/dq (N, D)
        return q, energies

    def _network_gradient(self, energies: Tensor, q_dot: Tensor) -> tuple[NetworkWeights, Tensor]:
        return self.network.backward(energies, q_dot)

    def _descriptors(self) -> Tensor:
        batch: Batch = self.batch
        model, coefficients = self.model, self.radial_coefficients
        settings = model.settings
        self.geometry = Geometry(batch, settings, coefficients.dtype)
        self.invariants = Invariants(settings.l_max, settings.invariants, coefficients)
        self.n_radial = settings.n_max[0] + 1
        group = model.group_of_pair_type.index_select(0, batch.row_pair_type)
        form = contraction_form(coefficients.device, len(settings.elements))
        groups = Groups(group, len(model.pair_types))
        self.contraction = Contraction(groups, batch.row_center, batch.row_start, form)
        self.radial_rows = self.contraction.gather(coefficients)
        self.angular_rows = self.contraction.gather(self.angular_coefficients)
        radial, self.angular_density = self.geometry.densities()
        self.radial_density = radial[:, :, None]
        radial, self.s = self._contract(self.radial_density, self.angular_density)
        return torch.cat([radial, self.invariants.values(self.s)], dim=1)

    def _contract(self, radial: Tensor, angular: Tensor) -> tuple[Tensor, Tensor]:
        """Sums over neighbours (N, n) and (N, n, L) of densities of rows."""
        sums = self.contraction.sums
        radial = sums(self.radial_coefficients, self.radial_rows, radial)
        return radial.squeeze(2), sums(self.angular_coefficients, self.angular_rows, angular)

    def pair_forces(self) -> Tensor:
        """dU/dr_ij (H, 3) eV/Å of every pair."""
        expand = self.contraction.expand
        self.radial_slope = self.q_slope[:, : self.n_radial, None]
        self.angular_slope = self.invariants.pull(self.s, self.q_slope[:, self.n_radial :])
        radial = expand(self.radial_coefficients, self.radial_rows, self.radial_slope)
        angular = expand(self.angular_coefficients, self.angular_rows, self.angular_slope)
        return self.geometry.pair_forces(radial.squeeze(2), angular)

    def forces_and_virials(self) -> tuple[Tensor, Tensor]:
        """Forces (N, 3) eV/Å and virials (B, 6) eV, xx yy zz xy yz zx."""
        pair_forces = self.pair_forces()
        return self.geometry.forces(pair_forces), self.geometry.virials(pair_forces)

    def _tangents(self, forces: Tensor, virials: Tensor | None) -> Tensor:
        radial, self.angular_tangent = self.geometry.tangent_densities(forces, virials)
        self.radial_tangent = radial[:, :, None]
        radial, self.s_dot = self._contract(self.radial_tangent, self.angular_tangent)
        return torch.cat([radial, self.invariants.push(self.s, self.s_dot)], dim=1)

    def _coefficient_gradients(self, q_bar: Tensor) -> tuple[Tensor, Tensor]:
        gradient, invariants = self.contraction.coefficient_gradient, self.invariants
        s_bar = invariants.pull(self.s, q_bar[:, self.n_radial :])
        s_bar += invariants.pull_push(self.s, self.s_dot, self.q_slope[:, self.n_radial :])
        return (
            gradient(
                [q_bar[:, : self.n_radial, None], self.radial_slope],
                [self.radial_density, self.radial_tangent],
            ),
            gradient([s_bar, self.angular_slope], [self.angular_density, self.angular_tangent]),
        )
