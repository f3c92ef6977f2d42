"""What runs on GPUs, as far as it can be tested without one: padded, split and compiled batches."""

import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch
from structures import (
    EIGHTY_NINE,
    ODD_SHAPES,
    make_ready,
    model_settings,
    odd_frames,
    odd_shape,
    random_model,
)
from torch._inductor.utils import run_and_get_code

from nepkit.config import HIGHER_INVARIANTS, Stage
from nepkit.data.buckets import STEP, Ladder
from nepkit.data.feed import of_tensors, tensors
from nepkit.model.compiled import Compiled
from nepkit.model.evaluator import attach_constants
from nepkit.model.zbl import zbl_of
from nepkit.ops.policy import Contract, reference_path
from nepkit.train.gradient import finished
from nepkit.train.loss import rules_of
from nepkit.train.objective import analytic, error_sums
from nepkit.train.step import Step
from nepkit.train.targets import attach_targets

STAGES = {
    "mse": Stage(lambda_v=0.3, force_delta=0.5),
    "rmse": Stage(loss_form="rmse", lambda_shear=2.0),
}


def labelled(elements, frames, **changes):
    """A model and frames with labels at random."""
    generator = np.random.default_rng(1)

    def label(frame):
        virial = generator.normal(size=(3, 3))
        return replace(
            frame,
            energy=float(generator.normal()),
            forces=generator.normal(size=(len(frame), 3)),
            virial=virial + virial.T if generator.random() < 0.7 else None,
            weight=float(generator.uniform(0.5, 2.0)),
        )

    settings = model_settings(elements, **changes)
    prepared = make_ready([label(frame) for frame in frames], settings)
    attach_targets(prepared, zbl_of(prepared, settings), np.zeros(len(elements)))
    return random_model(settings), prepared


def gradient(model, batch, stage, totals=None):
    rules = rules_of(stage, len(model.settings.elements), model.flat)
    with torch.no_grad():
        return analytic(model, batch, model.flat, rules, True, None, totals)


def assert_equal_results(found, wanted, rtol=0.0):
    for one, other in ((found[0].value, wanted[0].value), (found[1], wanted[1])):
        torch.testing.assert_close(one, other, rtol=rtol, atol=rtol * wanted[1].abs().max().item())


# Ghosts -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("stage", STAGES.values(), ids=STAGES)
@pytest.mark.parametrize("kept", [True, False], ids=["kept", "computed"])
@pytest.mark.parametrize("name", ODD_SHAPES)
def test_ghosts_change_nothing(name, kept, stage):
    """They add exact zeros; only the blocking of matrix products may shift a last bit."""
    model, prepared = labelled(*odd_shape(name), invariants=("q222", "q1111"))
    structures, members = prepared.structures, np.arange(len(prepared))
    if kept:
        attach_constants(structures, model.settings)
    wanted = gradient(model, structures.batch(torch.as_tensor(members)), stage)
    ladder = Ladder(structures)
    sizes = ladder.sizes(members)
    assert all(room > need for room, need in zip(sizes, structures.sizes(members)))
    for more in (0, 16, 48):
        roomy = type(sizes)(*(size + more for size in sizes))
        frames = torch.full((roomy.frames,), len(structures))
        frames[: len(members)] = torch.as_tensor(members)
        found = gradient(model, structures.batch(frames, roomy), stage)
        assert_equal_results(found, wanted, rtol=1e-15)


def test_ghosts_do_not_see_the_batch():
    """Whatever the labels and places of real atoms are, the rest of a batch is the same."""
    model, prepared = labelled(*odd_shape("all kinds"))
    ladder = Ladder(prepared.structures)
    one, other = (ladder.batch(np.array(frames)) for frames in ([0, 3, 4], [0, 3, 4, 13]))
    n = len(prepared.structures.types)
    assert (one.atom_index[int(one.atom_start[-1]) :] == n - 1).all()
    assert (other.atom_index[int(other.atom_start[-1]) :] == n - 1).all()


def test_rungs_are_few_and_near():
    structures = make_ready(odd_frames(seed=2).values(), model_settings()).structures
    generator = np.random.default_rng(0)
    structures.counts = np.rint(generator.uniform(0.9, 1.1, (400, 1)) * [200, 900, 9000, 2500])
    structures.counts = structures.counts.astype(np.int64)
    ladder, rungs = Ladder(structures), set()
    for _ in range(200):
        frames = generator.choice(400, 20, replace=False)
        sizes, needed = ladder.sizes(frames), structures.sizes(frames)
        rungs.add(sizes)
        for room, need in zip(sizes[1:], needed[1:]):
            assert need < room <= 1.01 * STEP * need + 17
    assert len(rungs) <= 4


