"""The objective ``autograd`` as a graph of plain operators, for compilers and captured graphs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields

import torch
from torch import Tensor
from torch.fx import GraphModule

from ..data.batch import Batch
from ..data.feed import of_tensors, tensors
from ..model.compiled import Compiled
from ..model.nep import Nep
from ..ops.force_fx import materialised
from ..ops.policy import Contract
from .loss import LossResult, Rules
from .objective import autograd

LOSS_RESULT = [field.name for field in fields(LossResult)]


class TracedAutograd:
    """``autograd`` traced when it is first called, ``compiled`` or run operator by operator.

    One trace serves batches of all sizes, but the first has to be filled up (Ladder).
    """

    def __init__(self, compiled: bool = False):
        self.compiled = compiled
        self.graphs: dict[tuple, tuple[GraphModule, Callable]] = {}

    def __call__(
        self,
        model: Nep,
        batch: Batch,
        flat: Tensor,
        rules: Rules,
        use_virial: bool,
        contract: Contract | None = None,
        totals: Tensor | None = None,
    ) -> tuple[LossResult, Tensor]:
        """As ``autograd``."""
        others = [flat, *rules[1:]] + ([] if totals is None else [totals])
        key = (model, rules.form, use_virial, contract, totals is None, *batch.tables)
        if key not in self.graphs:

            def objective(batch, flat, *numbers):
                given = Rules(rules.form, *numbers[: len(rules) - 1])
                total = numbers[len(rules) - 1 :]
                result, gradient = autograd(model, batch, flat, given, use_virial, contract, *total)
                return [*(getattr(result, name) for name in LOSS_RESULT), gradient]

            run = Compiled(run_graph) if self.compiled else run_graph
            self.graphs[key] = traced(objective, batch, others), run
        graph, run = self.graphs[key]
        with torch.no_grad():
            *values, gradient = run(graph, batch, *others)
        return LossResult(*values), gradient


def traced(
    function: Callable[..., list[Tensor | None]], batch: Batch, others: list[Tensor]
) -> GraphModule:
    """The graph of ``function(batch, *others)``, for run_graph with batches of any size."""
    ragged, names = tensors(batch), list(batch.tables)

    def of_values(*values):
        members, rest = values[: len(ragged)], values[len(ragged) :]
        return function(of_tensors(list(members), names), *rest)

    return materialised(of_values, ragged, others)


def run_graph(graph: GraphModule, batch: Batch, *others: Tensor) -> list[Tensor | None]:
    """What the traced function returns for ``batch``."""
    return graph(*tensors(batch), *others)
