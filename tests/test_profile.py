"""Steps under the profiler: the trace, the table of stages, and that nothing else changes."""

import json
import os
import signal
from collections import Counter

import numpy as np
import pytest
import torch
from run_files import make_run, random_frames
from structures import odd_shape, on_path, random_model
from test_gradient import with_targets
from test_resume import assert_same_run

from nepkit import Interrupted, UserError, cli, profile, train_nep
from nepkit.config import Stage
from nepkit.data.buckets import Ladder
from nepkit.ops.force_fx import materialised
from nepkit.ops.policy import Contract
from nepkit.ops.stages import stage
from nepkit.ops.tables import with_tables
from nepkit.train import loop
from nepkit.train.graph import StepGraphs
from nepkit.train.loss import rules_of
from nepkit.train.objective import analytic
from nepkit.train.profiling import _formatted, stage_table
from nepkit.train.world import ALONE

ROWS = {
    "reference": {
        "batch", "densities", "contraction", "invariants", "network", "forces and virials", "loss",
        "tangent densities", "parameter gradients", "update", "evaluation",
    },
    "fused": {
        "batch", "contraction to forces", "loss",
        "tangent densities to parameter gradients", "update", "evaluation",
    },
}  # fmt: skip


def train(folder, **settings):
    return train_nep(folder, **{"device": "cpu", **settings})


def marks(path) -> list[dict]:
    events = json.loads(path.read_text())["traceEvents"]
    return [event for event in events if event.get("cat") == "user_annotation"]


@pytest.mark.parametrize("path", ROWS)
def test_profiled_steps_are_steps_like_others(path, tmp_path, capsys):
    folder = make_run(tmp_path / "run", test=random_frames(2, first_seed=70))
    with on_path(path):
        train(folder, out=tmp_path / "plain")
        capsys.readouterr()
        train(folder, out=tmp_path / "profiled", profile=4)
    told = capsys.readouterr().out
    (tmp_path / "profiled" / "profile.json").rename(tmp_path / "profile.json")
    assert_same_run(tmp_path / "profiled", tmp_path / "plain")
    found = marks(tmp_path / "profile.json")
    assert sum(mark["name"] == "step" for mark in found) == 4
    assert {mark["name"] for mark in found} >= ROWS[path]
    assert not list((tmp_path / "profiled").glob("*.tmp"))
    table = told[told.index("4 steps of") :].splitlines()
    table = table[: [row.startswith("all else") for row in table].index(True) + 1]
    assert len(table) == min(len(ROWS[path]), 10) + 3
    assert max(map(len, table)) <= 80
    shares = [float(row.split()[-1].rstrip("%")) for row in table[2:]]
    assert sum(shares) == pytest.approx(100.0, abs=1.0)
    assert shares[:-1] == sorted(shares[:-1], reverse=True)


def test_names_of_the_reference_autograd(tmp_path):
    folder = make_run(tmp_path / "run")
    with on_path("reference"):
        train(folder, profile=1, force_mode="autograd")
    assert "pair gradients" in {mark["name"] for mark in marks(folder / "profile.json")}


def test_fewer_steps_than_asked_for(tmp_path, capsys):
    folder = make_run(tmp_path / "run")
    with on_path("reference"):
        train(folder, profile=100, generation=2)
    assert "2 steps of" in capsys.readouterr().out


def test_interrupted_while_it_is_profiled(tmp_path, monkeypatch):
    folder = make_run(tmp_path / "run")
    take_step = loop.Run._take_step

    def interrupted(run, *arguments):
        if run.done == 2:
            os.kill(os.getpid(), signal.SIGTERM)
        return take_step(run, *arguments)

    monkeypatch.setattr(loop.Run, "_take_step", interrupted)
    with on_path("reference"):
        with pytest.raises(Interrupted):
            train(folder, profile=100)
        assert stage_table(folder / "profile.json").startswith("3 steps of")
        monkeypatch.undo()
        train(folder)  # without a trace of its own
    assert not torch.autograd._profiler_enabled()


def test_an_error_ends_the_profiler_too(tmp_path, monkeypatch):
    folder = make_run(tmp_path / "run")
    monkeypatch.setattr(loop, "learning_rate", lambda *_: 1 / 0)
    with on_path("reference"), pytest.raises(ZeroDivisionError):
        train(folder, profile=3)
    assert not torch.autograd._profiler_enabled()
    assert not (folder / "profile.json").exists()


@pytest.mark.parametrize("steps", [0, -3, "many", "2.5"])
def test_mistaken_numbers_of_steps(steps, tmp_path, capsys):
    folder = make_run(tmp_path / "run")
    with pytest.raises(UserError, match=f"profile {steps}: give the number of steps"):
        train(folder, profile=steps)
    assert cli.main(["train", str(folder), "--device", "cpu", f"--profile={steps}"]) == 2
    assert f"profile {steps}" in capsys.readouterr().err


def test_nothing_to_profile_in_a_prediction(tmp_path):
    folder = make_run(tmp_path / "run")
    with pytest.raises(UserError, match="profile 2: prediction 1 takes no steps"):
        train(folder, profile=2, prediction=1)