# Parts ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stage", STAGES.values(), ids=STAGES)
@pytest.mark.parametrize("parts", [1, 2, 3])
def test_gradients_of_parts_add_up(parts, stage):
    model, prepared = labelled(*odd_shape("all kinds"))
    structures, members = prepared.structures, np.arange(len(prepared))
    wanted = gradient(model, structures.batch(torch.as_tensor(members)), stage)
    with reference_path():
        step = Step(model, structures, stage, use_virial=True)
        ladder = Ladder(structures)
        batches = [ladder.batch(part) for part in np.array_split(members, parts)]
        result = finished(step.batch.of_batches(batches), lambda tensor: None)
    assert_equal_results((result, step.gradient), wanted, rtol=1e-13)


def test_sums_of_parts_add_up():
    model, prepared = labelled(*odd_shape("all kinds"))
    rules = rules_of(STAGES["mse"], 2, model.flat)
    ladder = Ladder(prepared.structures)
    with torch.no_grad():
        whole, *parts = (
            error_sums(model, ladder.batch(np.array(members)), model.flat, rules, True, None)
            for members in (np.arange(14), np.arange(5), np.arange(5, 14))
        )
    torch.testing.assert_close(parts[0] + parts[1], whole, rtol=1e-13, atol=0)


def test_batches_travel_as_tensors():
    _, prepared = labelled(*odd_shape("all kinds"))
    batch = Ladder(prepared.structures).batch(np.arange(3))
    again = of_tensors(tensors(batch), list(batch.tables))
    assert all(map(torch.equal, tensors(batch), tensors(again)))
    assert batch.tables.keys() == again.tables.keys()


# The compiler -----------------------------------------------------------------------------------

NEEDS_COMPILER = pytest.mark.skipif(
    shutil.which("g++") is None and shutil.which("clang++") is None, reason="no C++ compiler"
)
# Calls: Inductor also notes "atomic_add_found" of every kernel.
FORBIDDEN = ("atomic_add(", "index_put", "scatter_add", "index_add")


@NEEDS_COMPILER
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("contract", [Contract("mulsum", False), Contract("mulsum", True)])
def test_compiled_steps(contract):
    """Compiled once for batches of all sizes, equal to eager steps, without atomics or scatter."""
    frames = list(odd_frames(seed=4).values())
    model, prepared = labelled(("Te", "Pb"), frames, l_max=2, invariants=("q222",))
    attach_constants(prepared.structures, model.settings)
    ladder, function = Ladder(prepared.structures), Compiled(analytic)
    rules = rules_of(STAGES["mse"], 2, model.flat)
    rest = (model.flat, rules, True, contract, None)
    _, code = run_and_get_code(function, model, ladder.batch(np.arange(5)), *rest)
    assert not function.failure and code
    assert not [word for word in FORBIDDEN for text in code if word in text]
    with torch._dynamo.config.patch(error_on_recompile=True):
        for members in (np.arange(14), np.arange(5), np.array([3, 9]), np.array([12])):
            found = function(model, ladder.batch(members), *rest)
            wanted = gradient(
                model, prepared.structures.batch(torch.as_tensor(members)), STAGES["mse"]
            )
            assert_equal_results(found, wanted, rtol=1e-10)


def test_without_a_compiler_functions_run_as_they_are(monkeypatch):
    def refuse(*_, **__):
        def broken(*_):
            raise RuntimeError("no compiler found\nand more")

        return broken

    monkeypatch.setattr(torch, "compile", refuse)
    model, prepared = labelled(EIGHTY_NINE, list(odd_frames(EIGHTY_NINE).values())[:3])
    batch = prepared.structures.batch(torch.arange(3))
    function = Compiled(analytic)
    rules = rules_of(Stage(), 89, model.flat)
    found = function(model, batch, model.flat, rules, True)
    assert function.failure == "no compiler found"
    assert_equal_results(found, gradient(model, batch, Stage()))
    assert_equal_results(function(model, batch, model.flat, rules, True), found)


def test_every_invariant_is_known_to_the_padded_path():
    model, prepared = labelled(
        *odd_shape("all kinds"), l_max=4, invariants=tuple(HIGHER_INVARIANTS)
    )
    members = np.arange(len(prepared))
    wanted = gradient(model, prepared.structures.batch(torch.as_tensor(members)), Stage())
    found = gradient(model, Ladder(prepared.structures).batch(members), Stage())
    assert_equal_results(found, wanted, rtol=1e-15)
