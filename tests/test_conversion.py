"""From nep.txt to a model and back: the potential stays the same."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from structures import (
    EIGHTY_NINE,
    TWO,
    evaluate,
    make_frame,
    make_ready,
    model_settings,
    odd_frames,
    random_file,
    zbl_forms,
)

from nepkit.model.conversion import model_from_file, model_to_file, trained_settings
from nepkit.model.nep import Nep
from nepkit.model.nep_txt import read_nep_txt
from nepkit.model.nep_txt_write import write_nep_txt

SETTINGS = {
    "plain": model_settings(),
    "one element": model_settings(("Si",)),
    "two layers": model_settings(neuron=(5, 4)),
    "per element": model_settings(radial=(4.5, 3.9), angular=(3.0, 3.6)),
    "every invariant": model_settings(invariants=("q222", "q1111", "q112", "q123", "q233", "q134")),
    "one neuron": model_settings(neuron=(1,)),
    "89 types": model_settings(EIGHTY_NINE, n_max=(0, 0), basis_size=(1, 1), l_max=2),
} | {f"{name} ZBL": model_settings(zbl=zbl) for name, zbl in zbl_forms(TWO).items()}


def to_model(file, dtype=torch.float64):
    return model_from_file(file, device="cpu", dtype=dtype)


def through_disk(model, folder):
    """The file of ``model``, written and read."""
    write_nep_txt(folder / "nep.txt", model_to_file(model, model.flat, (30, 20)))
    return read_nep_txt(folder / "nep.txt")


def assert_same_predictions(one, other, elements, relative=1e-12):
    frames = list(odd_frames(elements).values())
    first, second = evaluate(one, frames), evaluate(other, frames)
    assert second.energy == pytest.approx(first.energy, rel=relative, abs=relative)
    assert second.forces == pytest.approx(first.forces, rel=relative, abs=10 * relative)
    assert second.virial == pytest.approx(first.virial, rel=relative, abs=100 * relative)


def trained_model(settings, element_energy, dtype, seed=0):
    """A model as training makes it: a neuron less, and energies of the elements."""
    n_types = len(settings.elements)
    inside = trained_settings(settings)
    model = Nep(inside, torch.arange(n_types**2), device="cpu", dtype=dtype)
    generator = torch.Generator().manual_seed(seed)
    values = torch.randn(model.flat.shape, generator=generator, dtype=torch.float64)
    model.flat.copy_(0.5 * values)
    model.element_energy.copy_(torch.as_tensor(element_energy))
    for scaler in (model.q_scaler, model.file_q_scaler):
        values = torch.rand(scaler.shape, generator=generator, dtype=torch.float64)
        scaler.copy_(0.3 + values)
    return model


@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
def test_file_to_model_to_file(settings, tmp_path):
    model = to_model(random_file(settings))
    file = through_disk(model, tmp_path)
    assert file.max_neighbors == (30, 20)
    assert replace(file.settings, neuron=settings.neuron) == settings
    again = to_model(file)
    assert_same_predictions(model, again, settings.elements)
    # Once more changes nothing at all.
    assert through_disk(again, tmp_path).settings == file.settings
    assert torch.equal(to_model(through_disk(again, tmp_path)).flat, again.flat)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
def test_a_trained_model(settings, dtype, tmp_path):
    """It is written with the neurons that nep.in asks for, and comes back as it was."""
    energies = np.linspace(-3.0, 1.0, len(settings.elements))
    model = trained_model(settings, energies, dtype)
    file = through_disk(model, tmp_path)
    assert file.settings == settings
    again = to_model(file, dtype)
    if settings.neuron != (1,):  # nothing is left of one neuron less one
        assert again.settings == model.settings
    relative = 1e-12 if dtype == torch.float64 else 3e-6
    assert_same_predictions(model, again, settings.elements, relative)


def test_parameters_of_a_trained_model_come_back_exactly(tmp_path):
    settings = SETTINGS["two layers"]
    model = trained_model(settings, [-3.0, 1.0], torch.float32)
    model.file_q_scaler.copy_(model.q_scaler)
    views = model.views(model.flat)
    views["element_bias"].zero_()
    again = to_model(through_disk(model, tmp_path), torch.float32)
    assert torch.equal(again.flat, model.flat)
    assert torch.equal(again.q_scaler, model.q_scaler)
    assert again.element_energy.tolist() == pytest.approx([-3.0, 1.0], rel=1e-15)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("elements", [("Si",), TWO], ids="-".join)
def test_large_element_energies_are_exact(elements, dtype, tmp_path):
    """-2000 eV/atom in float32: the energies of the elements stay float64 to the last file."""
    energies = np.array([-2000.123456789012, -500.987654321098])[: len(elements)]
    model = trained_model(model_settings(elements), energies, dtype)
    file = through_disk(model, tmp_path)
    again = to_model(file, dtype)
    shift = model.views(model.flat)["element_bias"].double()  # trained, so in the model's type
    assert again.element_energy.numpy() == pytest.approx(energies + shift.numpy(), rel=1e-13)

    frames = list(odd_frames(elements).values())
    found, wanted = evaluate(again, frames), evaluate(model, frames)
    assert found.energy == pytest.approx(wanted.energy, rel=1e-9)
    # Without the large part there is nothing but float32's own error.
    model.element_energy.zero_()
    small = evaluate(model, frames).energy
    lookup = dict(zip(elements, energies))
    numbers = {"Si": 14, "Te": 52, "Pb": 82}
    fixed = [sum(lookup[e] * (f.numbers == numbers[e]).sum() for e in elements) for f in frames]
    digits = 1e-11 if dtype == torch.float64 else 2e-5
    assert found.energy - fixed == pytest.approx(small, rel=0, abs=100 * digits)


def test_the_file_itself_holds_the_total_energy():
    """An isolated atom by hand: w1 . tanh(-b0) - b1."""
    energies = [-2000.5, -13.25]
    model = trained_model(model_settings(), energies, torch.float64)
    file = model_to_file(model, model.flat, (1, 1))
    by_hand = (file.output_weight * np.tanh(-file.hidden_bias[0])).sum(1) - file.output_bias
    frames = [make_frame((element,), [[0, 0, 0]]) for element in TWO]
    assert evaluate(model, frames).energy == pytest.approx(by_hand, rel=1e-14)


@pytest.mark.parametrize("neuron", [(5,), (4, 5)], ids=str)
def test_neurons_that_see_nothing(neuron):
    """Wherever they sit, they are constants: the same as neurons that see next to nothing."""
    settings = model_settings(neuron=neuron)
    file = random_file(settings)
    weight = [w.copy() for w in file.hidden_weight]
    weight[-1][0, 2] = weight[-1][1, 0] = weight[-1][1, 3] = 0.0
    almost = [w.copy() for w in weight]
    almost[-1][almost[-1] == 0.0] = 1e-200
    models = [to_model(replace(file, hidden_weight=tuple(w))) for w in (weight, almost)]
    assert_same_predictions(*models, settings.elements)
    one_only = [w.copy() for w in file.hidden_weight]
    one_only[-1][0, 2] = 0.0
    almost = [w.copy() for w in one_only]
    almost[-1][almost[-1] == 0.0] = 1e-200
    models = [to_model(replace(file, hidden_weight=tuple(w))) for w in (one_only, almost)]
    assert_same_predictions(*models, settings.elements)


def test_scaler_of_the_file():
    """The file's q_scaler is another than the model's; the first weights make up for it."""
    model = trained_model(model_settings(), [-1.0, -2.0], torch.float64)
    file = model_to_file(model, model.flat, (1, 1))
    assert np.array_equal(file.q_scaler, model.file_q_scaler.numpy())
    hidden = model.views(model.flat)["hidden_weight_0"].numpy() * model.q_scaler.numpy()
    assert file.hidden_weight[0][:, :-1] * file.q_scaler == pytest.approx(hidden, rel=1e-14)


def test_pair_types_without_data_are_written_as_zero(tmp_path):
    """A model of the pair types that occur predicts the same from its file."""
    elements = ("Te", "Pb", "Si")
    frames = [make_frame(("Te", "Te"), [[0, 0, 0], [1, 1, 2]]), odd_frames(("Pb", "Si"))["bulk"]]
    settings = model_settings(elements)
    present = torch.unique(make_ready(frames, settings).structures.row_index[1, :-1])
    assert present.tolist() == [0, 4, 5, 7, 8]
    model = Nep(trained_settings(settings), present, device="cpu", dtype=torch.float64)
    generator = torch.Generator().manual_seed(0)
    model.flat.copy_(torch.randn(model.flat.shape, generator=generator, dtype=torch.float64))
    file = through_disk(model, tmp_path)
    for coefficients in (file.radial_coefficients, file.angular_coefficients):
        empty = ~coefficients.any(axis=(2, 3))
        assert np.argwhere(empty).tolist() == [[0, 1], [0, 2], [1, 0], [2, 0]]
    found, wanted = evaluate(to_model(file), frames), evaluate(model, frames)
    assert found.energy == pytest.approx(wanted.energy, rel=1e-12)
    assert found.forces == pytest.approx(wanted.forces, abs=1e-11)
