"""The gradient of the loss without double backward, against double backward."""

from dataclasses import replace

import numpy as np
import plain_nep
import pytest
import torch
from structures import (
    ODD_SHAPES,
    all_in_one,
    evaluation_of,
    make_ready,
    model_settings,
    odd_frames,
    odd_shape,
    on_path,
    random_model,
)
from torch.utils._python_dispatch import TorchDispatchMode

from nepkit.config import HIGHER_INVARIANTS, Stage
from nepkit.model.evaluator import Evaluator, keep_constants
from nepkit.model.zbl import zbl_of
from nepkit.ops.policy import FORMS, forced_contraction, reference_path
from nepkit.train.step import Step
from nepkit.train.targets import attach_targets

EVERY = tuple(HIGHER_INVARIANTS)
MODELS = {
    "plain": {},
    "every invariant, two layers": {"invariants": EVERY, "neuron": (5, 3)},
    "l_max 1": {"l_max": 1, "invariants": ("q1111",)},
    "l_max 8": {"l_max": 8, "n_max": (0, 1), "basis_size": (0, 1), "invariants": ("q222",)},
}
# Fused kernels are compiled anew for every size of model, some 15 s where nothing is cached, so
# most tests of them use one size.
REFERENCE = [("reference", form, False) for form in FORMS]
FUSED = [("fused", "bmm", False), ("fused", "bmm", True)]
CASES = [
    pytest.param(
        changes,
        *way,
        id="-".join((name, *way[:2])) + " kept" * way[2],
        marks=[pytest.mark.slow] if way in FUSED and "every" not in name else [],
    )
    for name, changes in MODELS.items()
    for way in (REFERENCE if name == "plain" else REFERENCE[1:2]) + FUSED
]


def relative(found, wanted):
    """The error of a gradient relative to its largest number."""
    return ((found - wanted).abs().max() / wanted.abs().max().clamp_min(1e-300)).item()


@pytest.mark.parametrize(("changes", "path", "form", "kept"), CASES)
@pytest.mark.parametrize("name", ODD_SHAPES)
def test_gradient_of_energies_forces_and_virials(name, changes, path, form, kept):
    """Against the plain model, which shares no operation, differentiated twice by torch."""
    elements, frames = odd_shape(name)
    settings = model_settings(elements, **changes)
    model = random_model(settings)
    prepared = make_ready(frames, settings)
    pairs = plain_nep.PlainPairs(frames, settings)
    flat = model.flat.clone().requires_grad_()
    wanted = plain_nep.evaluate(model, pairs, flat, create_graph=True)
    with forced_contraction(form):
        evaluation = evaluation_of(model, prepared, path, kept=kept)
        found = (evaluation.atom_energies, *evaluation.forces_and_virials())
    for one, other in zip(found, wanted):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-10)

    outer = random_like(wanted)
    for count in (2, 3):  # without and with virials
        total = sum((w * o).sum() for w, o in zip(wanted[:count], outer))
        (gradient,) = torch.autograd.grad(total, flat, retain_graph=True)
        parts = evaluation.gradient(*outer[:2], outer[2] if count == 3 else None)
        assert parts.keys() == model.shapes.keys()
        for part, values in model.views(gradient).items():
            assert parts[part].shape == values.shape
        assert relative(joined(model, parts), gradient) < 1e-10


def random_like(tensors, seed=2):
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(t.shape, generator=generator, dtype=t.dtype) for t in tensors]


def joined(model, parts):
    """A gradient by name as one flat tensor."""
    return torch.cat([parts[part].flatten() for part in model.shapes])


def everything(evaluation):
    """All that an evaluation gives, the gradient of a random loss last."""
    values = [evaluation.q, evaluation.atom_energies, *evaluation.forces_and_virials()]
    return [*values, joined(evaluation.model, evaluation.gradient(*random_like(values[1:])))]


@pytest.mark.parametrize("chosen", [[0], [3, 1, 12], [12, 12, 5, 0, 5], [*range(13, -1, -1)]])
def test_frames_chosen_from_kept_constants(chosen):
    """A batch out of what training keeps is the same as its frames alone."""
    frames = list(odd_frames().values())
    settings = model_settings(invariants=EVERY, radial=(4.5, 3.9), angular=(3.0, 3.6))
    model = random_model(settings)
    with on_path("fused"):
        prepared = make_ready(frames, settings)
        keep_constants(prepared.structures, settings)
        found = everything(Evaluator(model, prepared.structures)(torch.tensor(chosen)))
    alone = make_ready([frames[k] for k in chosen], settings)
    for one, other in zip(found, everything(evaluation_of(model, alone)), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-11, atol=1e-10)


def test_threads_change_no_bit():
    settings = model_settings(invariants=EVERY)
    model = random_model(settings)
    prepared = make_ready(odd_frames().values(), settings)
    before = torch.get_num_threads()
    results = []
    try:
        for count in (1, 2, 3, 8):  # more than there are neurons, too
            torch.set_num_threads(count)
            results.append(everything(evaluation_of(model, prepared, "fused", kept=True)))
    finally:
        torch.set_num_threads(before)
    for others in results[1:]:
        for one, other in zip(results[0], others):
            assert torch.equal(one, other)


