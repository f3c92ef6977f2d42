"""Batches: every frame once an epoch, of equal work, from seed, stage and step alone."""

import numpy as np
import pytest
import torch

from nepkit.data.sampler import TOLERANCE, Sampler, batches_per_epoch


def epoch_of(sampler: Sampler, epoch: int) -> list[np.ndarray]:
    count = batches_per_epoch(len(sampler.work), sampler.batch)
    return [sampler.frames(epoch * count + k) for k in range(count)]


def works(n_frames: int, spread: float = 1.0) -> np.ndarray:
    """Pairs of frames whose numbers lie a factor of e^spread apart."""
    return np.exp(spread * np.random.default_rng(n_frames).normal(size=n_frames)) * 1000


@pytest.mark.parametrize(
    "n_frames, batch", [(1, 1), (1, 9), (7, 1), (7, 2), (7, 3), (7, 7), (100, 8)]
)
@pytest.mark.parametrize("equal", [True, False])
def test_every_frame_once_an_epoch(n_frames, batch, equal):
    work = np.ones(n_frames) if equal else works(n_frames)
    sampler, orders = Sampler(work, batch, seed=3, stage=0), []
    for epoch in range(3):
        parts = epoch_of(sampler, epoch)
        sizes = {len(part) for part in parts}
        assert max(sizes) - min(sizes) <= 1 and max(sizes) <= batch
        orders.append(np.concatenate(parts).tolist())
        assert sorted(orders[-1]) == list(range(n_frames))
    assert n_frames < 5 or batch >= n_frames or orders[0] != orders[1] != orders[2]


@pytest.mark.parametrize("n_frames, batch", [(200, 20), (1003, 16), (5000, 64)])
def test_batches_are_balanced(n_frames, batch):
    sampler = Sampler(works(n_frames, 0.7), batch, seed=1, stage=0)
    for epoch in range(3):
        total = np.array([sampler.work[part].sum() for part in epoch_of(sampler, epoch)])
        assert np.ptp(total) <= TOLERANCE * total.mean()


def test_batches_change_from_epoch_to_epoch():
    """Pairs of frames that meet once do not keep meeting."""
    sampler = Sampler(works(200), 10, seed=0, stage=0)
    met = [
        {frozenset((a, b)) for part in epoch_of(sampler, e) for a in part for b in part if a != b}
        for e in range(2)
    ]
    assert len(met[0] & met[1]) < 0.15 * len(met[0])


def test_sampler_is_a_function_of_seed_stage_and_step():
    steps, work = [5, 0, 40, 5, 17], works(20)
    first = [Sampler(work, 3, seed=1, stage=0).frames(step).tolist() for step in steps]
    again = Sampler(work, 3, seed=1, stage=0)
    state = torch.get_rng_state()
    assert [again.frames(step).tolist() for step in steps] == first
    assert torch.equal(torch.get_rng_state(), state)
    for other in (Sampler(work, 3, seed=2, stage=0), Sampler(work, 3, seed=1, stage=1)):
        assert [other.frames(step).tolist() for step in steps] != first
    assert len(Sampler(work, 3, seed=2**31 - 1, stage=10**6).frames(10**7)) > 0
