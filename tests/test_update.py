"""The update of a step by one kernel, against torch's AdamW, and threads that meet in a kernel."""

import copy

import numba
import numpy as np
import pytest
import torch
from numba.core.caching import CacheImpl
from structures import EIGHTY_NINE, make_ready, model_settings, odd_frames

from nepkit.config import Stage
from nepkit.ops.cpu.crowd import meet
from nepkit.ops.cpu.jit import jit
from nepkit.ops.cpu.threads import run_together
from nepkit.train.initial import new_model
from nepkit.train.parametrisation import Anchored, Plain
from nepkit.train.shared import Shared
from nepkit.train.step import Step

KINDS = {"plain": Plain, "anchored": Anchored, "shared": Shared}
ELEMENTS = EIGHTY_NINE[:20]
# Many more numbers than are worth a thread, or are worked on at once.
LARGE = {"neuron": (200,)}


def make_step(kind, dtype=torch.float64, optimizer="adamw", elements=ELEMENTS) -> Step:
    settings = model_settings(elements, invariants=("q222",), **LARGE)
    prepared = make_ready([*odd_frames(elements).values()], settings)
    model = new_model(settings, [prepared], 3, device="cpu", dtype=dtype)
    stage = Stage(weight_decay=0.4, max_grad_norm=3.0, optimizer=optimizer)
    return Step(model, prepared.structures, stage, use_virial=False, parametrisation=KINDS[kind])


def take(step, numbers, kernel=True):
    """Steps with random gradients; number 2 is not finite, number 3 is clipped, 4 is not."""
    for number in numbers:
        generator = torch.Generator().manual_seed(number)
        gradient = torch.randn(step.gradient.shape, generator=generator, dtype=torch.float64)
        gradient *= 1e-4 if number == 4 else 1.0
        gradient[17] = torch.inf if number == 2 else gradient[17]
        step.gradient.copy_(gradient)
        (step.by_kernel if kernel else step._take_gradient)(1e-2 / (1 + number), 0.3)


def everything(step) -> dict[str, torch.Tensor]:
    state = step.state()
    found = {name: state[name] for name in ("latent", "average", "unusable", "skipped")}
    found |= state["optimizer"]
    return {name: values.clone() for name, values in found.items()} | {"flat": step.model.flat}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("name", ["adamw", "muon"])
@pytest.mark.parametrize("kind", KINDS)
def test_the_kernel_equals_torch(kind, name, dtype):
    ours, torchs = (make_step(kind, dtype, name) for _ in range(2))
    start = ours.model.flat.clone()
    for numbers in (range(3), range(3, 6)):  # the second time with a state
        take(ours, numbers)
        take(torchs, numbers, kernel=False)
        found, wanted = everything(ours), everything(torchs)
        assert found.keys() == wanted.keys()
        for key in found:
            assert found[key].dtype == wanted[key].dtype
            # torch has the factor that clips in float32.
            single = {"adamw": 4e-6, "muon": 1e-5}[name]
            tolerance = single if dtype == torch.float32 else 2e-8
            torch.testing.assert_close(found[key], wanted[key], rtol=tolerance, atol=tolerance)
    assert ours.skipped == 1 and ours.unusable == 0
    assert (ours.model.flat - start).abs().max() > 1e-3


def test_a_gradient_that_is_not_finite_moves_nothing():
    step = make_step("shared")
    take(step, range(2))
    before = everything(step)
    before["flat"] = before["flat"].clone()
    take(step, [2])
    after = everything(step)
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    assert changed == {"unusable", "skipped", "average"}


@pytest.mark.parametrize("name", ["adamw", "muon"])
@pytest.mark.parametrize("kind", KINDS)
def test_threads_change_no_bit(kind, name):
    results, before = [], torch.get_num_threads()
    steps = {count: make_step(kind, torch.float32, name) for count in (1, 2, 3)}
    try:
        for count, step in steps.items():
            torch.set_num_threads(count)
            assert step.by_kernel.n_parts >= 3
            take(step, range(4))
            results.append(everything(step))
    finally:
        torch.set_num_threads(before)
    for others in results[1:]:
        assert all(torch.equal(results[0][name], others[name]) for name in others)


@pytest.mark.parametrize("back", [True, False], ids=["by the kernel", "by torch"])
def test_a_state_that_was_kept_goes_on_bit_by_bit(back):
    """Also with steps of torch's own: the kernel's state is a plain state of its AdamW."""
    straight, broken = make_step("shared"), make_step("shared")
    take(straight, range(6))
    take(broken, range(3))
    state, flat = copy.deepcopy(broken.state()), broken.model.flat.clone()
    resumed = make_step("shared")
    resumed.load_state(state)
    resumed.model.flat.copy_(flat)
    take(resumed, range(3, 6), kernel=back)
    found, wanted = everything(resumed), everything(straight)
    for name in wanted:
        if back:
            assert torch.equal(found[name], wanted[name])
        torch.testing.assert_close(found[name], wanted[name], rtol=2e-8, atol=2e-8)


