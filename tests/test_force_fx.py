"""Energies, forces and gradients by torch's own derivatives, traced into one graph (make_fx)."""

import shutil
import subprocess
import sys
from functools import cache

import numpy as np
import pytest
import torch
from shares import environment
from structures import ODD_SHAPES, model_settings, odd_shape, random_model
from test_gradient import EVERY, STAGES, relative, with_targets

from nepkit.data.buckets import Ladder
from nepkit.model.rows import RowEvaluation
from nepkit.ops.force_fx import materialised
from nepkit.ops.policy import Contract, reference_path
from nepkit.ops.segment import Segments
from nepkit.train.loss import rules_of
from nepkit.train.objective import analytic, differentiated, error_sums
from nepkit.train.step import Step
from nepkit.train.traced import TracedAutograd, run_graph, traced

# A trace takes ten seconds and more, and fewer for a small model: most tests share one.
SMALL = {"l_max": 2, "n_max": (1, 1), "basis_size": (2, 2)}
MULSUM = Contract("mulsum", True)


@cache
def model_and_function(elements):
    """One model, and one trace, for all tests of its elements."""
    settings = model_settings(elements, **SMALL, invariants=("q222",))
    return random_model(settings), TracedAutograd()


def compared(name, frames, model, function, use_virial=True, filled=True, split=True):
    """Loss, terms, slopes and gradient of ``function`` against those of ``analytic``.

    ``filled``: with ghosts; ``split``: also as a part of a larger batch.
    """
    elements, members = odd_shape(name)
    _, prepared = with_targets(elements, members)
    ladder = Ladder(prepared.structures)
    frames = np.arange(len(prepared)) if frames is None else np.array(frames)
    batch = ladder.batch(frames) if filled else prepared.structures.batch(torch.tensor(frames))
    rules = rules_of(STAGES["rmse"], len(elements), model.flat)
    common = (model, batch, model.flat, rules, use_virial, MULSUM)
    for arguments in [common] + [(*common, 2.5 * error_sums(*common))] * split:
        found, gradient = function(*arguments)
        wanted, wanted_gradient = analytic(*arguments)
        for field in ("value", "terms", "energy", "forces", "virial"):
            one, other = getattr(found, field), getattr(wanted, field)
            if other is None:
                assert one is None
            else:
                torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-10)
        assert relative(gradient, wanted_gradient) < 1e-10


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(n, marks=pytest.mark.slow) if n in ("one type", "89 types") else n
        for n in ODD_SHAPES
    ],
)
def test_traced_objective_equals_the_analytic_one(name):
    """Odd frames of all kinds through a trace made with others, as far as elements agree."""
    model, function = model_and_function(odd_shape(name)[0])
    compared(name, None, model, function)
    compared(name, [0], model, function)
    compared(name, [0], model, function, filled=False)  # not even a ghost


@pytest.mark.slow
def test_without_virials():
    model, function = model_and_function(odd_shape("all kinds")[0])
    compared("all kinds", None, model, function, use_virial=False, split=False)


@pytest.mark.parametrize("name", ["all kinds", pytest.param("one type", marks=pytest.mark.slow)])
def test_traced_energies_forces_and_virials(name):
    elements, members = odd_shape(name)
    settings, prepared = with_targets(elements, members, invariants=("q1111", "q112"))
    model, ladder = random_model(settings), Ladder(prepared.structures)
    graph = None
    for frames in ([0], [2, 1, 1], np.arange(len(prepared))):
        batch = ladder.batch(np.array(frames))
        if graph is None:
            graph = traced(
                lambda batch, flat: differentiated(model, batch, flat, MULSUM), batch, [model.flat]
            )
        evaluation = RowEvaluation(model, batch, model.flat, MULSUM)
        wanted = evaluation.frames.sum(evaluation.atom_energies), *evaluation.forces_and_virials()
        for one, other in zip(run_graph(graph, batch, model.flat), wanted, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-10)


def test_constants_of_the_model_are_read_anew():
    model, function = model_and_function(odd_shape("all kinds")[0])
    compared("all kinds", [0, 1], model, function, split=False)
    graphs = list(function.graphs)
    kept = model.q_scaler.clone(), model.flat.clone()
    model.q_scaler.mul_(1.3)
    model.flat.mul_(0.9)
    try:
        compared("all kinds", [0, 1], model, function, split=False)
    finally:
        model.q_scaler.copy_(kept[0])
        model.flat.copy_(kept[1])
    assert list(function.graphs) == graphs


