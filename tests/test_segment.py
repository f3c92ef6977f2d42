"""Sums of segments and their like: equal to their definition, differentiable to the second order."""

import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck

from nepkit.ops.groups import Groups, TiledGroups
from nepkit.ops.segment import Segments

# Members of each segment: none at all, empty ones at either end and between, one, and many.
COUNTS = {"none": [0, 0], "odd": [0, 3, 0, 0, 1, 40, 0], "one": [1]}


def segments(counts, ordered):
    """Segments of these lengths, and who owns each member."""
    start = torch.tensor([0, *counts]).cumsum(0).int()
    owner = torch.repeat_interleave(torch.arange(len(counts)), torch.tensor(counts)).int()
    if not ordered:
        return Segments(start, owner), owner
    order = torch.randperm(len(owner), generator=torch.Generator().manual_seed(0)).int()
    mixed = torch.empty_like(owner).scatter(0, order.long(), owner)
    return Segments(start, mixed, order), mixed


def random(*shape):
    generator = torch.Generator().manual_seed(1)
    return torch.randn(shape, dtype=torch.float64, generator=generator).requires_grad_()


def assert_differentiable(function, values):
    assert gradcheck(function, values) and gradgradcheck(function, values)


@pytest.mark.parametrize("ordered", [False, True])
@pytest.mark.parametrize("width", [(), (3,), (2, 2)])
@pytest.mark.parametrize("counts", COUNTS.values(), ids=COUNTS)
def test_sums_and_their_adjoint(counts, width, ordered):
    of, owner = segments(counts, ordered)
    values, sums = random(len(owner), *width), random(len(counts), *width)
    wanted = torch.zeros_like(sums).index_add(0, owner.long(), values)
    torch.testing.assert_close(of.sum(values), wanted, rtol=1e-14, atol=1e-14)
    assert torch.equal(of.spread(sums), sums[owner.long()])
    assert_differentiable(of.sum, values)
    assert_differentiable(of.spread, sums)


def test_members_beyond_the_last_segment_count_nowhere():
    values = random(7, 2)
    of = Segments(torch.tensor([0, 2, 5]).int(), torch.tensor([0, 0, 1, 1, 1]).int())
    wanted = torch.stack([values[:2].sum(0), values[2:5].sum(0)])
    torch.testing.assert_close(of.sum(values), wanted, rtol=1e-14, atol=1e-14)


@pytest.mark.parametrize("tile", [1, 4])
def test_groups_and_their_tiles(tile):
    group = torch.tensor([2, 0, 2, 2, 5, 0, 2, 2]).int()
    values = random(len(group), 3)
    found = Groups(group, 6).segments.sum(values)
    wanted = found.new_zeros(6, 3).index_add(0, group.long(), values)
    torch.testing.assert_close(found, wanted, rtol=1e-14, atol=1e-14)
    tiles = TiledGroups(group, 6, tile)
    assert torch.equal(tiles.spread(tiles.gather(values)), values)
    assert_differentiable(tiles.gather, values)
    # Slots without a member keep what they hold to themselves.
    assert_differentiable(tiles.spread, random(*tiles.gather(values).shape))
