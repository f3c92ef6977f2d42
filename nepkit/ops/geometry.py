"""The linear maps between an atom's densities and the geometry of its pairs.

Densities a hold no trainable number. With G = dU/da, the force on every pair is a linear function
of G, and with it forces and virials (J^T G). With the derivatives of a loss to forces and virials,
the tangent densities are the adjoint (J v). A training step reads pairs nowhere else.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ..config import ModelSettings
from ..data.batch import VIRIAL_COLUMNS, VIRIAL_ROWS, Batch
from .pairs import both_ways, dot, parity_of, pulls, row_sums_of_changes, sums_of_atoms
from .segment import Segments
from .tables import with_tables


class Geometry:
    """Basis functions of the pairs of a batch and the sums over pairs built on them.

    Letters as in Batch; K_R, K_A radial functions, L angular components. A pair is seen from both
    of its ends: f_k is the same, Y_l(-r) = (-1)^l Y_l(r).
    """

    def __init__(self, batch: Batch, settings: ModelSettings, dtype: torch.dtype):
        self.batch = batch
        self.tables = with_tables(batch, settings, dtype).tables
        self.vectors, self.unit = self.tables["vectors"], self.tables["unit"]  # (H, 3)
        self.frames = Segments(batch.atom_start, batch.atom_frame, typical=128)

    def densities(self) -> tuple[Tensor, Tensor]:
        """a_R (R, K_R) = sum_j f_k(r_ij) and a_A (R, K_A, L) = sum_j f_k(r_ij) Y(r_ij)."""
        tables, batch = self.tables, self.batch
        if "radial_density" in tables:
            return tables["radial_density"], tables["angular_density"]
        rows = torch.stack([batch.first_row, batch.second_row], dim=1)
        radial = Segments(batch.radial_start, rows.flatten(), batch.radial_order, 32)
        rows = rows.index_select(0, batch.angular)
        angular = Segments(batch.angular_start, rows.flatten(), batch.angular_order)
        harmonics = tables["harmonics"][:, 0]
        products = tables["angular_basis"][:, 0, :, None] * harmonics[:, None]
        return (
            radial.sum(both_ways(tables["radial"])),
            angular.sum(both_ways(products, parity_of(harmonics))),
        )

    def forces_and_virials(self, radial: Tensor, angular: Tensor) -> tuple[Tensor, Tensor]:
        """J^T: forces (N, 3) eV/Å and virials (B, 6) eV, xx yy zz xy yz zx, from G_R (R, K_R) and
        G_A (R, K_A, L)."""
        tables, batch = self.tables, self.batch
        sums = sums_of_atoms(
            radial.contiguous(), angular.contiguous(),
            tables["radial_slope"], tables["angular_basis"], tables["harmonics"],
            self.unit, self.vectors, batch.angular, batch.first_row, batch.second_row,
            batch.radial_order, batch.angular_order,
            batch.row_start, batch.radial_start, batch.angular_start,
        )  # fmt: skip
        return sums[:, :3], self.frames.sum(sums[:, 3:])

    def of_pair_forces(self, radial: Tensor, angular: Tensor) -> tuple[Tensor, Tensor]:
        """The same from dU/dr_ij, eV/Å: of each pair (H, 3) and of each angular pair (Q, 3), whose
        sum is the whole."""
        batch = self.batch
        ends = torch.stack([batch.center, batch.neighbor], dim=1)
        sums = self._of_atoms(batch.radial_start, ends, batch.radial_order, 64).sum(
            pulls(radial, self.vectors)
        )
        ends = ends.index_select(0, batch.angular)
        near = self._of_atoms(batch.angular_start, ends, batch.angular_order, 16)
        sums = sums + near.sum(pulls(angular, self.vectors.index_select(0, batch.angular)))
        return sums[:, :3], self.frames.sum(sums[:, 3:])

    def _of_atoms(self, row_starts: Tensor, ends: Tensor, order: Tensor, typical: int) -> Segments:
        """Directed pairs of each atom, where rows start at ``row_starts`` and pairs end at ``ends``."""
        start = row_starts.index_select(0, self.batch.row_start)
        return Segments(start, ends.flatten(), order, typical)

    def change(self, forces: Tensor, virials: Tensor | None) -> Tensor:
        """v of each pair and its part along the pair (H, 4), of dL/dF (N, 3), dL/dW (B, 6) or None."""
        batch = self.batch
        change = forces.index_select(0, batch.center) - forces.index_select(0, batch.neighbor)
        tangent = list(change.unbind(1))
        if virials is not None:
            of_frame = virials.index_select(0, batch.half_frame)
            for k, (row, column) in enumerate(zip(VIRIAL_ROWS, VIRIAL_COLUMNS)):
                tangent[column] = tangent[column] - self.vectors[:, row] * of_frame[:, k]
        return torch.stack([*tangent, dot(tangent, self.unit.unbind(1))], dim=1)

    def tangent_densities(self, forces: Tensor, virials: Tensor | None) -> tuple[Tensor, Tensor]:
        """J v: (R, K_R) and (R, K_A, L), of dL/dF (N, 3) and dL/dW (B, 6) or None. Adjoint of J^T."""
        tables, batch = self.tables, self.batch
        return row_sums_of_changes(
            self.change(forces, virials),
            tables["radial_slope"], tables["angular_basis"], tables["harmonics"], batch.angular,
            batch.radial_order, batch.angular_order, batch.radial_start, batch.angular_start,
        )  # fmt: skip