def test_cutoffs_of_elements_stay_tensors():
    """They are made once and kept, and must not be kept as tensors of a trace."""
    settings, prepared = with_targets(
        *odd_shape("all kinds"), **SMALL, radial=(4.3, 3.7), angular=(3.1, 3.6)
    )
    model, frames = random_model(settings), np.arange(3)
    common = (model, prepared.structures, STAGES["mse"])
    traced = Step(*common, use_virial=True, force_mode="autograd")
    with reference_path():
        analytic = Step(*common, use_virial=True)
    values = [step.differentiate(frames).value for step in (traced, analytic)]
    torch.testing.assert_close(*values, rtol=1e-11, atol=0)
    assert relative(traced.gradient, analytic.gradient) < 1e-10


@pytest.mark.parametrize("every", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_nothing_is_scattered_over_weights_or_pairs(every):
    """Sums over segments are single nodes of the graph, and nothing is added with an index."""
    elements, frames = odd_shape("all kinds")
    model, function = model_and_function(elements)
    if every:
        sizes = {"n_max": (1, 0), "basis_size": (1, 1), "invariants": EVERY}
        model, function = random_model(model_settings(elements, **sizes)), TracedAutograd()
    batch = Ladder(with_targets(elements, frames)[1].structures).batch(np.arange(3))
    rules = rules_of(STAGES["rmse"], len(elements), model.flat)
    for contract in (MULSUM, Contract("bmm", False)) if every else (MULSUM,):
        function(model, batch, model.flat, rules, True, contract)
    for graph, _ in function.graphs.values():
        assert_nothing_scattered(graph)


def assert_nothing_scattered(graph):
    names = {str(node.target) for node in graph.graph.nodes if node.op == "call_function"}
    adding = ("index_put", "scatter_add", "scatter_reduce", "index_add", "embedding", "_bag")
    assert not [name for name in names if any(word in name for word in adding)]
    assert "nepkit.segment_sum.default" in names
    # The permutation of atoms and its inverse, written without adding.
    scatters = [node for node in graph.graph.nodes if "scatter" in str(node.target)]
    widths = {node.meta["val"].dim() for node in scatters if "slice" not in str(node.target)}
    assert widths <= {1}


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("g++"), reason="needs a C++ compiler")
@pytest.mark.filterwarnings("default")  # of torch, while it compiles
def test_compiled_once_for_batches_of_all_sizes():
    settings = model_settings(("Si",), l_max=1, n_max=(1, 0), basis_size=(1, 1), invariants=())
    model, function = random_model(settings), TracedAutograd(compiled=True)
    counts = []
    # Below some tens of members Inductor chooses by their number.
    for frames in (16 * [0, 1, 2], 20 * [0, 2], 33 * [2, 0, 1]):
        compared("one type", frames, model, function, split=False)
        ((_, run),) = function.graphs.values()
        assert run.proven and not run.failure
        counts.append(torch._dynamo.utils.counters["stats"]["unique_graphs"])
    assert len(set(counts)) == 1


def test_lengths_of_one_and_fixed_lengths_are_refused():
    with pytest.raises(ValueError, match="too short"):
        materialised(lambda a: [a], [torch.zeros(1)], [])
    with pytest.raises(RuntimeError, match="one length only"):
        materialised(lambda a: [a.new_zeros(len(a)) + a], [torch.zeros(5)], [])
    start, owner = torch.tensor([0, 2, 5]), torch.tensor([0, 0, 1, 1, 1])
    graph = materialised(
        lambda a, start, owner: [Segments(start, owner).sum(a)],
        [torch.zeros(5, 2), start, owner],
        [],
    )
    assert graph(torch.ones(5, 2), start, owner)[0].tolist() == [[2.0, 2.0], [3.0, 3.0]]


WITHOUT = """
import sys, torch
# As a build that does not load it by itself.
sys.modules.pop("torch.backends.opt_einsum", None)
for module in (torch.backends, getattr(torch.backends, "m", torch.backends)):
    vars(module).pop("opt_einsum", None)
assert not hasattr(torch.backends, "opt_einsum")
from nepkit.ops.force_fx import materialised
assert torch.backends.opt_einsum.is_available() in (True, False)

def slope(a):
    a = a.detach().requires_grad_()
    with torch.enable_grad():
        return [torch.autograd.grad(torch.einsum("ij,ik,ij->", a, a, a), a)[0]]

a = torch.arange(6.0).view(3, 2)
print(torch.equal(materialised(slope, [a], [])(a)[0], slope(a)[0]))
"""


def test_where_torch_does_not_load_opt_einsum_by_itself():
    command = [sys.executable, "-c", WITHOUT]
    found = subprocess.run(
        command, capture_output=True, text=True, env=environment(), check=False, timeout=120
    )
    assert found.stdout.strip() == "True", found.stderr
