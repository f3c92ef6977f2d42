"""The linear maps between an atom's densities and the geometry of its pairs: the definition.

Densities a hold no trainable number. With G = dU/da, the force on every pair is a linear function
of G, and with it forces and virials (J^T G). With the derivatives of a loss to forces and virials,
the tangent densities are the adjoint (J v). A training step reads pairs nowhere else.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ..config import ModelSettings
from ..data.batch import VIRIAL_COLUMNS, VIRIAL_ROWS, Batch, Structures, starts
from .basis import radial_functions
from .harmonics import component_count, degrees, solid_harmonics
from .segment import gathered_segment_sum, segment_sum

# Angular directed pairs of one row are worked on in tiles of so many, as small dense products.
TILE = 4


class Geometry:
    """Basis functions of the pairs of a batch and the sums over pairs built on them.

    Letters as in Batch; K_R, K_A radial functions, L angular components. A pair is seen from both
    of its ends: f_k is the same, Y_l(-r) = (-1)^l Y_l(r).
    """

    def __init__(self, batch: Batch, settings: ModelSettings, dtype: torch.dtype):
        self.batch = batch
        tables = pair_tables(batch, settings, dtype)
        self.vectors = tables["vectors"]  # (H, 3)
        self.unit = tables["unit"]  # (H, 3)
        self.radial_slope = tables["radial_slope"]  # (H, K_R)
        self.harmonics = tables["harmonics"][:, 0]  # (Q, L)
        self.harmonics_gradient = tables["harmonics"][:, 1:]  # (Q, 3, L)
        self.radial = tables["radial"]  # (H, K_R)
        basis = tables["angular_basis"]  # (Q, 2, K_A): f and f'
        self.parity = basis.new_tensor([(-1.0) ** l for l in degrees(settings.l_max)])
        self._place_directions()
        self._place_tiles()
        basis = torch.cat([basis, basis.new_zeros(1, *basis.shape[1:])])
        slots = basis.index_select(0, self.slot_pair)
        self.slot_basis = slots.view(-1, 2 * TILE, slots.shape[2])  # (M, 2 TILE, K_A)

    def _place_directions(self):
        """The directed pairs of each atom: their half pair, and their sign in its force."""
        batch = self.batch
        n_half = len(batch.center)
        pairs = torch.arange(n_half, dtype=torch.int32, device=batch.center.device)
        both = torch.cat([batch.first, batch.second]).long()
        self.half = torch.empty(2 * n_half, dtype=torch.int32, device=pairs.device)
        self.half[both] = pairs.repeat(2)
        self.sign = self.unit.new_ones(2 * n_half)
        self.sign[batch.second.long()] = -1.0
        self.directed_start = batch.radial_start.index_select(0, batch.row_start)

    def _place_tiles(self):
        """Slots of the angular directed pairs: M tiles of TILE slots, each tile in one row."""
        batch = self.batch
        n_angular = len(batch.angular)
        tiles = (batch.angular_start.diff() + TILE - 1) // TILE
        self.tile_start = starts(tiles)
        rows = torch.arange(len(tiles), dtype=torch.int32, device=tiles.device)
        self.tile_row = torch.repeat_interleave(rows, tiles)
        skipped = TILE * self.tile_start[:-1] - batch.angular_start[:-1]
        first_row = batch.first_row.index_select(0, batch.angular)
        second_row = batch.second_row.index_select(0, batch.angular)
        self.first_slot = batch.angular_first + skipped.index_select(0, first_row)
        self.second_slot = batch.angular_second + skipped.index_select(0, second_row)
        # Which direction sits in a slot: h for i -> j, Q + h for j -> i, 2 Q for none.
        n_slots = TILE * len(self.tile_row)
        self.slot_direction = torch.full(
            (n_slots,), 2 * n_angular, dtype=torch.int32, device=tiles.device
        )
        both = torch.cat([self.first_slot, self.second_slot]).long()
        self.slot_direction[both] = torch.arange(
            2 * n_angular, dtype=torch.int32, device=tiles.device
        )
        pair = torch.where(
            self.slot_direction < n_angular, self.slot_direction, self.slot_direction - n_angular
        )
        self.slot_pair = pair.clamp_(max=n_angular)

    def densities(self) -> tuple[Tensor, Tensor]:
        """a_R (R, K_R) = sum_j f_k(r_ij) and a_A (R, K_A, L) = sum_j f_k(r_ij) Y(r_ij)."""
        radial = gathered_segment_sum(self.radial, self.half, self.batch.radial_start)
        harmonics = self._seen_from_slots(self.harmonics)  # (S, L)
        tiles = torch.bmm(
            self.slot_basis[:, 0::2].transpose(1, 2),
            harmonics.view(-1, TILE, harmonics.shape[1]),
        )
        return radial, segment_sum(tiles, self.tile_start)

    def pair_forces(self, radial: Tensor, angular: Tensor) -> Tensor:
        """dU/dr_ij (H, 3) eV/Å of every pair, both ends' energies, from G_R (R, K_R), G_A (R, K_A, L)."""
        batch = self.batch
        both_ends = radial.index_select(0, batch.first_row)
        both_ends += radial.index_select(0, batch.second_row)
        pull = (both_ends * self.radial_slope).sum(1)
        return (pull[:, None] * self.unit).index_add_(
            0, batch.angular, self._angular_forces(angular)
        )

    def forces(self, pair_forces: Tensor) -> Tensor:
        """Force on each atom (N, 3) eV/Å. Pair forces, then this, is J^T for forces."""
        return gathered_segment_sum(pair_forces, self.half, self.directed_start, self.sign)

    def virials(self, pair_forces: Tensor) -> Tensor:
        """Virial of each frame (B, 6) eV, xx yy zz xy yz zx. Pair forces, then this, is J^T for virials."""
        rows, columns = list(VIRIAL_ROWS), list(VIRIAL_COLUMNS)
        products = self.vectors[:, rows] * pair_forces[:, columns]
        return -segment_sum(products, self.batch.half_start)

    def _angular_forces(self, gradient: Tensor) -> Tensor:
        """Force (Q, 3) of the angular pairs: G_A f . grad Y + (G_A f' . Y) r/|r|, both ends."""
        tiles = gradient.index_select(0, self.tile_row)
        slots = torch.bmm(self.slot_basis, tiles).view(-1, 2, gradient.shape[2])
        second = slots.index_select(0, self.second_slot) * self.parity
        along, outward = (slots.index_select(0, self.first_slot) + second).unbind(1)
        pull = (outward * self.harmonics).sum(1, keepdim=True)
        unit = self.unit.index_select(0, self.batch.angular)
        return torch.bmm(self.harmonics_gradient, along[:, :, None]).squeeze(2) + pull * unit

    def tangent_densities(self, forces: Tensor, virials: Tensor | None) -> tuple[Tensor, Tensor]:
        """J v: (R, K_R) and (R, K_A, L), of dL/dF (N, 3) and dL/dW (B, 6) or None. Adjoint of J^T."""
        batch = self.batch
        tangent = forces.index_select(0, batch.center) - forces.index_select(0, batch.neighbor)
        if virials is not None:
            pulls = virials.index_select(0, batch.half_frame)
            for k, (row, column) in enumerate(zip(VIRIAL_ROWS, VIRIAL_COLUMNS)):
                tangent[:, column].addcmul_(self.vectors[:, row], pulls[:, k], value=-1.0)
        stretch = (tangent * self.unit).sum(1)  # (H,)
        radial = gathered_segment_sum(
            self.radial_slope, self.half, batch.radial_start, stretch.index_select(0, self.half)
        )
        tangent = tangent.index_select(0, batch.angular)
        stretch = stretch.index_select(0, batch.angular)
        turned = torch.bmm(tangent[:, None, :], self.harmonics_gradient).squeeze(1)
        both = torch.stack([turned, stretch[:, None] * self.harmonics], dim=1)  # (Q, 2, L)
        slots = self._seen_from_slots(both)
        tiles = torch.bmm(self.slot_basis.transpose(1, 2), slots.view(-1, 2 * TILE, slots.shape[2]))
        return radial, segment_sum(tiles, self.tile_start)

    def _seen_from_slots(self, values: Tensor) -> Tensor:
        """values (Q, ..., L) of i -> j, for the direction that sits in each slot (S, ..., L)."""
        nothing = values.new_zeros(1, *values.shape[1:])
        directions = torch.cat([values, values * self.parity, nothing])
        return directions.index_select(0, self.slot_direction)


