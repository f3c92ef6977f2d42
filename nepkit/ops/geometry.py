"""The linear maps between an atom's densities and the geometry of its pairs.

Densities a hold no trainable number. With G = dU/da, the force on every pair is a linear function
of G, and with it forces and virials (J^T G). With the derivatives of a loss to forces and virials,
the tangent densities are the adjoint (J v). A training step reads pairs nowhere else.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ..config import ModelSettings
from ..data.batch import Batch
from .pairs import (
    both_ways,
    changes_of_pairs,
    parity_of,
    pulls,
    row_sums_of_changes,
    sums_of_atoms,
)
from .segment import Segments
from .tables import kept, with_tables


class Geometry:
    """Basis functions of the pairs of a batch and the sums over pairs built on them.

    Letters as in Batch; K_R, K_A radial functions, L angular components. A pair is seen from both
    of its ends: f_k is the same, Y_l(-r) = (-1)^l Y_l(r).
    """

    def __init__(self, batch: Batch, settings: ModelSettings, dtype: torch.dtype):
        self.batch = batch
        self.tables = with_tables(batch, settings, dtype).tables
        # Where the batch's rows and pairs lie in the tables; None: in their own order.
        index = (batch.row_index, batch.half_index, batch.angular_index)
        self.row_place, *self.places = index if kept(batch) else (None, None, None)
        self.frames = Segments(batch.atom_start, batch.atom_frame, typical=128)

    def densities(self) -> tuple[Tensor, Tensor]:
        """a_R (R, K_R) = sum_j f_k(r_ij) and a_A (R, K_A, L) = sum_j f_k(r_ij) Y(r_ij)."""
        tables, batch = self.tables, self.batch
        if kept(batch):
            names = ("radial_density", "angular_density")
            return tuple(tables[name].index_select(0, self.row_place) for name in names)
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

    def placed_densities(self) -> tuple[Tensor | None, tuple[Tensor, Tensor]]:
        """Tables of both densities and the place of each row (R,) in them, None for its own order."""
        if self.row_place is None:
            return None, self.densities()
        return self.row_place, (self.tables["radial_density"], self.tables["angular_density"])

    def sums_of_atoms(self, radial: Tensor, angular: Tensor) -> Tensor:
        """J^T: force (3), eV/Å, and half of the pairs' virials (6), eV, xx yy zz xy yz zx, of each
        atom (N, 9), from G_R (R, K_R) and G_A (R, K_A, L)."""
        tables, batch = self.tables, self.batch
        return sums_of_atoms(
            radial.contiguous(), angular.contiguous(),
            tables["radial_slope"], tables["angular_basis"], tables["harmonics"],
            tables["unit"], tables["vectors"], batch.angular, batch.first_row, batch.second_row,
            batch.radial_order, batch.angular_order,
            batch.row_start, batch.radial_start, batch.angular_start, *self.places,
        )  # fmt: skip

    def forces_and_virials(self, radial: Tensor, angular: Tensor) -> tuple[Tensor, Tensor]:
        """The same as forces (N, 3) and virials of the frames (B, 6)."""
        sums = self.sums_of_atoms(radial, angular)
        return sums[:, :3], self.frames.sum(sums[:, 3:])

    def of_pair_forces(self, radial: Tensor, angular: Tensor) -> tuple[Tensor, Tensor]:
        """The same from dU/dr_ij, eV/Å: of each pair (H, 3) and of each angular pair (Q, 3), whose
        sum is the whole. For tables that are not kept."""
        batch, vectors = self.batch, self.tables["vectors"]
        ends = torch.stack([batch.center, batch.neighbor], dim=1)
        far = self._of_atoms(batch.radial_start, ends, batch.radial_order, 64)
        sums = far.sum(pulls(radial, vectors))
        ends = ends.index_select(0, batch.angular)
        near = self._of_atoms(batch.angular_start, ends, batch.angular_order, 16)
        sums = sums + near.sum(pulls(angular, vectors.index_select(0, batch.angular)))
        return sums[:, :3], self.frames.sum(sums[:, 3:])

    def _of_atoms(self, row_starts: Tensor, ends: Tensor, order: Tensor, typical: int) -> Segments:
        """Directed pairs of each atom, where rows start at ``row_starts`` and pairs end at ``ends``."""
        start = row_starts.index_select(0, self.batch.row_start)
        return Segments(start, ends.flatten(), order, typical)

    def change(self, forces: Tensor, virials: Tensor | None) -> Tensor:
        """v of each pair and its part along the pair (H, 4), of dL/dF (N, 3), dL/dW (B, 6) or None."""
        batch = self.batch
        if virials is None:
            virials = forces.new_zeros(len(batch), 6)
        return changes_of_pairs(
            forces.contiguous(), virials.contiguous(), batch.center, batch.neighbor,
            batch.half_frame, self.tables["vectors"], self.tables["unit"], self.places[0],
        )  # fmt: skip

    def tangent_densities(self, forces: Tensor, virials: Tensor | None) -> tuple[Tensor, Tensor]:
        """J v: (R, K_R) and (R, K_A, L), of dL/dF (N, 3) and dL/dW (B, 6) or None. Adjoint of J^T."""
        tables, batch = self.tables, self.batch
        return row_sums_of_changes(
            self.change(forces, virials),
            tables["radial_slope"], tables["angular_basis"], tables["harmonics"], batch.angular,
            batch.radial_order, batch.angular_order, batch.radial_start, batch.angular_start,
            *self.places,
        )  # fmt: skip
