"""What the optimizer moves: linear maps to the parameters, with their adjoints, and their decay."""

import signal
from dataclasses import replace

import numpy as np
import pytest
import torch
from run_files import make_run, random_frame
from structures import (
    EIGHTY_NINE,
    TWO,
    make_frame,
    make_ready,
    model_settings,
    odd_frames,
    random_model,
)
from test_resume import assert_same_run, stop_before

from nepkit import train_nep
from nepkit.config import NepConfig
from nepkit.errors import UserError
from nepkit.model.nep import Nep
from nepkit.model.nep_txt import read_nep_txt
from nepkit.train.initial import new_model
from nepkit.train.parametrisation import Anchored, Plain
from nepkit.train.shared import Shared, kinship, parametrisation_of
from nepkit.train.signals import Interrupted

KINDS = {"plain": Plain, "anchored": Anchored, "shared": Shared}


def model_of(elements, kind="bulk") -> Nep:
    settings = model_settings(elements, invariants=("q222",))
    prepared = make_ready([odd_frames(elements)[kind], odd_frames(elements)["slab"]], settings)
    return new_model(settings, [prepared], 3, device="cpu", dtype=torch.float64)


def pulled(parameters: Plain, gradient: torch.Tensor) -> torch.Tensor:
    """The gradient to all latent numbers."""
    shared = gradient.new_empty(len(parameters.latent) - len(gradient))
    parameters.pull(gradient, shared)
    return torch.cat([gradient, shared])


@pytest.mark.parametrize("elements", [("Si",), TWO, EIGHTY_NINE[:20]], ids=len)
@pytest.mark.parametrize("kind", KINDS)
def test_pull_is_the_adjoint_of_expand(kind, elements):
    model = model_of(elements)
    parameters = KINDS[kind](model)
    generator = torch.Generator().manual_seed(0)

    def expanded(latent):
        parameters.latent.copy_(latent)
        flat = torch.empty_like(model.flat) if kind != "plain" else model.flat
        parameters.expand(flat)
        return flat.clone()

    one, step = (
        torch.randn(parameters.latent.shape, generator=generator, dtype=torch.float64)
        for _ in range(2)
    )
    outer = torch.randn(model.flat.shape, generator=generator, dtype=torch.float64)
    change = expanded(one + step) - expanded(one)
    inner = (pulled(parameters, outer) * step).sum()
    assert (change * outer).sum().item() == pytest.approx(inner.item(), rel=1e-10)


@pytest.mark.parametrize("kind", KINDS)
def test_every_latent_number_has_its_decay(kind):
    parameters = KINDS[kind](model_of(TWO))
    covered = np.zeros(len(parameters.latent), int)
    for part, share in parameters.decays():
        covered[part] += 1
        assert 0.0 <= share <= 1.0
    assert (covered == 1).all()


@pytest.mark.parametrize("kind", ["plain", "anchored"])
def test_parameters_begin_where_the_model_is(kind):
    model = model_of(TWO)
    before = model.flat.clone()
    parameters = KINDS[kind](model)
    parameters.expand(model.flat)
    assert torch.equal(model.flat, before)


def test_pairs_borrow_from_their_elements():
    """A pair without data moves with what its two elements have in common with others."""
    frames = [
        make_frame(("Te", "Te"), [[0, 0, 0], [1, 1, 2]]),
        make_frame(("Pb", "Si"), [[0, 0, 0], [1, 1, 2]]),
    ]
    settings = model_settings(("Te", "Pb", "Si"))
    prepared = make_ready(frames, settings)
    model = new_model(settings, [prepared], 0, device="cpu", dtype=torch.float64)
    parameters = Shared(model)
    gradient = torch.zeros_like(model.flat)
    views = model.views(gradient)
    pairs = model.pair_types.tolist()
    assert pairs == [0, 5, 7]  # Te-Te, Pb-Si, Si-Pb
    views["radial_coefficients"][1] = 1.0
    before = model.flat.clone()
    parameters.latent -= 0.01 * pulled(parameters, gradient)
    parameters.expand(model.flat)
    moved = model.views(model.flat - before)["radial_coefficients"].abs().amax(dim=(1, 2))
    assert moved[1] > moved[0] > 0 and moved[2] == pytest.approx(moved[0].item())


def test_pairs_of_many_elements_borrow_from_their_kin():
    """Si-S moves with C-O, by groups and periods, and H-Ne by the base alone."""
    pairs = [("C", "O"), ("Si", "S"), ("H", "Ne")]
    frames = [make_frame(pair, [[0, 0, 0], [1, 1, 2]]) for pair in pairs]
    elements = EIGHTY_NINE[:20]
    prepared = make_ready(frames, model_settings(elements))
    model = new_model(model_settings(elements), [prepared], 0, device="cpu", dtype=torch.float64)
    parameters, gradient = Shared(model), torch.zeros_like(model.flat)
    known = model.pair_types.tolist()
    co, sis, hne = (known.index(elements.index(a) * 20 + elements.index(b)) for a, b in pairs)
    model.views(gradient)["radial_coefficients"][co] = 1.0
    before = model.flat.clone()
    parameters.latent -= 0.01 * pulled(parameters, gradient)
    parameters.expand(model.flat)
    moved = -model.views(model.flat - before)["radial_coefficients"][:, 0, 0]
    wanted = {co: 8, sis: 3, hne: 2}  # Ne is of the period of O
    assert {pair: round(moved[pair].item(), 9) for pair in wanted} == {
        pair: round(0.01 * count, 9) for pair, count in wanted.items()
    }


