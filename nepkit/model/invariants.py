"""Rotation invariants of the angular sums, and their first two derivatives.

q_l = sum_m w_lm s_lm^2 and the higher ones of GPUMD: q222, q112, q123, q233, q134 are cubic in s,
and q1111 is (7/15) q_1^2. Fan et al., J. Chem. Phys. 157, 114801 (2022).
"""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor

from ..ops.harmonics import component_count, three_body_weights
from ..ops.monomials import MONOMIALS
from ..ops.terms import QUARTIC_FACTOR


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
        self.twice_transposed = 2.0 * self.squares.T.contiguous()
        self.cubic = {
            name: _CubicForm(name, n_components, like) for name in higher if name != "q1111"
        }

    def values(self, s: Tensor) -> Tensor:
        """q (N, I * n)."""
        three_body = _times(s.square(), self.squares)  # (N, n, l_max)
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
        result = None
        for name, weight in higher:
            if name == "q1111":
                q_1 = _times(s.square(), self.squares[:, :1])
                weights[:, :, :1] += 2.0 * QUARTIC_FACTOR * q_1 * weight
            else:
                term = self.cubic[name].gradient(s) * weight
                result = term if result is None else result + term
        squares = s * _times(weights, self.twice_transposed)
        return squares if result is None else squares + result

    def push(self, s: Tensor, s_dot: Tensor) -> Tensor:
        """Change of q (N, I * n) as s changes by s_dot (N, n, L)."""
        product = 2.0 * s * s_dot
        three_body = _times(product, self.squares)
        blocks = [three_body]
        for name in self.higher:
            if name == "q1111":
                q_1 = _times(s.square(), self.squares[:, :1])
                blocks.append(2.0 * QUARTIC_FACTOR * q_1 * three_body[:, :, :1])
            else:
                blocks.append((s_dot * self.cubic[name].gradient(s)).sum(2, keepdim=True))
        return torch.cat(blocks, dim=2).transpose(1, 2).flatten(1)

    def pull_push(self, s: Tensor, s_dot: Tensor, q_dot_bar: Tensor) -> Tensor:
        """Gradient to s (N, n, L) of sum q_dot_bar push(s, s_dot)."""
        weights, higher = self._split(q_dot_bar, s)
        result = None
        for name, weight in higher:
            if name == "q1111":
                q_1 = _times(s.square(), self.squares[:, :1])
                change = 2.0 * _times(s * s_dot, self.squares[:, :1])
                weights[:, :, :1] += 2.0 * QUARTIC_FACTOR * q_1 * weight
                outer = _times(4.0 * QUARTIC_FACTOR * change * weight, self.squares[:, :1].T)
                term = s * outer
            else:
                term = self.cubic[name].mixed(s, s_dot) * weight
            result = term if result is None else result + term
        squares = s_dot * _times(weights, self.twice_transposed)
        return squares if result is None else squares + result

    def _split(self, q_bar: Tensor, s: Tensor):
        """q_bar (N, I * n) as (N, n, l_max) and a (name, (N, n, 1)) for each higher invariant."""
        weights = q_bar.reshape(len(s), -1, s.shape[1]).transpose(1, 2).contiguous()
        higher = zip(self.higher, weights[:, :, self.l_max :].split(1, dim=2))
        return weights[:, :, : self.l_max].contiguous(), higher


class _CubicForm:
    """One cubic invariant: C(s) = sum of coefficient * s_a s_b s_c."""

    def __init__(self, name: str, n_components: int, like: Tensor):
        terms = _gradient_terms(name)
        # Products s_a s_b of two ranges of components, rather than of the few that occur: an
        # outer product needs no gather.
        self.left = slice(min(a for a, _, _, _ in terms), max(a for a, _, _, _ in terms) + 1)
        self.right = slice(min(b for _, b, _, _ in terms), max(b for _, b, _, _ in terms) + 1)
        width = self.right.stop - self.right.start
        self.matrix = like.new_zeros((self.left.stop - self.left.start) * width, n_components)
        for a, b, component, coefficient in terms:
            product = (a - self.left.start) * width + b - self.right.start
            self.matrix[product, component] += coefficient

    def gradient(self, s: Tensor) -> Tensor:
        """dC/ds (N, n, L)."""
        return _times(self._products(s, s), self.matrix)

    def mixed(self, s: Tensor, s_dot: Tensor) -> Tensor:
        """Change of dC/ds as s changes by s_dot, (N, n, L)."""
        products = self._products(s, s_dot) + self._products(s_dot, s)
        return _times(products, self.matrix)

    def _products(self, s: Tensor, other: Tensor) -> Tensor:
        return (s[:, :, self.left, None] * other[:, :, None, self.right]).flatten(2)


def _times(values: Tensor, matrix: Tensor) -> Tensor:
    """values (N, n, A) times a small constant matrix (A, B); compiled it joins its neighbours."""
    if torch.compiler.is_compiling():
        return (values[..., None] * matrix).sum(2)
    return values @ matrix


@cache
def _gradient_terms(name: str) -> tuple[tuple[int, int, int, float], ...]:
    """(a, b, c, coefficient) with a <= b: terms of dC/ds_c, coefficient * s_a s_b."""
    terms = []
    for components, coefficient in MONOMIALS[name]:
        for place in range(3):
            a, b = sorted(components[:place] + components[place + 1 :])
            terms.append((a, b, components[place], coefficient))
    return tuple(terms)
