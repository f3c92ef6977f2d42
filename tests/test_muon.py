"""Muon: what its updates are, and that it goes on, skips and decays as the others do."""

import signal

import numpy as np
import pytest
import torch
from run_files import make_run
from structures import TWO, model_settings, random_model
from test_resume import assert_same_run, stop_before

from nepkit import train_nep
from nepkit.config import read_nep_in
from nepkit.errors import UserError
from nepkit.train import checkpoint
from nepkit.train.muon import SIZE, Matrices, move, orthogonalised
from nepkit.train.parametrisation import Plain
from nepkit.train.shared import Shared
from nepkit.train.signals import Interrupted


@pytest.mark.parametrize("shape", [(3, 5, 9), (2, 9, 5), (1, 4, 4), (1, 1, 7)])
def test_updates_have_equal_singular_values(shape):
    matrices = torch.from_numpy(np.random.default_rng(0).normal(size=shape))
    found, (u, _, v) = orthogonalised(matrices), torch.linalg.svd(matrices, full_matrices=False)
    # In the basis of the singular vectors the update is diagonal.
    inside = u.transpose(1, 2) @ found @ v.transpose(1, 2)
    values = torch.diagonal(inside, dim1=1, dim2=2)
    assert (inside - torch.diag_embed(values)).abs().max() < 1e-10
    assert 0.6 < values.min() and values.max() < 1.3
    assert not orthogonalised(torch.zeros(shape)).any()
    small = orthogonalised(matrices.float() * 1e-30)  # whose squares float32 does not hold
    torch.testing.assert_close(small.double(), found, rtol=1e-4, atol=1e-4)


def moved(gradient, unusable=0.0, decay=0.0, steps=1):
    """A matrix (1, 2, 3) after ``steps`` steps of rate 0.1 from 1."""
    matrices = Matrices(torch.ones(1, 2, 3), gradient, torch.zeros(1, 2, 3), decay)
    for _ in range(steps):
        move([matrices], 0.1, torch.tensor(1.0 - unusable), torch.tensor(1.0))
    return matrices.values


def test_a_step():
    gradient = torch.tensor([[[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]])
    matrix = moved(gradient)
    wanted = 1.0 - 0.1 * SIZE * 3**0.5 * orthogonalised(gradient)
    torch.testing.assert_close(matrix, wanted)
    torch.testing.assert_close(moved(gradient, decay=2.0), matrix - 0.2)


def test_batches_of_one_shape_move_as_each_alone():
    found, wanted = ([], [])
    for together in (found, wanted):
        generator = torch.Generator().manual_seed(0)
        for count in (2, 3):
            gradient = torch.randn(count, 2, 3, generator=generator)
            new = torch.ones_like(gradient)
            together.append(Matrices(new, gradient, torch.zeros_like(gradient), 0.5 * count))
    sound, scale = torch.tensor(1.0), torch.tensor(2.0)
    move(found, 0.1, sound, scale)
    for batch in wanted:
        move([batch], 0.1, sound, scale)
    for one, other in zip(found, wanted):
        torch.testing.assert_close(one.values, other.values)
        torch.testing.assert_close(one.momentum, other.momentum)


def test_matrices_out_of_reach_of_the_batch_decay_and_stay():
    gradient = torch.ones(2, 2, 3)
    matrices = Matrices(torch.ones(2, 2, 3), gradient, torch.zeros(2, 2, 3), 1.0)
    move([matrices], 0.1, torch.tensor(1.0), torch.tensor(1.0))
    before, momentum = matrices.values.clone(), matrices.momentum.clone()
    gradient[1] = 0.0
    move([matrices], 0.1, torch.tensor(1.0), torch.tensor(1.0))
    torch.testing.assert_close(matrices.values[1], 0.9 * before[1])
    assert torch.equal(matrices.momentum[1], momentum[1])
    assert (matrices.values[0] < 0.9 * before[0] - 0.01).all()


def test_a_gradient_that_is_not_finite_changes_nothing():
    matrix = moved(torch.full((1, 2, 3), float("nan")), unusable=1.0, decay=2.0, steps=3)
    assert (matrix == 1).all()


@pytest.mark.parametrize("shared", [0, 1])
def test_a_run_goes_on_bit_by_bit(tmp_path, monkeypatch, shared):
    straight, broken = (make_run(tmp_path / name) for name in ("straight", "broken"))
    settings = {"device": "cpu", "optimizer": "muon", "shared_base": shared, "weight_decay": 0.1}
    expected = train_nep(straight, **settings)
    with monkeypatch.context() as patch:
        stop_before(patch, 5, lambda: signal.raise_signal(signal.SIGTERM))
        with pytest.raises(Interrupted):
            train_nep(broken, **settings)
    assert train_nep(broken, **settings) == expected
    assert_same_run(straight, broken)
    kept = checkpoint.load(straight)["step"]["optimizer"]
    # What Muon moves has no mean of squares.
    assert (kept["mean"][kept["square"] == 0] != 0).any()


@pytest.mark.parametrize("kind", [Plain, Shared])
def test_matrices_lie_where_the_parameters_are(kind):
    model = random_model(model_settings(TWO))
    parameters = kind(model)
    parameters.latent.zero_()
    for stretch, shape in parameters.matrices():
        parameters.latent[stretch] = 1.0
        assert stretch.stop - stretch.start == np.prod(shape)
    flat = torch.zeros_like(model.flat)
    if kind is Plain:
        flat = parameters.latent
    else:
        parameters.expand(flat)
    # A deviation and the base.
    weights, coefficients = (2.0, 0.0) if kind is Shared else (1.0, 1.0)
    for name, values in model.views(flat).items():
        wanted = coefficients if "coefficients" in name else weights * (name == "hidden_weight_0")
        assert (values == wanted).all(), name


def test_it_learns_another_way(tmp_path):
    folder, found = make_run(tmp_path / "run", generation=30), []
    for name in ("adamw", "muon"):
        found.append(train_nep(folder, out=tmp_path / name, device="cpu", optimizer=name)["train"])
    assert found[0].force != found[1].force and found[1].force < 2 * found[0].force


def test_keyword(tmp_path):
    folder = make_run(tmp_path / "run", optimizer="muon")
    assert read_nep_in(folder / "nep.in").stages[0].optimizer == "muon"
    with pytest.raises(UserError, match="adamw, adam or muon"):
        read_nep_in(folder / "nep.in", {"optimizer": "sgd"})
