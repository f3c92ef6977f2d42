"""The gradient of the loss of a batch, shared out over the processes of a run."""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from ..config import Stage
from ..data.batch import Batch
from ..data.buckets import Ladder
from ..data.sampler import dealt
from ..data.structures import Structures
from ..model.compiled import Compiled, compiled_contract
from ..model.evaluator import Evaluator
from ..model.nep import Nep
from ..ops.policy import kernels_on, on_reference_path
from ..ops.stages import stage
from ..ops.tables import with_tables
from .loss import LossResult, loss_by_kernel, loss_value, regularisation, rules_of, sums
from .objective import analytic, autograd, error_sums, fused, fused_error_sums, loss_of, predicted
from .traced import TracedAutograd
from .world import ALONE, World

FORCE_MODES = {"analytic": analytic, "autograd": autograd}
# What yields tensors that have to be added up over the processes before it goes on.
Sharing = Generator[Tensor, None, LossResult]


class BatchGradient:
    """From the frames of a batch to its loss and the gradient, the same on every process.

    Each process evaluates its share of the batch (sampler.dealt). Weights of the loss come from the
    labels of the whole batch, so that what the shares give adds up to its gradient, which travels
    with the squares of the errors and the wish to stop in one tensor, ``reduced``. The rmse form
    needs the sums of the errors first: one more evaluation, and six numbers added up.
    """

    def __init__(
        self,
        model: Nep,
        structures: Structures,
        *,
        use_virial: bool,
        force_mode: str,
        tell: Callable[[str], None],
        frozen: str,
        world: World = ALONE,
        labels: np.ndarray | None = None,
    ):
        """Arguments as in Step."""
        self.model, self.structures, self.use_virial = model, structures, use_virial
        self.evaluate = Evaluator(model, structures)
        self.fused = force_mode == "analytic" and self.evaluate.fused
        self.force_mode, self.function = force_mode, FORCE_MODES[force_mode]
        self.frozen = model.part(frozen) if frozen else []
        self.world, size, device = world, len(model.flat), model.flat.device
        self.reduced = model.flat.new_zeros(size + 4)
        self.gradient, self.squares, self.wish = self.reduced.split([size, 3, 1])
        self.totals = model.flat.new_zeros(6)  # as loss.sums, the numbers of labels alone
        self.work = structures.counts[:, 2:].sum(1)
        self.labels = labels if world.size > 1 else None
        self.sums, self.contract = error_sums, None
        on_gpu = device.type == "cuda" and not on_reference_path()
        if force_mode == "autograd" and not on_reference_path():
            self.function = TracedAutograd(on_gpu)
        if on_gpu:
            self._take_path(tell)

    def _take_path(self, tell: Callable[[str], None]):
        """Choose the functions that serve a GPU best."""
        if self.force_mode == "autograd":
            self.contract, self.sums = compiled_contract(self.model), Compiled(error_sums)
        elif kernels_on(self.model.flat.device):
            self.function, self.sums = fused, fused_error_sums
        else:
            tell("Triton is not installed: steps run without its kernels, and slower")

    def begin_stage(self, stage: Stage):
        """Go on with the rules of ``stage``."""
        self.stage = stage
        self.rules = rules_of(stage, len(self.model.settings.elements), self.model.flat)

    def deal(self, frames: np.ndarray) -> np.ndarray:
        """The shares of a batch of ``frames`` (B,), a line for each process, filled up with -1."""
        return dealt(frames, self.work, self.world.size)

    def of_frames(self, frames: np.ndarray) -> Sharing:
        """The loss of ``frames`` (B,) at the parameters of the model; ``gradient`` has its gradient."""
        if self.labels is not None:
            self.totals[3:] = torch.from_numpy(self.labels[frames].sum(0))
        own = self.deal(frames)[self.world.rank]
        own = own[own >= 0]
        if len(own) == 0:
            return (yield from self._of_nothing())
        if not self.fused:
            # What is traced with a batch that has room to spare serves all batches.
            traced = isinstance(self.function, TracedAutograd)
            with stage("batch"):
                if traced:
                    batch = Ladder(self.structures).batch(own)
                else:
                    batch = self.structures.batch(
                        torch.as_tensor(own, device=self.structures.device)
                    )
            return (yield from self.of_batches([batch]))
        evaluation = self.evaluate(torch.as_tensor(own))
        found = predicted(evaluation, self.use_virial)
        totals = yield from self._totals(lambda: sums(evaluation.batch, self.rules, *found))
        result, to_atoms = loss_of(evaluation, self.rules, found, totals, loss_by_kernel)
        evaluation.gradient_into(self.gradient, to_atoms, result.forces, result.virial)
        if self.world.size > 1:
            self.squares.copy_(result.squares.sum(0))
        return (yield from self._together(result))

    def _of_nothing(self) -> Sharing:
        """The part of a process that a small batch leaves without frames."""
        yield from self._totals(lambda: torch.zeros_like(self.totals))
        self.gradient.zero_()
        self.squares.zero_()
        none = self.gradient[:0]
        result = LossResult(none, none, none, none, none, none)
        return (yield from self._together(result))

    def of_batches(self, batches: list[Batch]) -> Sharing:
        """The same of a share in parts, whose gradients add up."""
        if self.force_mode == "analytic":
            # Once for both passes over a batch in parts.
            settings, dtype = self.model.settings, self.gradient.dtype
            with stage("densities"):
                batches = [with_tables(batch, settings, dtype) for batch in batches]
        flat, common = self.model.flat, (self.rules, self.use_virial, self.contract)

        def own_sums() -> Tensor:
            parts = [self.sums(self.model, batch, flat, *common) for batch in batches]
            return sum(parts[1:], parts[0])

        totals = yield from self._totals(own_sums, len(batches))
        for number, batch in enumerate(batches):
            result, gradient = self.function(self.model, batch, flat, *common, totals)
            pairs = [(self.gradient, gradient)]
            if self.world.size > 1:
                pairs.append((self.squares, result.squares.sum(0)))
            for mine, new in pairs:
                if number == 0:
                    mine.copy_(new)
                else:
                    mine += new
        return (yield from self._together(result))

    def _totals(self, own_sums: Callable[[], Tensor], n_parts: int = 1):
        """What the loss of a part needs to know of the whole batch; None where the part is all."""
        if self.world.size > 1 and self.rules.form == "mse":
            return self.totals
        if self.world.size == 1 and n_parts == 1:
            return None
        totals = own_sums()
        if self.world.size > 1:
            yield totals
            self.totals.copy_(totals)
        return totals

    def _together(self, result: LossResult) -> Sharing:
        """The result of the whole batch, from that of this process."""
        if self.world.size > 1:
            yield self.reduced
            totals = torch.cat([self.squares, self.totals[3:]])
            value, terms = loss_value(totals, self.rules)
            result = replace(result, value=value, terms=terms)
        if self.stage.lambda_1 > 0 or self.stage.lambda_2 > 0:
            self.gradient += regularisation(self.model, self.model.flat, self.stage)[2]
        for part in self.frozen:
            self.gradient[part] = 0.0
        return result


def finished(work: Generator, add_up: Callable[[Tensor], None]):
    """What ``work`` returns, after ``add_up`` of each tensor that it yields."""
    while True:
        try:
            tensor = next(work)
        except StopIteration as end:
            return end.value
        add_up(tensor)
