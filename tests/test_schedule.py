"""Learning rate, batches, and the numbers that are left to nepkit."""

import math
from dataclasses import replace
from itertools import pairwise

import pytest

from nepkit.config import ModelSettings, NepConfig, Stage
from nepkit.train.schedule import (
    DEFAULT_STEPS,
    default_batch,
    learning_rate,
    resolve,
)
from nepkit.units import ELEMENTS

MODEL = ModelSettings(("Si",), (4.0,), (3.0,))


def test_learning_rate():
    stage = Stage(generation=110, warmup=10, learning_rate=(0.01, 0.001))
    rates = [learning_rate(step, stage) for step in range(111)]
    assert rates[0] == pytest.approx(0.01 / 11) and rates[9] == pytest.approx(0.1 / 11)
    assert rates[10] == pytest.approx(0.01) and rates[60] == pytest.approx(0.0055)
    assert rates[110] == pytest.approx(0.001)
    expected = [0.001 + 0.0045 * (1 + math.cos(math.pi * k / 100)) for k in range(101)]
    assert rates[10:] == pytest.approx(expected)
    assert all(a < b for a, b in pairwise(rates[:11]))
    assert learning_rate(500, stage) == pytest.approx(0.001)


@pytest.mark.parametrize("n_frames, batch, told", [(84, 85, 1), (84, 84, 0), (20, 5000, 0)])
def test_batches_of_all_frames_are_told_of(n_frames, batch, told):
    """GPUMD's trainer likes them; few frames are not worth a word."""
    config = NepConfig(MODEL, (Stage(batch=batch, generation=10),))
    lines = resolve(config, n_frames, 10 * n_frames, n_frames)[1]
    assert sum(f"takes all {n_frames} frames" in line for line in lines) == told


@pytest.mark.parametrize("generation, warmup", [(0, 0), (1, 0), (1, 100), (50, 100), (100, 100)])
def test_learning_rate_of_short_stages(generation, warmup):
    stage = Stage(generation=generation, warmup=warmup, learning_rate=(0.01, 0.0))
    for step in range(generation):
        assert 0 < learning_rate(step, stage) <= 0.010001


@pytest.mark.parametrize(
    "atoms, batch", [(1, 1), (10, 1), (18, 2), (94, 9), (100, 10), (10**6, 100)]
)
def test_batches_by_atoms(atoms, batch):
    config = NepConfig(MODEL, (Stage(batch_atoms=atoms, epoch=1), Stage(batch=4)))
    resolved, lines = resolve(config, n_frames=100, n_atoms=1000, n_all=100)
    assert [stage.batch for stage in resolved.stages] == [batch, 4]
    assert resolved.stages[0].batch_atoms is None
    assert resolved.stages[0].generation == math.ceil(100 / batch)
    assert f"batch {batch}, {10 * batch} atoms" in lines[0]


def test_numbers_left_to_nepkit():
    config = NepConfig(MODEL, (Stage(), Stage(generation=70, batch=9)))
    resolved, lines = resolve(config, n_frames=100, n_atoms=1000, n_all=120)
    assert [stage.generation for stage in resolved.stages] == [DEFAULT_STEPS, 70]
    assert [stage.batch for stage in resolved.stages] == [default_batch(100, 1000), 9]
    assert sum("batch" in line for line in lines) == 1 and "stage 1" in lines[0]
    again, lines = resolve(resolved, 100, 1000, 120)
    assert again == resolved and not [line for line in lines if "output_interval" not in line]


@pytest.mark.parametrize(
    "n_elements, decay", [(1, 0.0), (3, 0.0), (4, 0.3), (15, 0.3), (16, 3.0), (89, 3.0)]
)
def test_weight_decay_follows_the_model(n_elements, decay):
    model = ModelSettings(ELEMENTS[:n_elements], (4.0,) * n_elements, (3.0,) * n_elements)
    config = NepConfig(model, (Stage(), Stage(weight_decay=0.7)))
    assert [s.weight_decay for s in resolve(config, 10, 100, 10)[0].stages] == [decay, 0.7]
    tuned = replace(config, fine_tune=("nep.txt",))
    assert resolve(tuned, 10, 100, 10)[0].stages[0].weight_decay == 0.0
    for on in (True, False):
        chosen = resolve(replace(config, shared_base=on), 10, 100, 10)[0]
        assert chosen.shared_base == on
        found = chosen.stages[0].weight_decay
        assert found == ((3.0 if n_elements >= 16 else 0.3) if on else 0.0)


def test_numbers_that_were_given_stay():
    config = NepConfig(
        MODEL, (Stage(generation=0, batch=500, weight_decay=0.0),), output_interval=7
    )
    assert resolve(config, 10, 100, 10) == (replace(config, shared_base=False), [])
    passes = replace(config, stages=(Stage(epoch=3, batch=4),))
    assert resolve(passes, 10, 100, 10)[0].stages[0].generation == 9


@pytest.mark.parametrize("n_frames, n_atoms", [(1, 1), (1, 10**6), (10**6, 10**6), (25, 6250)])
def test_default_batch_is_possible(n_frames, n_atoms):
    assert 1 <= default_batch(n_frames, n_atoms) <= n_frames
