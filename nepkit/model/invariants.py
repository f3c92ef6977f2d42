"""Rotation invariants of the angular sums, and their first two derivatives.

q_l = sum_m w_lm s_lm^2 and the higher ones of GPUMD: q222, q112, q123, q233, q134 are cubic in s,
and q1111 is (7/15) q_1^2. Fan et al., J. Chem. Phys. 157, 114801 (2022).
"""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor

from ..ops.harmonics import component_count, three_body_weights
from .invariant_table import MONOMIALS

QUARTIC_FACTOR = 7.0 / 15.0


class Invariants:
    """Maps s (N, n, L) to q (N, I * n), blocks of n: q_1 ... q_lmax, then the higher ones."""

    def __init__(self, l_max: int, higher: tuple[str, ...], like: Tensor):
        self.l_max, self.higher = l_max, higher
        n_components = component_count(l_max)
        weights = like.new_tensor(three_body_weights(l_max))
        first = [l * l - 1 for l in range(1, l_max + 2)]
        self.squares = like.new_zeros(n_components, l_max)  # w of each component in its q_l
        for l in range(l_max):
            block = slice(first[l], first[l + 1])
            self.squares[block, l] = weights[block]
        self.cubic = {
            name: _CubicForm(name, n_components, like) for name in higher if name != "q1111"
        }

    def values(self, s: Tensor) -> Tensor:
        """q (N, I * n)."""
        three_body = s.square() @ self.squares  # (N, n, l_max)
        blocks = [three_body]
        for name in self.higher:
            if name == "q1111":
                blocks.append(QUARTIC_FACTOR * three_body[:, :, :1].square())
            else:
                blocks.append((s * self.cubic[name].gradient(s)).sum(2, keepdim=True) / 3.0)
        return torch.cat(blocks, dim=2).transpose(1, 2).flatten(1)

    def pull(self, s: Tensor, q_bar: Tensor) -> Tensor:
        """Gradient to s (N, n, L) of sum q_bar q, with q_bar (N, I * n)."""
        weights, higher = self._split(q_bar, s)
        weights = weights.clone()
        result = None
        for name, weight in higher:
            if name == "q1111":
                q_1 = s.square() @ self.squares[:, :1]
                weights[:, :, :1] += 2.0 * QUARTIC_FACTOR * q_1 * weight
            else:
                term = self.cubic[name].gradient(s) * weight
                result = term if result is None else result + term
        squares = s * (2.0 * weights @ self.squares.T)
        return squares if result is None else squares + result

    def push(self, s: Tensor, s_dot: Tensor) -> Tensor:
        """Change of q (N, I * n) as s changes by s_dot (N, n, L)."""
        product = 2.0 * s * s_dot
        three_body = product @ self.squares
        blocks = [three_body]
        for name in self.higher:
            if name == "q1111":
                q_1 = s.square() @ self.squares[:, :1]
                blocks.append(2.0 * QUARTIC_FACTOR * q_1 * three_body[:, :, :1])
            else:
                blocks.append((s_dot * self.cubic[name].gradient(s)).sum(2, keepdim=True))
        return torch.cat(blocks, dim=2).transpose(1, 2).flatten(1)

    def pull_push(self, s: Tensor, s_dot: Tensor, q_dot_bar: Tensor) -> Tensor:
        """Gradient to s (N, n, L) of sum q_dot_bar push(s, s_dot)."""
        weights, higher = self._split(q_dot_bar, s)
        weights, result = weights.clone(), None
        for name, weight in higher:
            if name == "q1111":
                q_1 = s.square() @ self.squares[:, :1]
                change = 2.0 * (s * s_dot) @ self.squares[:, :1]
                weights[:, :, :1] += 2.0 * QUARTIC_FACTOR * q_1 * weight
                term = s * (4.0 * QUARTIC_FACTOR * change * weight @ self.squares[:, :1].T)
            else:
                term = self.cubic[name].mixed(s, s_dot) * weight
            result = term if result is None else result + term
        squares = s_dot * (2.0 * weights @ self.squares.T)
        return squares if result is None else squares + result

    def _split(self, q_bar: Tensor, s: Tensor):
        """q_bar (N, I * n) as (N, n, l_max) and a (name, (N, n, 1)) for each higher invariant."""
        weights = q_bar.view(len(s), -1, s.shape[1]).transpose(1, 2)
        higher = zip(self.higher, weights[:, :, self.l_max :].split(1, dim=2))
        return weights[:, :, : self.l_max], higher


class _CubicForm:
    """One cubic invariant: C(s) = sum of coefficient * s_a s_b s_c."""

    def __init__(self, name: str, n_components: int, like: Tensor):
        left, right, entries = _cubic_pairs(name)
        self.left = torch.tensor(left, device=like.device)
        self.right = torch.tensor(right, device=like.device)
        self.matrix = like.new_zeros(len(left), n_components)
        for pair, component, coefficient in entries:
            self.matrix[pair, component] += coefficient

    def gradient(self, s: Tensor) -> Tensor:
        """dC/ds (N, n, L)."""
        return (s[:, :, self.left] * s[:, :, self.right]) @ self.matrix

    def mixed(self, s: Tensor, s_dot: Tensor) -> Tensor:
        """Change of dC/ds as s changes by s_dot, (N, n, L)."""
        products = s[:, :, self.left] * s_dot[:, :, self.right]
        products += s_dot[:, :, self.left] * s[:, :, self.right]
        return products @ self.matrix


@cache
def _cubic_pairs(name: str):
    """Products s_a s_b in the gradient, and (product, component, coefficient) of each term."""
    terms: dict[tuple[int, int], dict[int, float]] = {}
    for components, coefficient in MONOMIALS[name]:
        for place in range(3):
            pair = tuple(sorted(components[:place] + components[place + 1 :]))
            column = terms.setdefault(pair, {})
            column[components[place]] = column.get(components[place], 0.0) + coefficient
    pairs = sorted(terms)
    entries = tuple(
        (k, component, c) for k, pair in enumerate(pairs) for component, c in terms[pair].items()
    )
    return tuple(a for a, _ in pairs), tuple(b for _, b in pairs), entries
