"""The invariants as sums of monomials, in tables that kernels walk.

Every invariant but q1111 = (7/15) q_1^2 is a sum of coefficient * s_a s_b s_c, where the component
past the last, L, stands for 1: so the squares of the three-body ones are monomials too.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from .harmonics import component_count, degrees, three_body_weights
from .monomials import MONOMIALS

QUARTIC_FACTOR = 7.0 / 15.0


@dataclass(frozen=True, eq=False, slots=True)
class Terms:
    """Monomials of I invariants, M places each, and of their gradients, P places a component.

    Places that are not needed have the coefficient 0.
    """

    factors: Tensor  # (3, I, M) int32, components
    coefficients: Tensor  # (I, M)
    # Two components and the invariant, for d(invariant)/ds_l; the first is that of a square.
    slope_factors: Tensor  # (3, P, L) int32
    slope_coefficients: Tensor  # (P, L)
    quartic: int  # place of q1111 among the invariants, -1 without it


def terms_of(l_max: int, higher: tuple[str, ...], like: Tensor) -> Terms:
    """The tables on the device and in the type of ``like``.

    A captured graph may copy nothing from the host, so a model makes them once.
    """
    n_components, weights = component_count(l_max), three_body_weights(l_max)
    monomials: list[list] = [[] for _ in range(l_max)]
    for component, (l, weight) in enumerate(zip(degrees(l_max), weights)):
        monomials[l - 1].append(((component, component, n_components), weight))
    monomials += [list(MONOMIALS.get(name, ())) for name in higher]
    slopes: list[dict] = [{} for _ in range(n_components)]
    for invariant, terms in enumerate(monomials):
        for components, coefficient in terms:
            for place, component in enumerate(components):
                if component < n_components:
                    others = sorted(components[:place] + components[place + 1 :])
                    of = slopes[component]
                    key = (*others, invariant)
                    of[key] = of.get(key, 0.0) + coefficient
    factors, coefficients = _padded(monomials, like)
    slope_factors, slope_coefficients = _padded([list(of.items()) for of in slopes], like)
    return Terms(
        factors, coefficients,
        slope_factors.transpose(1, 2).contiguous(), slope_coefficients.T.contiguous(),
        l_max + higher.index("q1111") if "q1111" in higher else -1,
    )  # fmt: skip


def _padded(lists: list[list], like: Tensor) -> tuple[Tensor, Tensor]:
    """Lists of (three numbers, coefficient) as (3, lists, longest) int32 and (lists, longest)."""
    longest = max(len(terms) for terms in lists)
    empty = ((0, 0, 0), 0.0)
    filled = [terms + [empty] * (longest - len(terms)) for terms in lists]
    factors = torch.tensor([[term[0] for term in terms] for terms in filled], dtype=torch.int32)
    coefficients = like.new_tensor([[term[1] for term in terms] for terms in filled])
    return factors.permute(2, 0, 1).contiguous().to(like.device), coefficients
