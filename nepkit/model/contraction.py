"""The contraction of rows with the coefficients of their pair type, in three equal forms.

s[i, n, l] = sum over rows r of atom i, sum over k of c[p(r), n, k] a[r, k, l]

loop: one product a pair type. bmm: gather c to rows, then torch.bmm. mulsum: gather c to rows by a
product with a one-hot matrix, then broadcast, multiply and sum, which a compiler fuses.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ..ops.groups import Groups
from ..ops.segment import segment_sum


class Contraction:
    """The contraction of one batch: rows (R,) with their ``groups`` by pair type.

    ``center`` (R,) and ``row_start`` (N + 1,) int32 tie rows to atoms.
    """

    def __init__(self, groups: Groups, center: Tensor, row_start: Tensor, form: str):
        self.groups, self.center, self.row_start, self.form = groups, center, row_start, form

    def gather(self, coefficients: Tensor) -> Tensor | None:
        """c (G, n, K) of each row, (R, n, K); None in the loop form."""
        if self.form == "loop":
            return None
        if self.form == "bmm":
            return coefficients.index_select(0, self.groups.group)
        columns = torch.arange(self.groups.n_groups, device=coefficients.device)
        one_hot = (self.groups.group[:, None] == columns).to(coefficients.dtype)
        return (one_hot @ coefficients.flatten(1)).view(-1, *coefficients.shape[1:])

    def sums(self, coefficients: Tensor, gathered: Tensor | None, densities: Tensor) -> Tensor:
        """s (N, n, L) of a (R, K, L)."""
        if self.form == "loop":
            rows = densities.new_empty(len(densities), coefficients.shape[1], densities.shape[2])
            for group, members in self.groups.members():
                rows[members.long()] = coefficients[group] @ densities[members.long()]
        else:
            rows = self._product(gathered, densities)
        return segment_sum(rows, self.row_start)

    def expand(self, coefficients: Tensor, gathered: Tensor | None, gradient: Tensor) -> Tensor:
        """G (R, K, L) of dU/ds (N, n, L): the transpose of ``sums``."""
        atoms = gradient.index_select(0, self.center)
        if self.form == "loop":
            rows = gradient.new_empty(len(atoms), coefficients.shape[2], gradient.shape[2])
            for group, members in self.groups.members():
                rows[members.long()] = coefficients[group].T @ atoms[members.long()]
            return rows
        return self._product(gathered.transpose(1, 2), atoms)

    def coefficient_gradient(self, gradients: list[Tensor], densities: list[Tensor]) -> Tensor:
        """(G, n, K): sum over terms and rows of a group of gradient (N, n, L) times a^T (R, L, K)."""
        rows = None
        for gradient, density in zip(gradients, densities):
            atoms, turned = gradient.index_select(0, self.center), density.transpose(1, 2)
            if self.form == "mulsum" or atoms.shape[2] == 1:
                product = self._product(atoms, turned)
                rows = product if rows is None else rows + product
            else:
                rows = atoms @ turned if rows is None else rows.baddbmm_(atoms, turned)
        return self.groups.reduce(rows)

    def _product(self, left: Tensor, right: Tensor) -> Tensor:
        """(R, A, B) times (R, B, C)."""
        if self.form == "mulsum" or left.shape[2] == 1:
            return (left[:, :, :, None] * right[:, None, :, :]).sum(2)
        return torch.bmm(left, right)
