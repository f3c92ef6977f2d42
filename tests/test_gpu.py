"""Training on a GPU: equal to the CPU, to itself, and in any place of the data."""

from pathlib import Path

import numpy as np
import pytest
import torch
from structures import ODD_SHAPES, make_ready, model_settings, odd_shape, random_model
from test_engine import FORBIDDEN, labelled
from torch._inductor.utils import run_and_get_code

from nepkit import train_nep
from nepkit.config import Stage
from nepkit.data.buckets import Ladder
from nepkit.data.feed import moved
from nepkit.data.sampler import Sampler
from nepkit.model.compiled import Compiled, compiled_contract
from nepkit.model.evaluate import predict
from nepkit.model.evaluator import attach_constants
from nepkit.model.nep import Nep
from nepkit.ops.geometry import Geometry
from nepkit.ops.policy import reference_path
from nepkit.train import graph, loop, reading, residence
from nepkit.train.gradient import finished
from nepkit.train.loss import rules_of
from nepkit.train.objective import analytic
from nepkit.train.parametrisation import Plain
from nepkit.train.shared import Shared
from nepkit.train.signals import Interrupted
from nepkit.train.step import Step

SIGE = Path(__file__).resolve().parents[1] / "data" / "sige"
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU"),
    pytest.mark.filterwarnings("ignore"),
]


def on_gpu(model: Nep) -> Nep:
    there = Nep(model.settings, model.pair_types, device="cuda", dtype=model.flat.dtype)
    for name in ("flat", "q_scaler", "file_q_scaler", "element_energy"):
        getattr(there, name).copy_(getattr(model, name))
    return there


def weights_after(steps, prepared, model, stage, *, parts=1):
    """Parameters, average and losses after ``steps`` steps on all frames."""
    model = on_gpu(model)
    kind = Shared if len(model.settings.elements) > 3 else Plain
    step = Step(model, prepared.structures, stage, use_virial=True, parametrisation=kind)
    step.graphs.parts = parts
    members = np.arange(len(prepared))
    losses = [float(step(members, 1e-3, k)) for k in range(steps)]
    return model.flat.cpu(), step.average.cpu(), losses


@pytest.mark.parametrize("name", ODD_SHAPES)
def test_kernels_equal_their_definition(name):
    settings = model_settings(odd_shape(name)[0], l_max=4)
    prepared = make_ready(odd_shape(name)[1], settings)
    batch = Ladder(prepared.structures).batch(np.arange(len(prepared)))
    here, there = (
        Geometry(moved(batch, torch.device(device)), settings, torch.float64)
        for device in ("cpu", "cuda")
    )
    n_atoms, n_rows = prepared.structures.counts.sum(0)[:2]
    generator = torch.Generator().manual_seed(0)
    wanted = here.densities()
    for one, other in zip(there.densities(), wanted):
        torch.testing.assert_close(one[:n_rows].cpu(), other[:n_rows], rtol=1e-11, atol=1e-11)
    outer = [torch.randn(w.shape, generator=generator, dtype=w.dtype) for w in wanted]
    forces, virials = here.forces_and_virials(*outer)
    found = there.forces_and_virials(*(o.cuda() for o in outer))
    for one, other, size in zip(found, (forces, virials), (n_atoms, len(prepared))):
        torch.testing.assert_close(one[:size].cpu(), other[:size], rtol=1e-11, atol=1e-10)
    tangents = here.tangent_densities(forces, virials)
    found = there.tangent_densities(forces.cuda(), virials.cuda())
    for one, other in zip(found, tangents):
        torch.testing.assert_close(one[:n_rows].cpu(), other[:n_rows], rtol=1e-11, atol=1e-9)


