"""Functions of a model and a batch under torch's compiler, once for batches of all sizes."""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType

import torch

from ..data.batch import Batch
from ..data.feed import tensors
from ..ops.policy import Contract, contraction_policy
from ..ops.stages import stage
from .nep import Nep


class Compiled:
    """``function(model, batch, ...)`` under Inductor, or as it is where that cannot be had.

    ``function`` takes tensors and constants and returns tensors; no gradients are recorded. It
    runs as it is after the first call has shown that nothing compiles here: then ``failure`` says
    why.
    """

    def __init__(self, function: Callable):
        # torch keeps what it compiled with the code, and not too much of it: a copy has room.
        code = function.__code__.replace()
        copy = FunctionType(code, function.__globals__, function.__name__, function.__defaults__)
        self.function, self.failure, self.proven = function, "", False
        self._compiled = torch.compile(copy, fullgraph=True, options=_options())

    def __call__(self, model: Nep, batch: Batch, *others):
        # What the compiler makes of a function has no stages any more.
        with torch.no_grad(), stage(self.function.__name__):
            if self.failure:
                return self.function(model, batch, *others)
            for tensor in tensors(batch):
                torch._dynamo.maybe_mark_dynamic(tensor, 0)
            try:
                result = self._compiled(model, batch, *others)
            except torch.OutOfMemoryError:
                raise
            except Exception as error:
                if self.proven:
                    raise
                self.failure = next(iter(str(error).splitlines()), type(error).__name__)
                return self.function(model, batch, *others)
            self.proven = True
            return result


def _options() -> dict:
    """What is asked of Inductor besides its defaults."""
    # The analysis asserts that sizes of different batches agree, in torch 2.8 to 2.11 at least.
    name = "triton.coalesce_tiling_analysis"
    return {name: False} if name in torch._inductor.list_options() else {}


def compiled_contract(model: Nep) -> Contract:
    """How rows meet coefficients in compiled functions of ``model``."""
    return contraction_policy(model.flat.device.type, True, len(model.settings.elements))
