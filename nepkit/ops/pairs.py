"""The sums over pairs, J^T and J, as operators: plain torch, the definition, and Triton.

Letters and orders as in Batch; a pair is seen from both of its ends, directed pair 2 h + side.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ..data.batch import VIRIAL_COLUMNS, VIRIAL_ROWS
from .operator import operator
from .policy import kernels_on
from .segment import segment_sum


@operator(
    "(Tensor radial, Tensor angular, Tensor radial_slope, Tensor basis, Tensor harmonics,"
    " Tensor unit, Tensor vectors, Tensor half, Tensor first_row, Tensor second_row,"
    " Tensor radial_order, Tensor angular_order, Tensor row_start, Tensor radial_start,"
    " Tensor angular_start, Tensor? half_place=None, Tensor? angular_place=None) -> Tensor"
)
def sums_of_atoms(
    radial, angular, radial_slope, basis, harmonics, unit, vectors, half, first_row, second_row,
    radial_order, angular_order, row_start, radial_start, angular_start,
    half_place=None, angular_place=None,
):  # fmt: skip
    """J^T: force (3), eV/Å, and half of the virials of the pairs (6), eV, of each atom (N, 9).

    From G_R (R, K_R) and G_A (R, K_A, L). Per pair dU/dr_ij is
    sum_k G_R f_k' r/|r| + sum_kl G_A (f_k grad Y_l + f_k' Y_l r/|r|), summed over both ends.
    ``half_place`` (H,), ``angular_place`` (Q,): where a pair's constants lie in their tables.
    """
    if kernels_on(radial.device):
        from .triton.pair_forces import launch

        return launch(
            radial, angular, radial_slope, basis, harmonics, unit, vectors, half,
            first_row, second_row, radial_order, angular_order, row_start, radial_start, angular_start,
            half_place, angular_place,
        )  # fmt: skip
    radial_slope, unit, vectors = (_placed(t, half_place) for t in (radial_slope, unit, vectors))
    basis, harmonics = (_placed(t, angular_place) for t in (basis, harmonics))
    ends = radial.index_select(0, first_row) + radial.index_select(0, second_row)
    pull = (ends * radial_slope).sum(1, keepdim=True)
    first = angular.index_select(0, first_row.index_select(0, half))
    second = angular.index_select(0, second_row.index_select(0, half))
    y, gradient = harmonics[:, 0], harmonics[:, 1:]
    both = first + second * parity_of(y)  # (Q, K_A, L)
    along, outward = ((both * basis[:, d, :, None]).sum(1) for d in (0, 1))
    turned = (gradient * along[:, None]).sum(2)
    stretch = (outward * y).sum(1, keepdim=True)
    outer = turned + stretch * unit.index_select(0, half)
    around, near = (s.index_select(0, row_start) for s in (radial_start, angular_start))
    sums = segment_sum(pulls(pull * unit, vectors), radial_order, around, 64)
    return sums + segment_sum(pulls(outer, vectors.index_select(0, half)), angular_order, near, 16)


@sums_of_atoms.register_fake
def _(radial, angular, radial_slope, basis, harmonics, unit, vectors, half, first_row, second_row,
      radial_order, angular_order, row_start, radial_start, angular_start,
      half_place=None, angular_place=None):  # fmt: skip
    return radial.new_empty(row_start.shape[0] - 1, 9)


@operator(
    "(Tensor forces, Tensor virials, Tensor center, Tensor neighbor, Tensor frame,"
    " Tensor vectors, Tensor unit, Tensor? place=None) -> Tensor"
)
def changes_of_pairs(forces, virials, center, neighbor, frame, vectors, unit, place=None):
    """v = F_i - F_j - W^T r and v . r/|r| of each pair (H, 4), of dL/dF (N, 3) and dL/dW (B, 6)."""
    if kernels_on(forces.device):
        from .triton.changes import launch

        return launch(forces, virials, center, neighbor, frame, vectors, unit, place)
    vectors, unit = _placed(vectors, place), _placed(unit, place)
    tangent = list((forces.index_select(0, center) - forces.index_select(0, neighbor)).unbind(1))
    of_frame = virials.index_select(0, frame)
    for k, (row, column) in enumerate(zip(VIRIAL_ROWS, VIRIAL_COLUMNS)):
        tangent[column] = tangent[column] - vectors[:, row] * of_frame[:, k]
    return torch.stack([*tangent, dot(tangent, unit.unbind(1))], dim=1)


@changes_of_pairs.register_fake
def _(forces, virials, center, neighbor, frame, vectors, unit, place=None):
    return forces.new_empty(center.shape[0], 4)


@operator(
    "(Tensor change, Tensor radial_slope, Tensor basis, Tensor harmonics, Tensor half,"
    " Tensor radial_order, Tensor angular_order, Tensor radial_start, Tensor angular_start,"
    " Tensor? half_place=None, Tensor? angular_place=None) -> (Tensor, Tensor)"
)
def row_sums_of_changes(
    change, radial_slope, basis, harmonics, half,
    radial_order, angular_order, radial_start, angular_start, half_place=None, angular_place=None,
):  # fmt: skip
    """J v: (R, K_R) and (R, K_A, L) of ``change`` (H, 4), v and its part along the pair.

    a_R' = sum_j f_k' (v . r/|r|) and a_A' = sum_j f_k (v . grad Y_l) + f_k' (v . r/|r|) Y_l.
    """
    if kernels_on(change.device):
        from .triton.tangents import launch

        return launch(
            change, radial_slope, basis, harmonics, half,
            radial_order, angular_order, radial_start, angular_start, half_place, angular_place,
        )  # fmt: skip
    radial_slope = _placed(radial_slope, half_place)
    basis, harmonics = (_placed(t, angular_place) for t in (basis, harmonics))
    y, gradient = harmonics[:, 0], harmonics[:, 1:]
    radial = both_ways(radial_slope * change[:, 3:])
    *tangent, stretch = change.index_select(0, half)[:, :, None].unbind(1)
    products = basis[:, 0, :, None] * dot(tangent, gradient.unbind(1))[:, None]
    products = products + (stretch * basis[:, 1])[:, :, None] * y[:, None]
    angular = both_ways(products, parity_of(y)).flatten(1)
    angular = segment_sum(angular, angular_order, angular_start, 4)
    return segment_sum(radial, radial_order, radial_start, 32), angular.unflatten(
        1, products.shape[1:]
    )


@row_sums_of_changes.register_fake
def _(change, radial_slope, basis, harmonics, half,
      radial_order, angular_order, radial_start, angular_start,
      half_place=None, angular_place=None):  # fmt: skip
    n_rows = radial_start.shape[0] - 1
    angular = change.new_empty(n_rows, basis.shape[2], harmonics.shape[2])
    return change.new_empty(n_rows, radial_slope.shape[1]), angular


def _placed(table: Tensor, place: Tensor | None) -> Tensor:
    return table if place is None else table.index_select(0, place)


def both_ways(values: Tensor, parity: Tensor | None = None) -> Tensor:
    """values (H, ..., L) of i -> j, and of j -> i after it: (2 H, ..., L)."""
    reverse = values if parity is None else values * parity
    return torch.stack([values, reverse], dim=1).flatten(0, 1)


def parity_of(harmonics: Tensor) -> Tensor:
    """(-1)^l of each component (L,) of ``harmonics`` (..., L): l = floor(sqrt(component + 1))."""
    component = torch.arange(harmonics.shape[-1], dtype=harmonics.dtype, device=harmonics.device)
    return 1.0 - 2.0 * ((component + 1.0).sqrt().floor() % 2)


def pulls(pair_forces: Tensor, vectors: Tensor) -> Tensor:
    """Force (3) and half the virial (6) that a pair (H, 3) gives to each of its ends (2 H, 9)."""
    ends, pull, apart = [], pair_forces.unbind(1), vectors.unbind(1)
    for sign in (1.0, -1.0):
        columns = [sign * component for component in pull]
        for row, column in zip(VIRIAL_ROWS, VIRIAL_COLUMNS):
            columns.append(-0.5 * apart[row] * pull[column])
        ends.append(torch.stack(columns, dim=1))
    return torch.stack(ends, dim=1).flatten(0, 1)


def dot(left: list[Tensor], right: list[Tensor]) -> Tensor:
    """Product of vectors given by component."""
    return left[0] * right[0] + left[1] * right[1] + left[2] * right[2]
