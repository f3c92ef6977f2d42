"""Radial functions and harmonics: values, derivatives, GPUMD's constants."""

import json
import math

import plain_nep
import pytest
import torch
from structures import shared

from nepkit.ops.basis import radial_functions
from nepkit.ops.harmonics import (
    component_count,
    degrees,
    solid_harmonics,
    three_body_weights,
)
from nepkit.ops.monomials import MONOMIALS


def random_vectors(count=40, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return 3.0 * torch.randn(count, 3, generator=generator, dtype=torch.float64)


@pytest.fixture(scope="module")
def constants():
    return json.loads(shared("constants.json").read_text())


@pytest.mark.parametrize("count", [1, 2, 3, 9, 17])
@pytest.mark.parametrize("per_pair", [False, True])
def test_radial_functions(count, per_pair):
    r = torch.linspace(0.3, 4.99, 60, dtype=torch.float64, requires_grad=True)
    cutoff = torch.linspace(5.0, 6.0, 60, dtype=torch.float64) if per_pair else 5.0
    values, slopes = radial_functions(r, cutoff, count)
    wanted = plain_nep.radial_functions(r, cutoff, count)
    assert values.shape == slopes.shape == (60, count)
    torch.testing.assert_close(values, wanted, rtol=0, atol=1e-13)
    for k in range(count):
        (slope,) = torch.autograd.grad(values[:, k].sum(), r, retain_graph=True)
        torch.testing.assert_close(slopes[:, k], slope, rtol=1e-12, atol=1e-12)


def test_radial_functions_end_smoothly():
    values, slopes = radial_functions(torch.tensor([5.0 - 1e-7], dtype=torch.float64), 5.0, 9)
    assert values.abs().max() < 1e-13
    assert slopes.abs().max() < 1e-6


@pytest.mark.parametrize("l_max", range(1, 9))
def test_harmonics(l_max):
    vectors = random_vectors().requires_grad_()
    values, gradient = solid_harmonics(vectors, vectors.norm(dim=1), l_max)
    assert values.shape == (40, component_count(l_max))
    assert len(degrees(l_max)) == len(three_body_weights(l_max)) == component_count(l_max)
    wanted = plain_nep.harmonics(vectors / vectors.norm(dim=1, keepdim=True), l_max)
    torch.testing.assert_close(values, wanted, rtol=1e-12, atol=1e-11)
    for component in range(component_count(l_max)):
        (slope,) = torch.autograd.grad(values[:, component].sum(), vectors, retain_graph=True)
        torch.testing.assert_close(gradient[:, :, component], slope, rtol=1e-11, atol=1e-10)


@pytest.mark.parametrize("axis", range(3))
@pytest.mark.parametrize("sign", [-1.0, 1.0])
def test_harmonics_along_the_axes(axis, sign):
    vectors = torch.zeros(1, 3, dtype=torch.float64)
    vectors[0, axis] = 2.0 * sign
    values, gradient = solid_harmonics(vectors, vectors.norm(dim=1), 8)
    wanted = plain_nep.harmonics(vectors / 2.0, 8)
    torch.testing.assert_close(values, wanted)
    assert gradient.isfinite().all()
    # Moving along the vector changes nothing.
    assert gradient[0, axis].abs().max() < 1e-13


def test_addition_theorem():
    vectors = random_vectors(7)
    values, _ = solid_harmonics(vectors, vectors.norm(dim=1), 8)
    g = random_vectors(7, seed=1)[:, 0]
    s = (g[:, None] * values).sum(0)
    unit = vectors / vectors.norm(dim=1, keepdim=True)
    cosine = unit @ unit.T
    legendre = [torch.ones_like(cosine), cosine]
    weighted = torch.tensor(three_body_weights(8), dtype=torch.float64) * s.square()
    l_of = torch.tensor(degrees(8))
    for l in range(1, 9):
        if l > 1:
            legendre.append(((2 * l - 1) * cosine * legendre[-1] - (l - 1) * legendre[-2]) / l)
        wanted = (2 * l + 1) / (4 * math.pi) * (g[:, None] * g * legendre[l]).sum()
        torch.testing.assert_close(weighted[l_of == l].sum(), wanted, rtol=1e-11, atol=1e-11)


def test_parity_of_each_component():
    vectors = random_vectors(5)
    distance = vectors.norm(dim=1)
    values, gradient = solid_harmonics(vectors, distance, 8)
    mirrored, mirrored_gradient = solid_harmonics(-vectors, distance, 8)
    parity = torch.tensor([(-1.0) ** l for l in degrees(8)], dtype=torch.float64)
    torch.testing.assert_close(mirrored, parity * values)
    torch.testing.assert_close(mirrored_gradient, -parity * gradient)


def test_gpumd_weights(constants):
    wanted = list(constants["three_body"])
    # GPUMD multiplies components with m > 0 by 2 outside of its table.
    components = [(l, m) for l in range(1, 9) for m in range(l + 1) for _ in range(2 if m else 1)]
    wanted = [c * (2 if m else 1) for c, (_, m) in zip(wanted, components, strict=True)]
    assert three_body_weights(8) == pytest.approx(wanted, rel=0, abs=2e-14)


def test_gpumd_polynomials(constants):
    z = torch.linspace(-0.95, 0.95, 21, dtype=torch.float64)
    side = (1.0 - z * z).sqrt()
    vectors = torch.stack([side, torch.zeros_like(z), z], dim=1)  # (x + iy)^m = side^m
    values, _ = solid_harmonics(vectors, vectors.norm(dim=1), 8)
    for l, of_l in enumerate(constants["z_polynomials"], start=1):
        for m, coefficients in enumerate(of_l):
            height = sum(c * z**power for power, c in enumerate(coefficients))
            component = l * l - 1 + max(0, 2 * m - 1)
            torch.testing.assert_close(
                values[:, component], height * side**m, rtol=1e-12, atol=1e-11
            )


def test_gpumd_higher_invariants(constants):
    for name, monomials in MONOMIALS.items():
        wanted = constants["higher_invariants"]["q_" + name[1:]]
        assert [(list(c), w) for c, w in monomials] == [(c, w) for c, w in wanted]