@pytest.mark.parametrize("name", ["all kinds", "89 types", "no neighbours"])
@pytest.mark.parametrize(
    "stage", [Stage(), Stage(loss_form="rmse", lambda_1=0.01)], ids=["mse", "rmse"]
)
def test_steps_equal_those_of_the_cpu(name, stage):
    model, prepared = labelled(*odd_shape(name), invariants=("q222", "q1111"))
    members = np.arange(len(prepared))
    with reference_path():
        step = Step(model, prepared.structures, stage, use_virial=True)
        wanted = step.differentiate(members)
        gradient = step.gradient
        expected = predict(model, prepared)
    prepared.structures.move("cuda")
    attach_constants(prepared.structures, model.settings)
    there = on_gpu(model)
    step = Step(there, prepared.structures, stage, use_virial=True)
    batch = Ladder(prepared.structures).batch(members)
    found = finished(step.batch.of_batches([batch]), lambda tensor: None)
    assert float(found.value) == pytest.approx(float(wanted.value), rel=1e-11)
    size = gradient.abs().max().item()
    torch.testing.assert_close(step.gradient.cpu(), gradient, rtol=1e-10, atol=1e-11 * size)
    predicted = predict(there, prepared)
    for field in ("energy", "forces", "virial"):
        one, other = getattr(predicted, field), getattr(expected, field)
        np.testing.assert_allclose(one, other, rtol=1e-10, atol=1e-9)
    assert float(step(members, 1e-3, 0)) == pytest.approx(float(wanted.value), rel=1e-11)


@pytest.mark.slow
def test_compiled_step_has_no_atomics():
    model, prepared = labelled(*odd_shape("all kinds"), invariants=("q222",))
    prepared.structures.move("cuda")
    model = on_gpu(model)
    batch = Ladder(prepared.structures).batch(np.arange(len(prepared)))
    rules = rules_of(Stage(), 2, model.flat)
    function = Compiled(analytic)
    _, code = run_and_get_code(
        function, model, batch, model.flat, rules, True, compiled_contract(model), None
    )
    assert not function.failure and code
    assert not [word for word in FORBIDDEN for text in code if word in text]


def test_steps_repeat_bit_by_bit():
    model, prepared = labelled(*odd_shape("all kinds"))
    prepared.structures.move("cuda")
    one, other = (weights_after(20, prepared, model, Stage()) for _ in range(2))
    assert torch.equal(one[0], other[0]) and torch.equal(one[1], other[1])


