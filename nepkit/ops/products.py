"""The products of rows with the coefficients of their pair type, as operators.

Plain torch, the definition, and Triton. ``group`` (R,) is the place of a row's pair type among
those that have coefficients (G, n, K); a row where it is negative has none and counts nowhere.
"""

from __future__ import annotations

import torch
from torch import Tensor

from .operator import operator
from .policy import kernels_on
from .segment import segment_sum

# Rows of one pair type whose part of the gradient is summed in one go.
ROW_TILE = 16


@operator(
    "(Tensor radial, Tensor angular, Tensor radial_coefficients,"
    " Tensor angular_coefficients, Tensor group, Tensor row_start, Tensor? place=None)"
    " -> (Tensor, Tensor)"
)
def contracted_rows(
    radial, angular, radial_coefficients, angular_coefficients, group, row_start, place=None
):
    """s_R (N, n_R) and s_A (N, n_A, L): sums over an atom's rows and k of c[g, n, k] a[row, k, l].

    From a_R (R, K_R) and a_A (R, K_A, L), or tables of them and the ``place`` (R,) of each row.
    """
    if kernels_on(radial.device):
        from .triton.contraction import launch

        return launch(
            radial, angular, radial_coefficients, angular_coefficients, group, row_start, place
        )
    if place is not None:
        radial, angular = radial.index_select(0, place), angular.index_select(0, place)
    near = (_of_rows(radial_coefficients, group) @ radial[:, :, None]).squeeze(2)
    around = _of_rows(angular_coefficients, group) @ angular
    sums = segment_sum(around.flatten(1), None, row_start, 4)
    return segment_sum(near, None, row_start, 4), sums.unflatten(1, around.shape[1:])


@contracted_rows.register_fake
def _(radial, angular, radial_coefficients, angular_coefficients, group, row_start, place=None):
    n_atoms, n_radial = row_start.shape[0] - 1, radial_coefficients.shape[1]
    shape = (n_atoms, angular_coefficients.shape[1], angular.shape[2])
    return radial.new_empty(n_atoms, n_radial), angular.new_empty(shape)


@operator(
    "(Tensor q_slope, Tensor slope, Tensor radial_coefficients,"
    " Tensor angular_coefficients, Tensor group, Tensor center) -> (Tensor, Tensor)"
)
def expanded_rows(q_slope, slope, radial_coefficients, angular_coefficients, group, center):
    """G_R (R, K_R) and G_A (R, K_A, L): sum over n of c[g, n, k] dU/ds[center, n, l].

    From dU/dq (N, D), whose first columns are the radial ones, and dU/ds_A (N, n_A, L). The
    transpose of ``contracted_rows``.
    """
    if kernels_on(slope.device):
        from .triton.expansion import launch

        return launch(q_slope, slope, radial_coefficients, angular_coefficients, group, center)
    near = q_slope[:, : radial_coefficients.shape[1], None].index_select(0, center)
    radial = _of_rows(radial_coefficients, group).transpose(1, 2) @ near
    around = slope.index_select(0, center)
    return radial.squeeze(2), _of_rows(angular_coefficients, group).transpose(1, 2) @ around


@expanded_rows.register_fake
def _(q_slope, slope, radial_coefficients, angular_coefficients, group, center):
    n_rows = center.shape[0]
    angular = slope.new_empty(n_rows, angular_coefficients.shape[2], slope.shape[2])
    return slope.new_empty(n_rows, radial_coefficients.shape[2]), angular


@operator(
    "(Tensor q_bar, Tensor s_bar, Tensor q_slope, Tensor slope, Tensor radial,"
    " Tensor angular, Tensor radial_tangent, Tensor angular_tangent, Tensor center, Tensor member,"
    " int n_radial, Tensor? place=None) -> Tensor"
)
def coefficient_products(
    q_bar, s_bar, q_slope, slope, radial, angular, radial_tangent, angular_tangent, center, member,
    n_radial, place=None,
):  # fmt: skip
    """Gradient to the coefficients from each tile of ROW_TILE rows of one pair type.

    (tiles, n_R K_R + n_A K_A): sum over the tile's rows and l of s_bar[n, l] a[k, l] +
    dU/ds[n, l] a'[k, l]. The first ``n_radial`` columns of ``q_bar`` and ``q_slope`` (N, D) are the
    radial ones. ``member`` (tiles * ROW_TILE,) are the rows in slots, R where a slot is empty.
    ``place`` (R,): where a row's a lies in its table.
    """
    if kernels_on(s_bar.device):
        from .triton.coefficients import launch

        return launch(
            q_bar, s_bar, q_slope, slope, radial, angular, radial_tangent, angular_tangent,
            center, member, n_radial, ROW_TILE, place,
        )  # fmt: skip
    if place is not None:
        radial, angular = radial.index_select(0, place), angular.index_select(0, place)
    near = [
        q[:, :n_radial].index_select(0, center)[:, :, None] * a[:, None]
        for q, a in ((q_bar, radial), (q_slope, radial_tangent))
    ]
    around = [
        torch.bmm(s.index_select(0, center), a.transpose(1, 2))
        for s, a in ((s_bar, angular), (slope, angular_tangent))
    ]
    rows = torch.cat([(kind[0] + kind[1]).flatten(1) for kind in (near, around)], dim=1)
    rows = torch.cat([rows, rows.new_zeros(1, rows.shape[1])])
    return rows.index_select(0, member).unflatten(0, (-1, ROW_TILE)).sum(1)


@coefficient_products.register_fake
def _(q_bar, s_bar, q_slope, slope, radial, angular, radial_tangent, angular_tangent, center, member,
      n_radial, place=None):  # fmt: skip
    width = n_radial * radial.shape[1] + s_bar.shape[1] * angular.shape[1]
    return s_bar.new_empty(member.shape[0] // ROW_TILE, width)


def _of_rows(coefficients: Tensor, group: Tensor) -> Tensor:
    """c of each row (R, n, K), zeros where there are none."""
    found = coefficients.index_select(0, group.clamp(min=0))
    return found.masked_fill((group < 0)[:, None, None], 0.0)
