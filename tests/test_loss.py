"""The loss against a computation by hand, and its derivatives by finite differences."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from structures import EIGHTY_NINE, TWO, make_ready, model_settings, odd_frames

from nepkit.config import Stage
from nepkit.data.frame import Frame
from nepkit.data.known import Labels
from nepkit.model.conversion import model_to_file
from nepkit.model.zbl import ZblTerms
from nepkit.train.initial import new_model
from nepkit.train.loss import loss, loss_by_kernel, regularisation, rules_of
from nepkit.train.targets import attach_targets

BOTH = pytest.mark.parametrize("loss", [loss, loss_by_kernel], ids=["torch", "kernel"])
N_ATOMS = (2, 1, 3, 2)
TYPES = [np.array([0, 1]), np.array([1]), np.array([0, 1, 1]), np.array([0, 0])]
ORDER = [(0, 0), (1, 1), (2, 2), (0, 1), (1, 2), (2, 0)]  # xx yy zz xy yz zx


def labelled_frames() -> list[Frame]:
    """Four frames: all labels, energy alone, no energy and no virial, no forces."""
    generator = np.random.default_rng(1)
    frames = []
    for n_atoms in N_ATOMS:
        virial = generator.normal(size=(3, 3))
        frames.append(
            Frame(
                np.ones(n_atoms, np.int16), np.zeros((n_atoms, 3)), np.eye(3), np.ones(3, bool),
                float(generator.normal()), generator.normal(size=(n_atoms, 3)), virial + virial.T,
            )
        )  # fmt: skip
    return [
        replace(frames[0], weight=3.0, energy_weight=0.5),
        replace(frames[1], forces=None, virial=None),
        replace(frames[2], energy=None, virial=None, weight=0.5),
        replace(frames[3], forces=None, energy_weight=0.0),
    ]


class Tables(dict):
    """What ``attach_targets`` gives to a batch of all frames."""

    device, dtype = "cpu", torch.float64

    def attach(self, kind, name, values):
        self[name] = values


def batch_of(frames) -> SimpleNamespace:
    tables = Tables()
    nothing = ZblTerms(
        np.zeros(len(frames)), np.zeros((sum(N_ATOMS), 3)), np.zeros((len(frames), 6))
    )
    prepared = SimpleNamespace(labels=Labels.of(frames, TYPES), structures=tables)
    attach_targets(prepared, nothing, np.zeros(2))
    types = torch.from_numpy(np.concatenate(TYPES).astype(np.int32))
    return SimpleNamespace(tables=tables, types=types)


def rules(stage: Stage):
    return rules_of(stage, 2, torch.zeros((), dtype=torch.float64))


def predictions() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    generator = np.random.default_rng(2)
    shapes = (len(N_ATOMS),), (sum(N_ATOMS), 3), (len(N_ATOMS), 6)
    return tuple(torch.from_numpy(generator.normal(size=shape)) for shape in shapes)


def by_hand(frames, stage: Stage, energy, forces, virial) -> float:
    """The loss in words of REFERENCE A7, one number after the other."""
    sums, counts = np.zeros(3), np.zeros(3)
    first = 0
    for k, (frame, types) in enumerate(zip(frames, TYPES, strict=True)):
        n_atoms, weight = len(types), frame.weight**2
        if frame.energy is not None and frame.energy_weight > 0:
            error = (energy[k] - frame.energy) / n_atoms
            sums[0] += weight * frame.energy_weight * error**2
            counts[0] += 1
        if frame.forces is not None:
            for i in range(n_atoms):
                factor = weight
                if stage.type_weight:
                    factor *= stage.type_weight[types[i]] ** 2
                if stage.force_delta > 0:
                    size = np.sqrt(sum(frame.forces[i] ** 2))
                    factor *= stage.force_delta / (stage.force_delta + size)
                for c in range(3):
                    sums[1] += factor * (forces[first + i, c] - frame.forces[i, c]) ** 2
                    counts[1] += 1
        if frame.virial is not None:
            for c, (row, column) in enumerate(ORDER):
                shear = stage.lambda_shear**2 if row != column else 1.0
                error = (virial[k, c] - frame.virial[row, column]) / n_atoms
                sums[2] += weight * shear * error**2
                counts[2] += 1
        first += n_atoms
    means = sums / np.maximum(counts, 1)
    terms = np.sqrt(means) if stage.loss_form == "rmse" else means
    return float(np.dot([stage.lambda_e, stage.lambda_f, stage.lambda_v], terms))


STAGES = {
    "plain": {},
    "lambda": {"lambda_e": 2.0, "lambda_f": 0.3, "lambda_v": 0.7},
    "none": {"lambda_e": 0.0, "lambda_v": 0.0},
    "shear": {"lambda_v": 1.0, "lambda_shear": 3.0},
    "no shear": {"lambda_v": 1.0, "lambda_shear": 0.0},
    "type": {"type_weight": (0.5, 2.0)},
    "delta": {"force_delta": 0.7, "type_weight": (2.0, 0.0)},
}


@BOTH
@pytest.mark.parametrize("form", ["mse", "rmse"])
@pytest.mark.parametrize("name", STAGES)
def test_loss_and_its_derivatives(form, name, loss):
    stage, frames = Stage(loss_form=form, **STAGES[name]), labelled_frames()
    batch, predicted = batch_of(frames), predictions()
    result = loss(batch, rules(stage), *predicted)
    numbers = [values.numpy() for values in predicted]
    assert float(result.value) == pytest.approx(by_hand(frames, stage, *numbers), rel=1e-12)
    step = 1e-5
    for values, slope in zip(numbers, (result.energy, result.forces, result.virial), strict=True):
        for place in np.ndindex(values.shape):
            kept, ends = values[place], []
            for sign in (1, -1):
                values[place] = kept + sign * step
                ends.append(by_hand(frames, stage, *numbers))
            values[place] = kept
            assert float(slope[place]) == pytest.approx((ends[0] - ends[1]) / (2 * step), abs=1e-8)


@BOTH
def test_terms_are_the_mean_squares(loss):
    frames, predicted = labelled_frames(), predictions()
    terms = loss(batch_of(frames), rules(Stage()), *predicted).terms
    numbers = [values.numpy() for values in predicted]
    for k, name in enumerate(("lambda_e", "lambda_f", "lambda_v")):
        only = Stage(**{"lambda_e": 0.0, "lambda_f": 0.0, "lambda_v": 0.0, name: 1.0})
        assert float(terms[k]) == pytest.approx(by_hand(frames, only, *numbers), rel=1e-12)


@BOTH
def test_without_virials(loss):
    frames = [replace(frame, virial=None) for frame in labelled_frames()]
    energy, forces, _ = predictions()
    result = loss(batch_of(frames), rules(Stage()), energy, forces, None)
    expected = by_hand(frames, Stage(), energy.numpy(), forces.numpy(), None)
    assert float(result.value) == pytest.approx(expected, rel=1e-12)
    assert result.virial is None and float(result.terms[2]) == 0


@pytest.mark.parametrize("virial", [True, False])
@pytest.mark.parametrize("form", ["mse", "rmse"])
def test_the_kernel_equals_torch_on_a_part_of_a_batch(form, virial):
    stage = Stage(loss_form=form, **STAGES["delta"])
    energy, forces, virials = predictions()
    arguments = (batch_of(labelled_frames()), rules(stage), energy, forces)
    arguments += (virials if virial else None, torch.arange(1.0, 7.0, dtype=torch.float64))
    found, wanted = loss_by_kernel(*arguments), loss(*arguments)
    for name in ("value", "terms", "squares", "energy", "forces", "virial"):
        one, other = getattr(found, name), getattr(wanted, name)
        if other is None:
            assert one is None
        else:
            torch.testing.assert_close(one, other, rtol=1e-13, atol=1e-15)


@BOTH
@pytest.mark.parametrize("form", ["mse", "rmse"])
def test_a_perfect_prediction_and_no_labels_have_no_slope(form, loss):
    frames = labelled_frames()
    unlabelled = [replace(f, energy=None, forces=None, virial=None) for f in frames]
    batch = batch_of(frames)
    perfect = (batch.tables[name] for name in ("energy", "forces", "virial"))
    stage = Stage(loss_form=form)
    for result in (
        loss(batch, rules(stage), *perfect),
        loss(batch_of(unlabelled), rules(stage), *predictions()),
    ):
        assert float(result.value) == 0
        for slope in (result.energy, result.forces, result.virial):
            assert not slope.any()


@pytest.mark.parametrize("elements", [TWO, EIGHTY_NINE[:5]], ids=len)
def test_regularisation(elements):
    """Of the numbers in the nep.txt, energies apart: pairs without data count as zeros."""
    settings = model_settings(elements)
    frames = [odd_frames(elements)["bulk"]]
    model = new_model(
        settings, [make_ready(frames, settings)], 0, device="cpu", dtype=torch.float64
    )
    stage, values = Stage(lambda_1=0.3, lambda_2=0.7), model.flat.numpy()
    values[-len(elements) :] = 7.0  # energies of elements

    def numbers() -> np.ndarray:
        file = model_to_file(model, model.flat, (1, 1))
        kept = [file.hidden_weight[0][:, :-1], file.hidden_bias[0][:, :-1]]
        kept += [file.output_weight[:, :-1], file.radial_coefficients, file.angular_coefficients]
        return np.concatenate([array.ravel() for array in kept])

    def total() -> float:
        z = numbers()
        return 0.3 * np.mean(np.abs(z)) + 0.7 * np.sqrt(np.mean(z**2))

    l1, l2, gradient = regularisation(model, model.flat, stage)
    assert float(l1) == pytest.approx(0.3 * np.mean(np.abs(numbers())))
    assert float(l1 + l2) == pytest.approx(total())
    for k in np.random.default_rng(0).choice(len(values), 60).tolist() + [len(values) - 1]:
        kept, ends = values[k], []
        for sign in (1, -1):
            values[k] = kept + sign * 1e-6
            ends.append(total())
        values[k] = kept
        assert float(gradient[k]) == pytest.approx((ends[0] - ends[1]) / 2e-6, abs=1e-7)
    model.flat.zero_()
    assert not regularisation(model, model.flat, stage)[2].any()
