"""The evaluation by rows, in plain torch: the definition that every other is tested against."""

from __future__ import annotations

import torch
from torch import Tensor

from ..data.batch import Batch
from ..ops.geometry import Geometry
from ..ops.groups import Groups
from ..ops.policy import Contract, contraction_policy
from ..ops.segment import Segments
from ..ops.stages import stage
from .contraction import Contraction
from .nep import Evaluation, Nep
from .network import Network, NetworkWeights


class RowEvaluation(Evaluation):
    """Densities of rows, contraction with their coefficients, and the maps to and from pairs.

    ``contract``: how rows meet coefficients (contraction_policy).
    """

    def __init__(self, model: Nep, batch: Batch, flat: Tensor, contract: Contract | None = None):
        if contract is None:
            n_types = len(model.settings.elements)
            contract = contraction_policy(batch.types.device.type, False, n_types)
        self.contract = contract
        super().__init__(model, batch, flat)

    def _evaluate(self) -> tuple[Tensor, Tensor]:
        q, scaler = self._descriptors(), self.model.q_scaler
        with stage("network"):
            self.network = Network(self.weights, self.batch.types)
            energies, slope = self.network.forward(q * scaler)
        self.q_slope = slope * scaler  # dU/dq (N, D)
        return q, energies

    def _network_gradient(self, energies: Tensor, q_dot: Tensor) -> tuple[NetworkWeights, Tensor]:
        weights, q_bar = self.network.backward(energies, q_dot * self.model.q_scaler)
        return weights, q_bar * self.model.q_scaler

    def _descriptors(self) -> Tensor:
        batch: Batch = self.batch
        model, coefficients = self.model, [self.radial_coefficients, self.angular_coefficients]
        with stage("densities"):
            self.geometry = Geometry(batch, model.settings, coefficients[0].dtype)
            radial, self.angular_density = self.geometry.densities()
            self.radial_density = radial[:, :, None]
        self.invariants = model.invariants
        self.n_radial = model.settings.n_max[0] + 1
        with stage("contraction"):
            group = model.group_of_pair_type.index_select(0, batch.row_pair_type)
            n_groups = len(model.pair_types)
            groups = Groups(torch.where(group < 0, n_groups, group), n_groups + 1)
            atoms = Segments(batch.row_start, batch.row_center)
            self.contraction = Contraction(groups, atoms, self.contract)
            self.radial_rows, self.angular_rows = self.contraction.gather(coefficients)
            radial, self.s = self._contract(self.radial_density, self.angular_density)
        with stage("invariants"):
            return torch.cat([radial, self.invariants.values(self.s)], dim=1)

    def _contract(self, radial: Tensor, angular: Tensor) -> tuple[Tensor, Tensor]:
        """Sums over neighbours (N, n) and (N, n, L) of densities of rows."""
        sums = self.contraction.sums
        radial = sums(self.radial_coefficients, self.radial_rows, radial)
        return radial.squeeze(2), sums(self.angular_coefficients, self.angular_rows, angular)

    def forces_and_virials(self) -> tuple[Tensor, Tensor]:
        """Forces (N, 3) eV/Å and virials (B, 6) eV, xx yy zz xy yz zx."""
        expand = self.contraction.expand
        self.radial_slope = self.q_slope[:, : self.n_radial, None]
        with stage("invariants"):
            self.angular_slope = self.invariants.pull(self.s, self.q_slope[:, self.n_radial :])
        with stage("contraction"):
            radial = expand(self.radial_coefficients, self.radial_rows, self.radial_slope)
            angular = expand(self.angular_coefficients, self.angular_rows, self.angular_slope)
        with stage("forces and virials"):
            return self.geometry.forces_and_virials(radial.squeeze(2), angular)

    def _tangents(self, forces: Tensor, virials: Tensor | None) -> Tensor:
        radial, self.angular_tangent = self.geometry.tangent_densities(forces, virials)
        self.radial_tangent = radial[:, :, None]
        radial, self.s_dot = self._contract(self.radial_tangent, self.angular_tangent)
        return torch.cat([radial, self.invariants.push(self.s, self.s_dot)], dim=1)

    def _coefficient_gradients(self, q_bar: Tensor) -> tuple[Tensor, Tensor]:
        invariants = self.invariants
        s_bar = invariants.pull(self.s, q_bar[:, self.n_radial :])
        s_bar = s_bar + invariants.pull_push(self.s, self.s_dot, self.q_slope[:, self.n_radial :])
        radial_bar = q_bar[:, : self.n_radial, None]
        radial = [(radial_bar, self.radial_density), (self.radial_slope, self.radial_tangent)]
        angular = [(s_bar, self.angular_density), (self.angular_slope, self.angular_tangent)]
        return tuple(self.contraction.coefficient_gradients([radial, angular]))