@pytest.mark.parametrize("name", ["adam", "adamw"])
def test_steps_are_those_of_torchs_optimizers(name):
    """Of torch's classes, which know nothing of stretches."""
    step = make_step("shared")
    step.begin_stage(Stage(weight_decay=0.4, max_grad_norm=3.0, optimizer=name))
    latent = step.parameters.latent.clone()
    groups, places = [], [part.place for part in step.optimizer.parts]
    for part in step.optimizer.parts:
        groups.append({"params": [latent[part.place]], "weight_decay": part.decay})
    kind = torch.optim.Adam if name == "adam" else torch.optim.AdamW
    torchs = kind(groups, lr=0.0)
    for number in range(5):
        take(step, [number], kernel=False)
        norm = step.gradient.norm()
        whole = torch.cat([step.gradient, step.shared]) / (norm / 3.0).clamp_min(1.0)
        for group, place in zip(torchs.param_groups, places):
            group["params"][0].grad, group["lr"] = whole[place], 1e-2 / (1 + number)
        if torch.isfinite(norm):
            torchs.step()
    torch.testing.assert_close(step.parameters.latent, latent, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("kind", ["plain", "shared"])
def test_muon_moves_the_rest_as_adamw_does(kind):
    muon, adamw = (
        make_step(kind, optimizer=name, elements=ELEMENTS[:2]) for name in ("muon", "adamw")
    )
    matrices = [part.place for part in muon.optimizer.parts if part.shape is not None]
    # First weights, radial and angular coefficients; with a base first weights alone, twice.
    assert len(matrices) == (2 if kind == "shared" else 3)
    for step in (muon, adamw):
        take(step, [0], kernel=False)
    rest = torch.ones(len(muon.parameters.latent), dtype=torch.bool)
    for place in matrices:
        rest[place] = False
        assert (muon.optimizer.square[place] == 0).all() and muon.optimizer.mean[place].any()
    assert rest.any()
    for name in ("mean", "square"):
        found, wanted = (getattr(step.optimizer, name)[rest] for step in (muon, adamw))
        assert torch.equal(found, wanted)
    assert torch.equal(muon.parameters.latent[rest], adamw.parameters.latent[rest])


@pytest.mark.parametrize("number", [torch.nan, torch.inf])
@pytest.mark.parametrize("kernel", [True, False])
def test_no_gradient_destroys_what_muon_moves(kernel, number):
    step = make_step("shared", optimizer="muon")
    take(step, range(2), kernel)
    before = step.parameters.latent.clone()
    step.gradient[17] = number
    (step.by_kernel if kernel else step._take_gradient)(1e-2, 0.3)
    assert torch.equal(step.parameters.latent, before) and step.skipped == 1


@pytest.mark.parametrize("names", [("muon", "adamw"), ("adamw", "muon"), ("muon", "adam")])
def test_another_optimizer_begins_anew(names):
    """The mean of squares of what Muon moved is 0, by which AdamW would divide."""
    step, other = (make_step("plain", optimizer=name) for name in names)
    take(step, range(3, 40), kernel=names[0] != "adam")
    other.load_state(step.state())
    before = other.parameters.latent.clone()
    other.gradient.copy_(1e-3 * step.gradient)
    other._take_gradient(1e-2, 0.3)
    # Adam's first step is the rate at most, and so about is Muon's.
    assert (other.parameters.latent - before).abs().max() < 0.2
    assert other.optimizer.steps == 1


def test_adam_has_no_kernel():
    step = make_step("plain")
    step.begin_stage(Stage(optimizer="adam"))
    assert step.by_kernel is None
    step.begin_stage(Stage())
    assert step.by_kernel is not None


def test_matrices_out_of_reach_of_the_batch_decay_and_stay():
    step = make_step("plain", optimizer="muon")
    take(step, [0])
    whole = step.model.shapes["hidden_weight_0"]
    one = slice(0, whole[1] * whole[2])  # the first element's
    place = step.parameters.stretches["hidden_weight_0"].start
    one = slice(place + one.start, place + one.stop)
    before, momentum = step.model.flat[one].clone(), step.optimizer.mean[one].clone()
    step.gradient[one] = 0.0
    step.by_kernel(1e-2, 0.3)
    assert torch.equal(step.optimizer.mean[one], momentum)
    torch.testing.assert_close(step.model.flat[one], before * (1 - 1e-2 * 0.4))


@jit
def in_turns(part, n_parts, crowd, turns, seen):
    """Every thread counts, and looks at the next one's count after all have counted."""
    for turn in range(turns):
        seen[part, 0] += 1
        meet(crowd)
        if seen[(part + 1) % n_parts, 0] != turn + 1:
            seen[part, 1] += 1
        meet(crowd)


def test_where_nothing_can_be_written_kernels_are_compiled_in_every_process(monkeypatch):
    monkeypatch.setattr(CacheImpl, "_locator_classes", [])
    with pytest.raises(RuntimeError, match="cannot cache"):
        numba.njit(cache=True)(lambda x: 2 * x)
    double = jit(lambda x: 2 * x)
    assert double(4) == 8 and double.stats.cache_path is None


@pytest.mark.parametrize("count", [1, 2, 3, 5])
def test_threads_meet(count):
    seen = np.zeros((count, 2), np.int64)
    run_together(in_turns, count, 200, seen)
    assert seen.tolist() == [[200, 0]] * count


@pytest.mark.parametrize("failing", [0, 1, 2])
def test_nobody_waits_for_a_thread_that_failed(failing):
    class Failing:
        """Only one thread's call fails: the others would meet it."""

        def __call__(self, part, n_parts, crowd, turns, seen):
            if part == failing:
                raise KeyboardInterrupt
            in_turns(part, n_parts, crowd, turns, seen)

    seen = np.zeros((3, 2), np.int64)
    with pytest.raises(KeyboardInterrupt):
        run_together(Failing(), 3, 10, seen)
    assert seen[:, 0].tolist() == [10 * (part != failing) for part in range(3)]