def labelled(frames, seed=0):
    """The frames with random labels, of which some are missing."""
    generator = np.random.default_rng(seed)
    result = []
    for index, frame in enumerate(frames):
        stress = generator.normal(size=(3, 3))
        labels = {
            "energy": float(generator.normal()),
            "forces": generator.normal(size=(len(frame), 3)),
            "virial": stress + stress.T,
        }
        for place, name in enumerate(("virial", "energy", "forces")):
            if index % 4 == place + 1:
                labels[name] = None
        labels |= {"weight": float(generator.uniform(0.5, 2)), "energy_weight": 0.7}
        result.append(replace(frame, **labels))
    return result


NOT_CLIPPED = 1e30  # clipping divides the gradient that a step leaves behind
STAGES = {
    "mse": Stage(max_grad_norm=NOT_CLIPPED),
    "rmse": Stage(
        max_grad_norm=NOT_CLIPPED, loss_form="rmse",
        lambda_1=0.01, lambda_2=0.02, force_delta=0.5, lambda_shear=2.0,
    ),
}  # fmt: skip


def with_targets(elements, frames, **changes):
    settings = model_settings(elements, **changes)
    prepared = make_ready(labelled(frames), settings)
    attach_targets(prepared, zbl_of(prepared, settings), np.zeros(len(elements)))
    return settings, prepared


@pytest.mark.parametrize("stage", STAGES.values(), ids=STAGES)
@pytest.mark.parametrize(("path", "form"), [("fused", "bmm"), ("reference", "mulsum")])
@pytest.mark.parametrize("name", ODD_SHAPES)
def test_analytic_step_equals_autograd_step(name, path, form, stage):
    settings, prepared = with_targets(*odd_shape(name), invariants=EVERY)
    frames = np.arange(len(prepared))
    common = (random_model(settings), prepared.structures, stage)
    with forced_contraction(form), on_path(path):
        analytic = Step(*common, use_virial=True)
        found = analytic.differentiate(frames)
    with forced_contraction(form), reference_path():  # not traced
        autograd = Step(*common, use_virial=True, force_mode="autograd")
        wanted = autograd.differentiate(frames)
    torch.testing.assert_close(found.value, wanted.value.detach(), rtol=1e-11, atol=0)
    torch.testing.assert_close(found.terms, wanted.terms.detach(), rtol=1e-11, atol=0)
    assert relative(analytic.gradient, autograd.gradient) < 1e-10
    assert analytic.skipped == autograd.skipped == 0


class Written(TorchDispatchMode):
    """Records the shapes that scattering operations write to."""

    def __init__(self):
        super().__init__()
        self.shapes = []

    def __torch_dispatch__(self, operation, kinds, args=(), kwargs=None):
        result = operation(*args, **(kwargs or {}))
        name = operation.name()
        if any(word in name for word in ("index_put", "scatter", "index_add", "embedding_dense")):
            self.shapes.append((name, tuple(result.shape)))
        return result


def weight_shapes_written(mode, path, form="bmm"):
    """Scattering operations of a step that write to as many rows as there are weights."""
    elements = ("H", "C", "N", "O", "Si", "Ge", "Te")
    frames = list(odd_frames(elements).values())
    settings, prepared = with_targets(elements, frames, invariants=EVERY)
    model = random_model(settings)
    batch = all_in_one(prepared)
    sizes = {shape[0] for shape in model.shapes.values()}
    assert sizes == {7, 49}
    others = (batch.types, batch.row_center, batch.center, batch.angular, batch.frames)
    assert not sizes & {len(of) for of in others}
    with forced_contraction(form), on_path(path):
        step = Step(model, prepared.structures, Stage(), use_virial=True, force_mode=mode)
        step.differentiate(np.arange(len(prepared)))  # what is traced is traced here
        with Written() as written:
            step(np.arange(len(prepared)), 1e-3, 0)
    return [(name, shape) for name, shape in written.shapes if shape and shape[0] in sizes]


@pytest.mark.parametrize(
    ("path", "form", "mode"),
    [
        ("fused", "bmm", "analytic"),
        # Traced, which test_force_fx.py looks into as well.
        pytest.param("fused", "bmm", "autograd", marks=pytest.mark.slow),
        *(("reference", form, "analytic") for form in FORMS),
        *(("reference", form, "autograd") for form in FORMS if form != "loop"),
    ],
)
def test_no_scatter_over_weights(path, form, mode):
    assert weight_shapes_written(mode, path, form) == []


def test_the_recorder_sees_scatters():
    weights = torch.zeros(7, 3, requires_grad=True)
    with Written() as written:
        weights[torch.tensor([1, 1, 4])].sum().backward()
    assert (7, 3) in [shape for _, shape in written.shapes]