def pair_tables(batch: Batch, settings: ModelSettings, dtype: torch.dtype) -> dict[str, Tensor]:
    """What the maps need of each pair: directions, radial functions, harmonics, and derivatives.

    vectors and unit (H, 3), radial and radial_slope (H, K_R), angular_basis (Q, 2, K_A) with f and
    f', harmonics (Q, 4, L) with Y and its gradient.

    Computed in float64, as the recursions lose digits near the ends, then rounded once to ``dtype``.
    """
    vectors, angular = batch.vectors, batch.angular
    distance = vectors.norm(dim=1)
    cutoff = _cutoffs(settings.radial_cutoff, batch)
    radial, radial_slope = radial_functions(distance, cutoff, settings.basis_size[0] + 1)
    cutoff = _cutoffs(settings.angular_cutoff, batch)
    if isinstance(cutoff, Tensor):
        cutoff = cutoff.index_select(0, angular)
    angular_distance = distance.index_select(0, angular)
    basis = radial_functions(angular_distance, cutoff, settings.basis_size[1] + 1)
    harmonics, gradient = solid_harmonics(
        vectors.index_select(0, angular), angular_distance, settings.l_max
    )
    tables = {
        "vectors": vectors,
        "unit": vectors / distance[:, None],
        "radial": radial,
        "radial_slope": radial_slope,
        "angular_basis": torch.stack(basis, dim=1),
        "harmonics": torch.cat([harmonics[:, None], gradient], dim=1),
    }
    return {name: values.to(dtype) for name, values in tables.items()}


