"""The two maps over pairs and the densities, against plain loops."""

from dataclasses import fields

import numpy as np
import plain_nep
import pytest
import torch
from structures import (
    EIGHTY_NINE,
    ODD_SHAPES,
    all_in_one,
    make_ready,
    model_settings,
    odd_frames,
    odd_shape,
)

from nepkit.ops.geometry import Geometry
from nepkit.ops.tables import all_tables, pair_tables, table_bytes

CUTOFFS = [
    {},
    {"radial": 3.4, "angular": 3.4},
    {"radial": (4.5, 3.9), "angular": (3.0, 3.8)},
]


def setting(name, cutoffs=None, **changes):
    """Settings, frames made ready and the geometry of all of them in one batch."""
    elements, frames = odd_shape(name)
    if cutoffs and len(elements) == 2:
        changes |= cutoffs
    settings = model_settings(elements, **changes)
    prepared = make_ready(frames, settings)
    return settings, prepared, Geometry(all_in_one(prepared), settings, torch.float64)


def random_like(*tensors, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(t.shape, generator=generator, dtype=t.dtype) for t in tensors]


@pytest.mark.parametrize("cutoffs", CUTOFFS, ids=["plain", "equal", "per element"])
@pytest.mark.parametrize("name", ODD_SHAPES)
def test_densities(name, cutoffs):
    settings, prepared, geometry = setting(name, cutoffs, l_max=5)
    batch = geometry.batch
    n_types = len(settings.elements)
    pairs = plain_nep.PlainPairs(odd_shape(name)[1], settings)
    wanted = plain_nep.densities(pairs, settings)
    rows = (batch.row_center.long(), batch.row_pair_type.long() % n_types)
    for found, of_all in zip(geometry.densities(), wanted):
        torch.testing.assert_close(found, of_all[rows], rtol=1e-12, atol=1e-11)
        # What is in no row is zero.
        assert of_all.abs().sum() == pytest.approx(of_all[rows].abs().sum().item(), rel=1e-12)
    assert torch.equal(batch.row_pair_type // n_types, batch.types[batch.row_center.long()])


@pytest.mark.parametrize("use_virial", [True, False])
@pytest.mark.parametrize("name", ODD_SHAPES)
def test_the_two_maps_are_adjoint(name, use_virial):
    """<J^T G, v> = <G, J v>."""
    _, _, geometry = setting(name)
    batch = geometry.batch
    gradients = random_like(*geometry.densities())
    forces, virials = geometry.forces_and_virials(*gradients)
    assert forces.shape == (len(batch.types), 3)
    assert virials.shape == (len(batch), 6)
    to_forces, to_virials = random_like(forces, virials, seed=1)
    tangents = geometry.tangent_densities(to_forces, to_virials if use_virial else None)
    outer = (forces * to_forces).sum() + use_virial * (virials * to_virials).sum()
    inner = sum((t * g).sum() for t, g in zip(tangents, gradients))
    size = sum((t * g).abs().sum() for t, g in zip(tangents, gradients))
    assert abs(outer - inner) <= 1e-12 * max(1.0, size)


@pytest.mark.parametrize("name", ODD_SHAPES)
def test_pair_forces_are_the_derivative_of_the_densities(name):
    """J^T G by torch's autograd of the plain densities through the pair vectors."""
    settings, prepared, geometry = setting(name)
    batch = geometry.batch
    gradients = random_like(*geometry.densities())
    pairs = plain_nep.PlainPairs(odd_shape(name)[1], settings)
    pairs.vectors.requires_grad_()
    rows = (batch.row_center.long(), batch.row_pair_type.long() % len(settings.elements))
    total = sum(
        (of_all[rows] * gradient).sum()
        for of_all, gradient in zip(plain_nep.densities(pairs, settings), gradients)
    )
    pull = torch.zeros_like(pairs.vectors)
    if total.requires_grad and len(pairs.vectors):
        (pull,) = torch.autograd.grad(total, pairs.vectors)
    wanted = pairs.summed(pull).index_add(0, pairs.j, -pull)
    found, _ = geometry.forces_and_virials(*gradients)
    torch.testing.assert_close(found, wanted, rtol=1e-11, atol=1e-10)


@pytest.mark.parametrize("chunk", [1, 3, 64])
@pytest.mark.parametrize("name", ODD_SHAPES)
def test_tables_of_all_frames(name, chunk):
    settings, prepared, geometry = setting(name)
    tables = all_tables(prepared.structures, settings, chunk)
    wanted = pair_tables(geometry.batch, settings, torch.float64)
    assert tables.keys() == wanted.keys()
    for key, values in wanted.items():
        torch.testing.assert_close(tables[key], values, rtol=0, atol=1e-14)
    kept = [*tables.values(), *geometry.densities()]
    size = sum(table.numel() * table.itemsize for table in kept)
    assert table_bytes(prepared.structures, settings) == size


def assert_same_maps(first, second):
    for one, other in zip(first.densities(), second.densities()):
        torch.testing.assert_close(one, other, rtol=1e-13, atol=1e-13)
    gradients = random_like(*first.densities())
    sums = [geometry.forces_and_virials(*gradients) for geometry in (first, second)]
    forces, virials = zip(*sums)
    torch.testing.assert_close(*forces, rtol=1e-13, atol=1e-12)
    torch.testing.assert_close(*virials, rtol=1e-13, atol=1e-12)
    tangents = [g.tangent_densities(forces[0], virials[0]) for g in (first, second)]
    for one, other in zip(*tangents):
        torch.testing.assert_close(one, other, rtol=1e-13, atol=1e-11)


@pytest.mark.parametrize("chosen", [[0], [3, 1, 12], [12, 12, 5, 0, 5], [*range(13, -1, -1)], [12]])
def test_batches_are_their_frames_alone(chosen):
    frames = list(odd_frames().values())
    settings = model_settings()
    prepared = make_ready(frames, settings)
    batch = prepared.structures.batch(torch.tensor(chosen))
    alone = all_in_one(make_ready([frames[k] for k in chosen], settings))
    assert batch.frames.tolist() == chosen
    for field in fields(batch):
        if field.name not in ("frames", "tables") and not field.name.endswith("_index"):
            assert torch.equal(getattr(batch, field.name), getattr(alone, field.name)), field.name
    atoms = np.split(np.arange(prepared.n_atoms.sum()), np.cumsum(prepared.n_atoms)[:-1])
    assert batch.atom_index.tolist() == [atom for k in chosen for atom in atoms[k]]
    assert_same_maps(
        Geometry(batch, settings, torch.float64), Geometry(alone, settings, torch.float64)
    )


def test_single_precision_is_rounded_once():
    """Tables come from float64 and are rounded last."""
    settings = model_settings(EIGHTY_NINE)
    frames = [odd_frames(EIGHTY_NINE)["bulk"]]
    tables = {
        dtype: pair_tables(all_in_one(make_ready(frames, settings, dtype)), settings, dtype)
        for dtype in (torch.float32, torch.float64)
    }
    for key, values in tables[torch.float64].items():
        assert torch.equal(tables[torch.float32][key], values.float())
