"""The contraction of rows with the coefficients of their pair type, in three equal forms.

s[i, n, l] = sum over rows r of atom i, sum over k of c[p(r), n, k] a[r, k, l]

loop: one product a pair type. bmm: bring c to rows, then torch.bmm. mulsum: bring c to rows, then
broadcast, multiply and sum, which a compiler fuses.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ..ops.groups import Groups
from ..ops.policy import Contract
from ..ops.segment import Segments


class Contraction:
    """The contraction of one batch: rows (R,) with their ``groups`` by pair type.

    The last group is of rows that have no coefficients. ``atoms`` ties rows to atoms. Radial and angular coefficients go together: lists of two.
    """

    def __init__(self, groups: Groups, atoms: Segments, how: Contract):
        self.groups, self.atoms, self.form = groups, atoms, how.form
        self.one_hot = how.one_hot and how.form != "loop"

    def gather(self, coefficients: list[Tensor]) -> list[Tensor | None]:
        """c (G, n, K) of each row, (R, n, K); None in the loop form."""
        if self.form == "loop":
            return [None] * len(coefficients)
        flat = torch.cat([c.flatten(1) for c in coefficients], dim=1)
        flat = torch.cat([flat, flat.new_zeros(1, flat.shape[1])])  # of rows without coefficients
        if self.one_hot:
            rows = self.groups.one_hot(flat.dtype) @ flat
        elif flat.requires_grad:
            rows = self.groups.segments.spread(flat)
        else:
            rows = flat.index_select(0, self.groups.group)
        return _unflattened(rows, coefficients)

    def sums(self, coefficients: Tensor, gathered: Tensor | None, densities: Tensor) -> Tensor:
        """s (N, n, L) of a (R, K, L)."""
        if self.form == "loop":
            rows = densities.new_zeros(len(densities), coefficients.shape[1], densities.shape[2])
            for group, members in self._known(coefficients):
                rows[members.long()] = coefficients[group] @ densities[members.long()]
        else:
            rows = self._product(gathered, densities)
        return self.atoms.sum(rows)

    def expand(self, coefficients: Tensor, gathered: Tensor | None, gradient: Tensor) -> Tensor:
        """G (R, K, L) of dU/ds (N, n, L): the transpose of ``sums``."""
        atoms = self.atoms.spread(gradient)
        if self.form == "loop":
            rows = gradient.new_zeros(len(atoms), coefficients.shape[2], gradient.shape[2])
            for group, members in self._known(coefficients):
                rows[members.long()] = coefficients[group].T @ atoms[members.long()]
            return rows
        return self._product(gathered.transpose(1, 2), atoms)

    def coefficient_gradients(self, terms: list[list[tuple[Tensor, Tensor]]]) -> list[Tensor]:
        """(G, n, K) of each kind: the sum over its terms and the rows of a group of
        gradient (N, n, L) times a^T (R, L, K)."""
        rows = []
        for pairs in terms:
            products = [self._product(self.atoms.spread(g), a.transpose(1, 2)) for g, a in pairs]
            rows.append(sum(products[1:], products[0]))
        flat = torch.cat([r.flatten(1) for r in rows], dim=1)
        if self.one_hot:
            flat = self.groups.one_hot(flat.dtype).T @ flat
        else:
            flat = self.groups.segments.sum(flat)
        return _unflattened(flat[:-1], rows)

    def _known(self, coefficients: Tensor):
        """(group, its members) of each group that has coefficients."""
        return ((g, members) for g, members in self.groups.members() if g < len(coefficients))

    def _product(self, left: Tensor, right: Tensor) -> Tensor:
        """(R, A, B) times (R, B, C)."""
        if self.form == "mulsum" or left.shape[2] == 1:
            return (left[:, :, :, None] * right[:, None, :, :]).sum(2)
        return torch.bmm(left, right)


def _unflattened(flat: Tensor, like: list[Tensor]) -> list[Tensor]:
    """flat (A, ...) cut into (A, n, K) of the shapes of ``like`` (..., n, K)."""
    pieces = flat.split([c.shape[1] * c.shape[2] for c in like], dim=1)
    return [piece.unflatten(1, c.shape[1:]) for piece, c in zip(pieces, like)]