def test_kin_are_of_one_group_or_period():
    wanted = {
        ("Nb", "Mo", "Ta", "W"): [[1, 0, 1, 0], [0, 1, 0, 1], [1, 1, 0, 0], [0, 0, 1, 1]],
        ("La", "U", "O"): [[1, 1, 0]],  # group 3; periods of their own
        ("Si", "Ge"): [],  # one group, which is all
        ("He",): [],
    }
    for elements, columns in wanted.items():
        assert kinship(elements).T.tolist() == columns


def test_without_decay_and_data_networks_of_all_elements_are_one():
    model = random_model(model_settings(TWO))
    parameters = Shared(model)
    parameters.latent[: len(model.flat)] = 0.0
    parameters.expand(model.flat)
    for name, values in model.views(model.flat).items():
        if name.startswith(("hidden", "output")):
            torch.testing.assert_close(values[0], values[1], rtol=0, atol=0)


def test_a_shared_run_goes_on_bit_by_bit(tmp_path, monkeypatch):
    straight, broken = (make_run(tmp_path / name) for name in ("straight", "broken"))
    settings = {"device": "cpu", "shared_base": 1}
    expected = train_nep(straight, **settings)
    with monkeypatch.context() as patch:
        stop_before(patch, 5, lambda: signal.raise_signal(signal.SIGTERM))
        with pytest.raises(Interrupted):
            train_nep(broken, **settings)
    assert train_nep(broken, **settings) == expected
    assert_same_run(straight, broken)


def test_a_checkpoint_of_another_parametrisation_is_refused(tmp_path):
    folder = make_run(tmp_path / "run")
    train_nep(folder, device="cpu")
    with pytest.raises(UserError, match="parametrisation was plain, now shared base"):
        train_nep(folder, device="cpu", generation=9, shared_base=1)


def test_decay_draws_elements_together(tmp_path):
    """The networks of two elements are nearer to each other with more decay."""
    apart = []
    for decay in (0.0, 300.0):
        folder = make_run(tmp_path / f"decay {decay}", generation=40)
        train_nep(folder, device="cpu", weight_decay=decay, ema=0.0, shared_base=1)
        weights = read_nep_txt(folder / "nep.txt").hidden_weight[0]
        apart.append(np.abs(weights[0] - weights[1]).mean())
    assert 0.0 < apart[1] < 0.5 * apart[0]


@pytest.mark.parametrize(
    ("kind", "mode"),
    [
        ("isolated atoms", "analytic"),
        ("isolated atoms", "autograd"),
        ("first element never beside itself", "analytic"),
        pytest.param("first element never beside itself", "autograd", marks=pytest.mark.slow),
    ],
)
def test_odd_pair_types_train(tmp_path, kind, mode):
    """No pairs at all, and no pair of the first two elements of type."""
    symbols = ("Si", "Ge", "C", "O")
    if kind == "isolated atoms":
        cell = 20.0 * np.eye(3)
        frames = [
            random_frame(k, n_atoms=1, symbols=(s,), cell=cell, positions=np.zeros((1, 3)))
            for k, s in enumerate(symbols)
        ]
    else:
        positions = np.array([[0.0, 0.0, 0.0], [0.0, 0.0, 1.9]])
        frames = [
            random_frame(
                k, n_atoms=2, symbols=("Si", s), cell=20.0 * np.eye(3), positions=positions
            )
            for k, s in enumerate(("Ge", "C", "O"))
        ]
    folder = make_run(tmp_path / "run", frames, type="4 Si Ge C O", batch=3)
    found = train_nep(folder, device="cpu", force_mode=mode)
    assert np.isfinite(found["train"].energy)


@pytest.mark.parametrize("n_elements", [1, 3, 4, 89])
def test_who_shares_a_base(n_elements):
    config = NepConfig(model_settings(EIGHTY_NINE[:n_elements]))
    assert parametrisation_of(config) is (Shared if n_elements >= 4 else Plain)
    for said, kind in ((True, Shared), (False, Plain)):
        assert parametrisation_of(replace(config, shared_base=said)) is kind
    assert parametrisation_of(replace(config, fine_tune=("nep.txt",))) is Anchored


def test_fine_tuning_has_no_base(tmp_path):
    folder = make_run(tmp_path / "run", fine_tune="big.txt", shared_base=1)
    with pytest.raises(UserError, match="shared_base.*fine_tune has a start of its own"):
        train_nep(folder, device="cpu")