def test_a_file_of_somebody_else_stays(tmp_path):
    folder = make_run(tmp_path / "run")
    (folder / "profile.json").write_text("mine")
    with pytest.raises(UserError, match=r"profile\.json"):
        train(folder, profile=2)
    assert (folder / "profile.json").read_text() == "mine"


def test_command_and_the_table_once_more(tmp_path, capsys):
    folder = make_run(tmp_path / "run")
    with on_path("reference"):
        assert cli.main(["train", str(folder), "--device", "cpu", "--profile", "2"]) == 0
    told = capsys.readouterr().out
    assert profile.main([str(folder / "profile.json")]) == 0
    table = capsys.readouterr().out
    assert table in told
    rows = table.splitlines()[1:]
    assert len(rows) > 5 and len({len(row) for row in rows}) == 1
    (folder / "empty.json").write_text('{"traceEvents": []}')
    for arguments in ([], [str(folder / "nep.in")], [str(folder / "empty.json")], ["nowhere"]):
        assert profile.main(arguments) == 2
        assert capsys.readouterr().err.startswith("nepkit: ")


def test_columns_stand_below_each_other():
    """Also with a stage whose name is longer than most."""
    long = "tangent densities to parameter gradients"
    table = _formatted(Counter({long: 70.0, "loss": 20.0}), 100.0, 120.0, 1, False)
    assert len({len(row) for row in table.splitlines()[1:]}) == 1


def test_kernels_count_for_the_stage_that_launched_them(tmp_path):
    def event(cat, name, ts, dur, tid=1, **args):
        return {"ph": "X", "cat": cat, "name": name, "ts": ts, "dur": dur, "tid": tid, "args": args}

    events = [
        event("user_annotation", "step", 0, 1000),
        event("user_annotation", "evaluation", 100, 200),
        event("user_annotation", "network", 150, 20),
        event("user_annotation", "update", 400, 100),
        event("user_annotation", "elsewhere", 400, 100, tid=2),
        *(event("cuda_runtime", "launch", ts, 1, correlation=ts) for ts in (160, 410, 700)),
        event("kernel", "a", 500, 300, tid=7, correlation=160),
        event("gpu_memcpy", "b", 800, 100, tid=7, correlation=410),
        event("kernel", "c", 900, 100, tid=7, correlation=700),
        {"ph": "M", "name": "process_name"},
    ]
    (tmp_path / "trace.json").write_text(json.dumps({"traceEvents": events}))
    head, _, *rows = stage_table(tmp_path / "trace.json").splitlines()
    assert head.startswith("1 step of 1.00 ms, of which the GPU works 0.50 ms")
    assert [row.split() for row in rows] == [
        ["evaluation", "0.300", "60.0%"], ["update", "0.100", "20.0%"],
        ["all", "else", "0.100", "20.0%"],
    ]  # fmt: skip


def test_stages_are_nothing_without_a_profiler_and_in_compiled_code():
    def function(values):
        with stage("doubled"):
            return 2.0 * values

    assert stage("one") is stage("two")
    compiled = torch.compile(function, fullgraph=True, backend="eager")
    assert compiled(torch.ones(3)).tolist() == [2.0] * 3
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as found:
        compiled(torch.ones(3))
        graph = materialised(lambda values: [function(values)], [torch.ones(3)], [])
        function(torch.ones(3))
    assert {node.op for node in graph.graph.nodes} == {"placeholder", "call_function", "output"}
    assert len(graph.graph.nodes) == 3
    # Of the plain calls alone: that of materialised before it traces, and the last.
    assert sum(event.name == "doubled" for event in found.events()) == 2


def test_graphs_are_passed_over_for_direct_steps():
    class Feed:
        ladder = type("Ladder", (), {"sizes": staticmethod(np.size)})

        def inputs(self, parts):
            return [[torch.tensor(part.frames)] for part in parts]

        def batch(self, tensors, size):
            return tensors[0].tolist(), size

    graphs, taken = StepGraphs.__new__(StepGraphs), []
    graphs.feed, graphs.parts, graphs.direct, graphs.graphs = Feed(), 1, True, {}
    graphs.device, graphs.world, graphs.deal = torch.device("cpu"), ALONE, np.atleast_2d
    graphs.advance = lambda batches: iter(taken.extend(batches) or ())
    graphs(np.array([3, 1]))
    assert taken == [([3, 1], 2)] and not graphs.graphs


def test_a_step_compiles_whole_with_its_stages():
    settings, prepared = with_targets(("Si",), odd_shape("one type")[1], l_max=1, invariants=())
    model, batch = random_model(settings), Ladder(prepared.structures).batch(np.arange(3))
    batch = with_tables(batch, settings, torch.float64)  # which are not compiled
    common = (model, batch, model.flat, rules_of(Stage(), 1, model.flat), True)
    contract = Contract("mulsum", True)
    compiled = torch.compile(analytic, fullgraph=True, backend="eager")
    with torch.no_grad(), torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]):
        found, wanted = compiled(*common, contract), analytic(*common, contract)
    torch.testing.assert_close(found[1], wanted[1], rtol=1e-12, atol=1e-12)
