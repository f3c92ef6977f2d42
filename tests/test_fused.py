"""The fused evaluation in plain torch."""

import numpy as np
import pytest
import torch
from structures import (
    ODD_SHAPES,
    all_in_one,
    make_ready,
    model_settings,
    odd_shape,
    random_model,
)
from torch._dynamo.backends.debugging import aot_eager

from nepkit.config import HIGHER_INVARIANTS
from nepkit.data.buckets import Ladder
from nepkit.data.feed import tensors
from nepkit.model.fused import FusedEvaluation
from nepkit.model.rows import RowEvaluation
from nepkit.ops.tables import with_tables

MODELS = {
    "plain": {},
    "every invariant, two layers": {"invariants": tuple(HIGHER_INVARIANTS), "neuron": (5, 3)},
    "l_max 1": {"l_max": 1, "invariants": ("q1111",)},
    "l_max 8": {"l_max": 8, "n_max": (0, 1), "basis_size": (0, 1), "invariants": ("q222",)},
}


def noise(like):
    return torch.randn(like.shape, generator=torch.Generator().manual_seed(0), dtype=like.dtype)


def everything(evaluation, derivative=noise):
    """All that an evaluation gives, last the gradient of a loss whose ``derivative`` is given."""
    values = [evaluation.atom_energies, *evaluation.forces_and_virials()]
    parts = evaluation.gradient(*map(derivative, values))
    gradient = torch.cat([parts[name].flatten() for name in evaluation.model.shapes])
    return [evaluation.q, *values, gradient]


@pytest.mark.parametrize("ghosts", [False, True], ids=["alone", "with ghosts"])
@pytest.mark.parametrize("changes", MODELS.values(), ids=MODELS)
@pytest.mark.parametrize("name", ODD_SHAPES)
def test_fused_evaluation_equals_rows(name, changes, ghosts):
    elements, frames = odd_shape(name)
    settings = model_settings(elements, **changes)
    model, prepared = random_model(settings), make_ready(frames, settings)
    batch = all_in_one(prepared)
    if ghosts:
        batch = Ladder(prepared.structures).batch(np.arange(len(prepared)))
    found, wanted = (
        everything(kind(model, batch, model.flat)) for kind in (FusedEvaluation, RowEvaluation)
    )
    for one, other in zip(found, wanted, strict=True):
        scale = max(1.0, other.abs().max().item())
        torch.testing.assert_close(one, other, rtol=0, atol=1e-10 * scale)


def test_one_compilation_serves_batches_of_all_sizes():
    """Operators tell the compiler their shapes: it traces them whole, and once."""
    elements, frames = odd_shape("all kinds")
    settings = model_settings(elements, neuron=(5, 3))
    model, prepared = random_model(settings), make_ready(frames, settings)
    traced = []

    def backend(graph, example):
        traced.append(graph)
        return aot_eager(graph, example)

    def evaluated(batch):
        return everything(FusedEvaluation(model, batch, model.flat), torch.ones_like)

    function = torch.compile(evaluated, fullgraph=True, backend=backend)
    for chosen in ([0, 1, 2], [0, 1, 2, 3, 4, 5, 9, 10], [6, 7]):
        batch = Ladder(prepared.structures).batch(np.array(chosen))
        batch = with_tables(batch, settings, torch.float64)
        for tensor in tensors(batch):
            torch._dynamo.maybe_mark_dynamic(tensor, 0)
        with torch.no_grad():
            found, wanted = function(batch), evaluated(batch)
        for one, other in zip(found, wanted, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)
    assert len(traced) == 1