def test_a_batch_in_parts():
    model, prepared = labelled(*odd_shape("all kinds"))
    prepared.structures.move("cuda")
    whole, parts = (weights_after(20, prepared, model, Stage(), parts=n) for n in (1, 3))
    torch.testing.assert_close(parts[0], whole[0], rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("lie", [False, True])
def test_graphs_are_checked_where_they_have_to_be(monkeypatch, lie):
    """On ROCm a graph is used only if it repeats what direct steps do."""
    model, prepared = labelled(*odd_shape("all kinds"))
    prepared.structures.move("cuda")
    said = []
    if lie:
        monkeypatch.setattr(graph.StepGraphs, "_repeats", lambda *_: False)

    def after(check):
        there = on_gpu(model)
        step = Step(there, prepared.structures, Stage(), use_virial=True, tell=said.append)
        step.graphs.trusted = None if check else True
        for k in range(5):
            step(np.arange(len(prepared)), 1e-3, k)
        assert step.graphs.trusted is not (check and lie)
        return there.flat

    assert torch.equal(after(check=True), after(check=False))
    assert any("one by one" in line for line in said) == lie


def run_directory(folder: Path) -> Path:
    folder.mkdir(parents=True)
    for name in ("train.xyz", "test.xyz"):
        (folder / name).write_bytes((SIGE / name).read_bytes())
    (folder / "nep.in").write_text(
        "type 2 Si Ge\ncutoff 5 4\nneuron 10\nbatch 7\ngeneration 40\noutput_interval 20\nema 0.9\n"
    )
    return folder


def files_of(folder: Path) -> dict[str, bytes]:
    names = ("nep.txt", "nep_best.txt", "loss.out", "force_test.out")
    return {name: (folder / name).read_bytes() for name in names}


def test_runs_repeat_and_do_not_depend_on_where_data_live(tmp_path, monkeypatch):
    """Same seed, same bits: with all on the GPU, with pairs alone there, and with nothing there."""
    plain = run_directory(tmp_path / "plain")
    train_nep(plain, device="cuda")
    again = run_directory(tmp_path / "again")
    train_nep(again, device="cuda")
    assert files_of(again) == files_of(plain)
    for name, constants, room, line in (
        ("pairs", 10**15, 10**12, "computed each step"), ("host", 0, 0, "in host memory")
    ):  # fmt: skip
        folder = run_directory(tmp_path / name)
        with residence.memory_budget(room), monkeypatch.context() as patch:
            if constants:
                patch.setattr(residence, "table_bytes", lambda *_: constants)
            train_nep(folder, device="cuda")
        assert line in (folder / "nepkit.log").read_text()
        assert files_of(folder) == files_of(plain), name


def test_a_run_goes_on_bit_by_bit(tmp_path, monkeypatch):
    straight, broken = (run_directory(tmp_path / name) for name in ("straight", "broken"))
    train_nep(straight, device="cuda")
    save = loop.Run.save

    def save_and_stop(self, *stops):
        save(self, *stops)
        raise Interrupted

    monkeypatch.setattr(loop.Run, "save", save_and_stop)
    with pytest.raises(Interrupted):
        train_nep(broken, device="cuda")
    monkeypatch.undo()
    train_nep(broken, device="cuda")
    assert files_of(broken) == files_of(straight)


def test_single_precision_stays_near_double(tmp_path):
    """The first 50 steps: losses of float32 agree with those of float64 to 1e-4."""
    model, prepared = labelled(*odd_shape("all kinds"))
    settings = model.settings
    single = make_ready(odd_shape("all kinds")[1], settings, torch.float32)
    for name, (kind, values) in prepared.structures.tables.items():
        single.structures.attach(kind, name, values[:-1].float())
    double = weights_after(50, prepared_on_gpu(prepared), model, Stage())[2]
    low = random_model(settings)
    low32 = Nep(settings, low.pair_types, device="cpu", dtype=torch.float32)
    for name in ("flat", "q_scaler", "file_q_scaler", "element_energy"):
        getattr(low32, name).copy_(getattr(low, name))
    found = weights_after(50, prepared_on_gpu(single), low32, Stage())[2]
    assert found == pytest.approx(double, rel=1e-4)


def prepared_on_gpu(prepared):
    prepared.structures.move("cuda")
    return prepared


def test_a_store_feeds_a_gpu(tmp_path, monkeypatch):
    """Read onto the GPU piece by piece, or a window at a time into host memory: the same bits."""
    plain = run_directory(tmp_path / "plain")
    train_nep(plain, device="cuda")
    monkeypatch.setattr(reading, "STORED", 0)
    monkeypatch.setattr("nepkit.data.store.PIECE", 20_000)
    whole = run_directory(tmp_path / "whole")
    monkeypatch.setattr(residence, "HOST", 0)
    train_nep(whole, device="cuda")
    assert "on the GPU" in (whole / "nepkit.log").read_text()
    assert files_of(whole) == files_of(plain)
    parts, again = (run_directory(tmp_path / name) for name in ("parts", "again"))
    with residence.memory_budget(50_000):
        train_nep(parts, device="cuda")
    said = (parts / "nepkit.log").read_text()
    number = int(said.split(" parts an epoch")[0].split()[-1])
    assert number > 1

    def sampler(structures, batch, seed, stage):
        work = structures.counts[:, 2:].sum(1).astype(float)
        return Sampler(work, batch, seed, stage, number)

    monkeypatch.setattr(loop, "sampler_of", sampler)
    train_nep(again, device="cuda")  # all in memory, in the order of the windows
    assert files_of(again) == files_of(parts)