def all_tables(
    structures: Structures, settings: ModelSettings, chunk: int = 64
) -> dict[str, Tensor]:
    """``pair_tables`` of all frames, computed a chunk of frames at a time."""
    parts = []
    for start in range(0, len(structures), chunk):
        frames = torch.arange(start, min(start + chunk, len(structures)), device=structures.device)
        parts.append(pair_tables(structures.batch(frames), settings, structures.dtype))
    return {name: torch.cat([part[name] for part in parts]) for name in parts[0]}


def table_bytes(structures: Structures, settings: ModelSettings) -> int:
    """Memory that ``all_tables`` and the densities of all frames take."""
    n_radial, n_angular = (size + 1 for size in settings.basis_size)
    n_components = component_count(settings.l_max)
    halves, angulars, rows = (
        int(offsets[-1]) for offsets in (structures.halves, structures.angulars, structures.rows)
    )
    numbers = halves * (6 + 2 * n_radial) + angulars * (2 * n_angular + 4 * n_components)
    numbers += rows * (n_radial + n_angular * n_components)
    return numbers * structures.dtype.itemsize


def _cutoffs(per_element: tuple[float, ...], batch: Batch) -> Tensor | float:
    """Cutoff of each pair (H,) by the mean of its elements', or one number where all are equal."""
    if len(set(per_element)) == 1:
        return per_element[0]
    values = batch.vectors.new_tensor(per_element).index_select(0, batch.types)
    ends = values.index_select(0, batch.center) + values.index_select(0, batch.neighbor)
    return 0.5 * ends
