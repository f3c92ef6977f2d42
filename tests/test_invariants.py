"""Invariants of the angular sums: values, derivatives, rotation and inversion."""

from itertools import chain, combinations

import plain_nep
import pytest
import torch
from scipy.spatial.transform import Rotation

from nepkit.config import HIGHER_INVARIANTS
from nepkit.model.invariants import Invariants
from nepkit.ops.harmonics import component_count

LIKE = torch.zeros(0, dtype=torch.float64)


def random_tensor(*shape, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=torch.float64)


def allowed(l_max):
    return tuple(name for name, least in HIGHER_INVARIANTS.items() if least <= l_max)


# l_max with no flag, with each flag alone, with all.
CASES = [
    (l_max, flags)
    for l_max in range(1, 9)
    for flags in dict.fromkeys(((), *((name,) for name in allowed(l_max)), allowed(l_max)))
]
SUBSETS = [
    (4, flags)
    for flags in chain.from_iterable(combinations(allowed(4), count) for count in range(2, 6))
]


@pytest.fixture(params=CASES + SUBSETS, ids=lambda c: f"{c[0]}-{'-'.join(c[1]) or 'none'}")
def case(request):
    l_max, flags = request.param
    s = 2.0 * random_tensor(5, 3, component_count(l_max))
    return Invariants(l_max, flags, LIKE), s, l_max, flags


def test_values(case):
    invariants, s, l_max, flags = case
    wanted = torch.cat(plain_nep.invariants(s, l_max, flags), dim=1)
    assert wanted.shape == (5, 3 * (l_max + len(flags)))
    torch.testing.assert_close(invariants.values(s), wanted, rtol=1e-12, atol=1e-11)


def test_derivatives(case):
    """pull is the gradient of values, push its transpose, pull_push the gradient of push."""
    invariants, s, l_max, flags = case
    s = s.requires_grad_()
    q_bar = random_tensor(5, 3 * (l_max + len(flags)), seed=1)
    s_dot = random_tensor(*s.shape, seed=2)
    before = q_bar.clone()

    (gradient,) = torch.autograd.grad((invariants.values(s) * q_bar).sum(), s, create_graph=True)
    torch.testing.assert_close(invariants.pull(s, q_bar), gradient, rtol=1e-12, atol=1e-10)

    pushed = invariants.push(s, s_dot)
    _, change = torch.autograd.functional.jvp(invariants.values, s.detach(), s_dot)
    torch.testing.assert_close(pushed, change, rtol=1e-12, atol=1e-10)

    (second,) = torch.autograd.grad((gradient * s_dot).sum(), s)
    found = invariants.pull_push(s, s_dot, q_bar)
    torch.testing.assert_close(found, second, rtol=1e-12, atol=1e-10)
    assert torch.equal(q_bar, before)


@pytest.mark.parametrize("l_max", range(1, 9))
def test_rotation_and_inversion(l_max):
    flags = allowed(l_max)
    invariants = Invariants(l_max, flags, LIKE)
    unit = torch.nn.functional.normalize(random_tensor(9, 3))
    g = random_tensor(9, 2, seed=3)

    def values(directions):
        y = plain_nep.harmonics(directions, l_max)
        return invariants.values((g[:, :, None] * y[:, None, :]).sum(0)[None])

    wanted = values(unit)
    assert (wanted.abs() > 1e-6).all()
    for rotation in Rotation.random(4, random_state=0):
        matrix = torch.tensor(rotation.as_matrix())
        for turned in (unit @ matrix.T, -unit @ matrix.T):
            torch.testing.assert_close(values(turned), wanted, rtol=1e-10, atol=1e-10)


def test_q1111_repeats_q_1():
    s = random_tensor(4, 2, component_count(2))
    q = Invariants(2, ("q1111",), LIKE).values(s)
    torch.testing.assert_close(q[:, 4:], 7 / 15 * q[:, :2].square())
    # GPUMD's own sum of monomials.
    s_0, side = s[:, :, 0], s[:, :, 1].square() + s[:, :, 2].square()
    c_0, c_1, c_2 = 0.026596810706114, 0.053193621412227, 0.026596810706114
    wanted = c_0 * s_0**4 + c_1 * s_0**2 * side + c_2 * side**2
    torch.testing.assert_close(q[:, 4:], wanted, rtol=1e-10, atol=1e-12)
