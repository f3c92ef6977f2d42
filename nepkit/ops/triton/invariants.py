"""The descriptors q of the sums s over neighbours, and their first two derivatives.

An invariant is a sum of coefficient * s_a s_b s_c over its monomials, where s_L = 1; but q1111 is
(7/15) q_1^2. Tables as in nepkit.ops.terms.Terms; one value of (atom, n) is an item.
"""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from ..terms import QUARTIC_FACTOR
from .launch import options, padded
from .sums import of_products


@triton.jit
def values_kernel(
    near, s, s_dot, q, factors, coefficients, out, n_atoms,
    FACTOR: tl.constexpr, QUARTIC: tl.constexpr, CHANGE: tl.constexpr, D: tl.constexpr,
    NR: tl.constexpr, N: tl.constexpr, L: tl.constexpr, I: tl.constexpr, M: tl.constexpr,
    MP: tl.constexpr, ITEMS: tl.constexpr,
):  # fmt: skip
    """out (N, D) of ITEMS items: q, or with CHANGE its change as s changes by s_dot."""
    item = tl.program_id(0) * ITEMS + tl.arange(0, ITEMS)
    real, term = item < n_atoms * N, tl.arange(0, MP)
    # The radial sums are descriptors as they are.
    for step in tl.static_range((NR + N - 1) // N):
        column = item.to(tl.int64) + step * n_atoms * N
        here = column < n_atoms * NR
        value = tl.load(near + column, mask=here, other=0.0)
        tl.store(out + column // NR * D + column % NR, value, mask=here)
    at = item.to(tl.int64)[:, None] * L
    place = (item // N).to(tl.int64) * D + NR + item % N
    first = tl.zeros((ITEMS,), dtype=out.dtype.element_ty)
    for invariant in range(I):
        cell = invariant * M + term
        a = tl.load(factors + cell, mask=term < M, other=L)[None, :]
        b = tl.load(factors + I * M + cell, mask=term < M, other=L)[None, :]
        c = tl.load(factors + 2 * I * M + cell, mask=term < M, other=L)[None, :]
        x = tl.load(s + at + a, mask=real[:, None] & (a < L), other=1.0)
        y = tl.load(s + at + b, mask=real[:, None] & (b < L), other=1.0)
        z = tl.load(s + at + c, mask=real[:, None] & (c < L), other=1.0)
        if CHANGE:
            dx = tl.load(s_dot + at + a, mask=real[:, None] & (a < L), other=0.0)
            dy = tl.load(s_dot + at + b, mask=real[:, None] & (b < L), other=0.0)
            dz = tl.load(s_dot + at + c, mask=real[:, None] & (c < L), other=0.0)
            product = dx * y * z + x * dy * z + x * y * dz
        else:
            product = x * y * z
        weight = tl.load(coefficients + cell, mask=term < M, other=0.0)[None, :]
        total = of_products(weight, product, 1)
        first = tl.where(invariant == 0, total, first)
        if QUARTIC >= 0:
            if CHANGE:
                square = 2.0 * FACTOR * first * tl.load(q + place, mask=real, other=0.0)
            else:
                square = FACTOR * first * first
            total = tl.where(invariant == QUARTIC, square, total)
        tl.store(out + place + invariant * N, total, mask=real)


@triton.jit
def slopes_kernel(
    q_bar, q_slope, q, q_dot, s, s_dot, factors, coefficients, out, n_items,
    FACTOR: tl.constexpr, QUARTIC: tl.constexpr, SECOND: tl.constexpr, D: tl.constexpr,
    NR: tl.constexpr, N: tl.constexpr, L: tl.constexpr, P: tl.constexpr, LP: tl.constexpr,
    ITEMS: tl.constexpr,
):  # fmt: skip
    """out (ITEMS, L): gradient of sum q_bar q, with SECOND of sum q_bar q + q_slope dq as well."""
    item = tl.program_id(0) * ITEMS + tl.arange(0, ITEMS)
    l, real = tl.arange(0, LP), item < n_items
    is_l, mask = l < L, real[:, None]
    at = item.to(tl.int64)[:, None] * L
    place = ((item // N).to(tl.int64) * D + NR + item % N)[:, None]
    total = tl.zeros((ITEMS, LP), dtype=out.dtype.element_ty)
    for term in range(P):
        cell = term * L + l
        a = tl.load(factors + cell, mask=is_l, other=L)[None, :]
        b = tl.load(factors + P * L + cell, mask=is_l, other=L)[None, :]
        invariant = tl.load(factors + 2 * P * L + cell, mask=is_l, other=0)[None, :]
        weight = tl.load(coefficients + cell, mask=is_l, other=0.0)[None, :]
        x = tl.load(s + at + a, mask=mask & (a < L), other=1.0)
        y = tl.load(s + at + b, mask=mask & (b < L), other=1.0)
        change = tl.load(q_bar + place + invariant * N, mask=mask, other=0.0) * x * y
        if SECOND:
            dx = tl.load(s_dot + at + a, mask=mask & (a < L), other=0.0)
            dy = tl.load(s_dot + at + b, mask=mask & (b < L), other=0.0)
            slope = tl.load(q_slope + place + invariant * N, mask=mask, other=0.0)
            change += slope * (dx * y + x * dy)
        total += weight * change
    here = mask & is_l[None, :]
    if QUARTIC >= 0:
        # dq_1/ds_l = square s_l for the three components of l = 1.
        square = tl.load(coefficients + l, mask=l < 3, other=0.0)[None, :]
        of_first = mask & (l < 3)[None, :]
        q_1 = tl.load(q + place, mask=mask, other=0.0)
        x = tl.load(s + at + l[None, :], mask=of_first, other=0.0)
        change = tl.load(q_bar + place + QUARTIC * N, mask=mask, other=0.0) * q_1 * x
        if SECOND:
            dx = tl.load(s_dot + at + l[None, :], mask=of_first, other=0.0)
            dq_1 = tl.load(q_dot + place, mask=mask, other=0.0)
            slope = tl.load(q_slope + place + QUARTIC * N, mask=mask, other=0.0)
            change += slope * (q_1 * dx + dq_1 * x)
        total += 2.0 * FACTOR * square * change
    tl.store(out + at + l[None, :], total, mask=here)


def launch_values(
    near: Tensor, s: Tensor, s_dot: Tensor | None, q: Tensor | None, factors: Tensor,
    coefficients: Tensor, quartic: int,
) -> Tensor:  # fmt: skip
    """q (N, D) of s_R (N, n_R) and s (N, n, L), or with ``s_dot`` and ``q`` the change of q."""
    (n_atoms, n, n_l), (n_invariants, n_terms) = s.shape, coefficients.shape
    n_radial = near.shape[1]
    out = s.new_empty(n_atoms, n_radial + n_invariants * n)
    if n_atoms:
        chosen = options("invariants")
        s = s.contiguous()
        values_kernel[(triton.cdiv(n_atoms * n, chosen["ITEMS"]),)](
            near.contiguous(), s, s if s_dot is None else s_dot.contiguous(),
            s if q is None else q, factors, coefficients, out, n_atoms,
            FACTOR=QUARTIC_FACTOR, QUARTIC=quartic, CHANGE=s_dot is not None, D=out.shape[1],
            NR=n_radial, N=n, L=n_l, I=n_invariants, M=n_terms, MP=padded(n_terms), **chosen,
        )  # fmt: skip
    return out


def launch_slopes(
    q_bar: Tensor, q_slope: Tensor | None, q: Tensor, q_dot: Tensor | None, s: Tensor,
    s_dot: Tensor | None, factors: Tensor, coefficients: Tensor, quartic: int, n_radial: int,
) -> Tensor:  # fmt: skip
    """Gradient to s (N, n, L) of sum q_bar q, and where given of sum q_slope q_dot, (N, D) each."""
    n_atoms, n, n_l = s.shape
    out, second = s.new_empty(s.shape), s_dot is not None
    if n_atoms:
        chosen = options("invariant_slopes")
        q_bar, s = q_bar.contiguous(), s.contiguous()
        changes = [q_slope.contiguous(), q_dot, s_dot.contiguous()] if second else [q_bar, q, s]
        slopes_kernel[(triton.cdiv(n_atoms * n, chosen["ITEMS"]),)](
            q_bar, changes[0], q, changes[1], s, changes[2], factors, coefficients, out,
            n_atoms * n, FACTOR=QUARTIC_FACTOR, QUARTIC=quartic, SECOND=second, D=q.shape[1],
            NR=n_radial, N=n, L=n_l, P=len(coefficients), LP=padded(n_l), **chosen,
        )  # fmt: skip
    return out
