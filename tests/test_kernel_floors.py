"""What scripts/kernel_floors.py counts, as far as it can be seen without a GPU."""

import importlib
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from structures import all_in_one, make_ready, model_settings, odd_shape, random_model
from test_fused import everything

from nepkit.model.fused import FusedEvaluation

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture
def floors(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "scripts")
    return importlib.import_module("kernel_floors")


def test_bytes_and_operations_of_calls(floors):
    left, right, row = torch.ones(3, 4), torch.ones(4, 5), torch.ones(5)
    with floors.Recorder() as recorder:
        product = left @ right
        product.add_(row.expand(3, 5))
        product.t()
        row.copy_(product[0])
    found = recorder.operators
    assert (found["aten::mm"].bytes, found["aten::mm"].operations) == (4 * (12 + 20 + 15), 120)
    assert found["aten::add_"].bytes == 4 * (15 + 5 + 15)
    assert found["aten::t"].bytes == 0 and found["aten::t"].calls == 1
    assert found["aten::copy_"].bytes == 4 * (5 + 5)


def test_operators_of_nepkit_are_counted(floors):
    record = importlib.import_module("operator_record")
    elements, frames = odd_shape("all kinds")
    settings = model_settings(elements)
    model, batch = random_model(settings), all_in_one(make_ready(frames, settings))
    with floors.Recorder() as recorder, torch.no_grad():
        evaluation = FusedEvaluation(model, batch, model.flat)
        everything(evaluation)
    found = recorder.operators
    for name in record.OPERATIONS:
        assert found[f"nepkit::{name}"].operations > 0, name
    radial, angular = evaluation.coefficients
    rows = len(batch.row_center)
    wanted = 2 * rows * (radial[0].numel() + angular[0].numel() * evaluation.s.shape[2])
    # Of the densities and of the tangents.
    assert found["nepkit::contracted_rows"].operations == 2 * wanted
    wanted = sum(t.numel() for t in (*evaluation.densities, radial, angular)) + evaluation.s.numel()
    wanted += len(batch.types) * radial.shape[1]
    indices = 4 * (len(evaluation.group) + len(batch.row_start))
    assert found["nepkit::contracted_rows"].bytes == 2 * (8 * wanted + indices)


def test_kernels_outside_of_operators(floors, monkeypatch):
    pytest.importorskip("triton")
    from triton.runtime.jit import JITFunction

    from nepkit.ops.triton.segment import sum_kernel

    monkeypatch.setattr(JITFunction, "run", lambda kernel, *args, **options: "launched")
    recorder = floors.Recorder()
    with floors.triton_noted(recorder):
        assert sum_kernel[(1,)](torch.ones(6), torch.ones(2, 3), 7, SEGMENTS=1) == "launched"
        recorder.inside = True
        sum_kernel[(1,)](torch.ones(6))
    (name,) = recorder.operators
    assert name == "segment.sum_kernel" and recorder.operators[name].bytes == 48


def event(category, name, start, duration, correlation=None):
    args = {} if correlation is None else {"correlation": correlation}
    return {"ph": "X", "cat": category, "name": name, "ts": start, "dur": duration, "args": args}


def test_times_over_floors(floors):
    recorder = floors.Recorder()
    recorder.note("nepkit::one", 2000, 100)
    recorder.note("aten::other", 100, 9000)
    recorder.note("aten::view", 0, 0)
    events = [
        event("user_annotation", "floors/nepkit::one", 0.0, 10.0),
        event("user_annotation", "floors/aten::other", 10.0, 5.0),
        event("user_annotation", "update", 0.0, 20.0),
        event("cuda_runtime", "cudaLaunchKernel", 1.0, 1.0, 1),
        event("cuda_driver", "cuLaunchKernelEx", 3.0, 1.0, 2),
        event("cuda_runtime", "cudaLaunchKernel", 12.0, 1.0, 3),
        event("cuda_runtime", "cudaMemcpyAsync", 17.0, 1.0, 4),
        event("kernel", "first_kernel", 30.0, 4.0, 1),
        event("kernel", "second_kernel", 35.0, 2.0, 2),
        event("kernel", "vectorized", 40.0, 3.0, 3),
        event("gpu_memcpy", "Memcpy HtoD", 45.0, 1.0, 4),
    ]
    operators = recorder.operators
    floors.add_times(operators, events)
    ceilings = {"bytes_per_us": 1000.0, "operations_per_us": 3000.0, "us_per_launch": 1.5}
    floors.per_step(operators, 1, ceilings)
    assert {n: (o.launches, o.us, o.floor_us) for n, o in operators.items()} == {
        "nepkit::one": (2, 6.0, 2.0),
        "aten::other": (1, 3.0, 3.0),
        floors.OUTSIDE: (1, 1.0, 0.0),
    }
    lines = floors.report("pbte", 25, operators).splitlines()
    assert lines[0] == "pbte, 25 frames a step"
    assert lines[3].split() == ["nepkit::one", "2.0", "3.00", "6.00", "0.00", "0.0", "2.00", "3.0"]
    assert lines[4].split() == ["first_kernel", "1.0", "4.00", "4.00"]
    summary = floors.summary(20.0, operators, ceilings)
    assert "20.0 µs: 9.0 in 3 kernels, 11.0 between them" in summary
    assert "floor of bytes and operations is 5.0 µs, that of so many launches 4.5 µs" in summary


@pytest.mark.filterwarnings("ignore")  # of the profiler, which finds no GPU
def test_what_a_graph_holds_is_recorded(floors, monkeypatch):
    class Graphs:
        def _run(self, values):
            values @ values

    class Step:
        graphs, direct = Graphs(), []
        run_directly = direct.append

    def take():
        Step.graphs._run(torch.ones(2, 2) + 1)

    take.run = SimpleNamespace(step=Step)
    plain = Step.graphs._run
    pytest.importorskip("triton")
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    found = floors.recorded(take)
    assert set(found) == {"aten::mm"} and found["aten::mm"].calls == floors.STEPS
    assert Step.direct == [True, False] and Step.graphs._run == plain


def test_a_gpu_is_asked_for(floors, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(SystemExit, match="needs a GPU"):
        floors.main([])
