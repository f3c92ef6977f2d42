"""One training step: evaluate, compare, differentiate, update."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from ..config import Stage
from ..data.batch import Batch
from ..data.buckets import Ladder
from ..data.structures import Structures
from ..model.compiled import Compiled, compiled_contract
from ..model.evaluator import Evaluator
from ..model.nep import Nep
from ..ops.policy import kernels_on, on_reference_path
from ..ops.stages import stage
from ..ops.tables import with_tables
from .graph import StepGraphs, feed_of
from .loss import LossResult, regularisation, rules_of
from .objective import analytic, autograd, error_sums, fused, fused_error_sums, loss_of
from .parametrisation import parametrisation_of
from .traced import TracedAutograd

# Parameters of a piece at least, and pieces at most, that the optimizer works on side by side.
PIECE, MOST_PIECES = 8192, 32
OPTIMIZERS = {"adamw": torch.optim.AdamW, "adam": torch.optim.Adam}
FORCE_MODES = {"analytic": analytic, "autograd": autograd}


class Step:
    """Updates a model's parameters and their running average, batch by batch.

    ``use_virial``: whether the data have virial labels at all. ``force_mode``: analytic, or
    autograd, where torch differentiates the energy and then the loss, traced into one graph off the
    reference path. ``tell`` takes a line for the log. ``fine_tuned``: weight decay draws weights to
    where they start, not to 0; ``frozen``: a part of the model that does not change.

    On a GPU the whole step is one graph; autograd's function from batch to gradient is compiled.
    """

    def __init__(
        self,
        model: Nep,
        structures: Structures,
        stage: Stage,
        *,
        use_virial: bool,
        force_mode: str = "analytic",
        tell: Callable[[str], None] = lambda line: None,
        fine_tuned: bool = False,
        frozen: str = "",
    ):
        self.model, self.structures, self.use_virial = model, structures, use_virial
        self.evaluate = Evaluator(model, structures)
        self.fused = force_mode == "analytic" and self.evaluate.fused
        self.force_mode, self.function = force_mode, FORCE_MODES[force_mode]
        self.parameters = parametrisation_of(len(model.settings.elements), fine_tuned)(model)
        self.frozen = model.part(frozen) if frozen else []
        self.average = model.flat.clone()  # exponential moving average of the parameters
        self.gradient = torch.zeros_like(model.flat)
        latent = self.parameters.latent  # what the optimizer moves, and its gradient
        self.pulled = self.gradient if len(latent) == len(model.flat) else torch.zeros_like(latent)
        self.tell = tell
        # Steps without a finite gradient: in a row until now, and all.
        self.unusable = torch.zeros((), device=model.flat.device)
        self.skipped = torch.zeros((), device=model.flat.device)
        self.value = torch.zeros_like(model.flat[0])  # loss of the last batch
        device, self.graphs, self.contract = model.flat.device, None, None
        self.scalars = torch.zeros(2, device=device)  # learning rate, weight of new in the average
        self.sums = error_sums
        on_gpu = device.type == "cuda" and not on_reference_path()
        if force_mode == "autograd" and not on_reference_path():
            self.function = TracedAutograd(on_gpu)
        if on_gpu:
            self._take_path()
            feed = feed_of(structures, device)
            self.graphs = StepGraphs(feed, self._advance, self._differentiate, self._changing, tell)
        self.begin_stage(stage)

    def _take_path(self):
        """Choose the functions that serve a GPU best."""
        if self.force_mode == "autograd":
            self.contract, self.sums = compiled_contract(self.model), Compiled(error_sums)
        elif kernels_on(self.model.flat.device):
            self.function, self.sums = fused, fused_error_sums
        else:
            self.tell("Triton is not installed: steps run without its kernels, and slower")

    def begin_stage(self, stage: Stage):
        """Go on with the rules of ``stage`` and a new optimizer; biases never decay."""
        self.stage = stage
        self.rules = rules_of(stage, len(self.model.settings.elements), self.model.flat)
        groups = []
        for part, share in self.parameters.decays():
            values, gradient = self.parameters.latent[part].detach(), self.pulled[part]
            # The fused optimizer gives each piece to one block of threads.
            size = max(PIECE, math.ceil(len(values) / MOST_PIECES))
            pieces = list(values.split(size))
            for piece, of_piece in zip(pieces, gradient.split(size)):
                piece.grad = of_piece
            groups.append({"params": pieces, "weight_decay": share * (stage.weight_decay or 0.0)})
        on_gpu = self.graphs is not None
        rate = self.scalars[0] if on_gpu else stage.learning_rate[0]
        self.optimizer = OPTIMIZERS[stage.optimizer](groups, lr=rate, fused=True, capturable=on_gpu)
        if on_gpu:
            self.graphs.forget()
            # A step that is not taken makes the optimizer's state, which graphs change in place.
            self.optimizer.found_inf = torch.ones_like(self.unusable)
            self.optimizer.step()

    def warm_up(self, frames: np.ndarray):
        """Compile what has to be, and say what was, before the first step, on ``frames`` (B,)."""
        if self.graphs is None:
            self.differentiate(frames)
            return
        start = time.monotonic()
        self.graphs.warm_up(frames)
        if failure := getattr(self.function, "failure", ""):
            self.tell(f"steps are not compiled, and slower ({failure})")
        elif (seconds := time.monotonic() - start) > 5.0:
            self.tell(f"compiled the training step in {seconds:.0f} s")

    def run_directly(self, direct: bool):
        """Whether a GPU runs steps operation by operation instead of as graphs."""
        if self.graphs is not None:
            self.graphs.direct = direct

    def prepare(self, frames: np.ndarray):
        """Tell which frames (B,) the next step takes: they may have to be sent."""
        if self.graphs is not None:
            self.graphs.prepare(frames)

    def __call__(self, frames: np.ndarray, rate: float, age: int) -> Tensor:
        """Take a step on ``frames`` (B,) with learning rate ``rate``; ``age`` counts steps from 0.

        Returns the loss (). A step whose gradient is not finite changes nothing but the two
        counters. Nothing is read back to the host: the fused optimizer takes clipping and the
        finite flag from the device.
        """
        # Early on the average forgets the start faster.
        decay = min(self.stage.ema, (1.0 + age) / (10.0 + age))
        if self.graphs is not None:
            scalars = torch.tensor([rate, 1.0 - decay], pin_memory=True)
            self.scalars.copy_(scalars, non_blocking=True)
            self.graphs(frames)
            return self.value
        with self.evaluate.threads():
            result = self.differentiate(frames)
            for group in self.optimizer.param_groups:
                group["lr"] = rate
            self._update(1.0 - decay)
        return result.value

    def differentiate(self, frames: np.ndarray) -> LossResult:
        """The loss of ``frames`` (B,); its gradient goes to ``self.gradient``."""
        members = torch.as_tensor(frames, device=self.structures.device)
        if not self.fused:
            # What is traced with a batch that has room to spare serves all batches.
            traced = isinstance(self.function, TracedAutograd)
            with stage("batch"):
                structures = self.structures
                batch = Ladder(structures).batch(frames) if traced else structures.batch(members)
            return self._differentiate([batch])
        evaluation = self.evaluate(members)
        result, to_atoms = loss_of(evaluation, self.rules, self.use_virial)
        evaluation.gradient_into(self.gradient, to_atoms, result.forces, result.virial)
        self._regularise()
        return result

    def _advance(self, batches: list[Batch]):
        self.value.copy_(self._differentiate(batches).value)
        self._update(self.scalars[1].to(self.average.dtype))

    def _differentiate(self, batches: list[Batch]) -> LossResult:
        """The same of a batch in parts, whose gradients add up to that of the whole."""
        if self.force_mode == "analytic":
            # Once for both passes over a batch in parts.
            settings, dtype = self.model.settings, self.gradient.dtype
            with stage("densities"):
                batches = [with_tables(batch, settings, dtype) for batch in batches]
        flat, common, totals = self.model.flat, (self.rules, self.use_virial, self.contract), None
        if len(batches) > 1:
            parts = [self.sums(self.model, batch, flat, *common) for batch in batches]
            totals = sum(parts[1:], parts[0])
        for number, batch in enumerate(batches):
            result, gradient = self.function(self.model, batch, flat, *common, totals)
            if number == 0:
                self.gradient.copy_(gradient)
            else:
                self.gradient += gradient
        self._regularise()
        return result

    def _update(self, weight: float | Tensor):
        with stage("update"):
            self._take_gradient(weight)

    def _take_gradient(self, weight: float | Tensor):
        norm = self.gradient.norm()
        self.pulled.copy_(self.parameters.pull(self.gradient))
        unusable = (~(norm < math.inf)).float()  # 1 for infinity and NaN, else 0
        self.unusable.add_(1.0).mul_(unusable)
        self.skipped += unusable
        self.optimizer.found_inf = unusable
        self.optimizer.grad_scale = (norm / self.stage.max_grad_norm).clamp_min(1.0).float()
        self.optimizer.step()
        self.parameters.expand(self.model.flat)
        self.average.lerp_(self.model.flat, weight)

    def _regularise(self):
        if self.stage.lambda_1 > 0 or self.stage.lambda_2 > 0:
            self.gradient += regularisation(self.model, self.model.flat, self.stage)[2]
        for part in self.frozen:
            self.gradient[part] = 0.0

    def _changing(self) -> list[Tensor]:
        """The tensors that a step changes."""
        kept = [values for state in self.optimizer.state.values() for values in state.values()]
        changing = (self.parameters.latent, self.model.flat, self.average)
        return [*changing, self.unusable, self.skipped, self.value, *kept]

    def state(self) -> dict:
        """All that a later run needs to go on bit by bit."""
        return {
            "average": self.average,
            "latent": self.parameters.latent,
            "unusable": self.unusable,
            "skipped": self.skipped,
            "optimizer": self.optimizer.state_dict(),
        }

    def load_state(self, state: dict):
        """Take up what ``state`` gave; the stage must be the same."""
        self.parameters.latent.copy_(state["latent"])
        for name in ("average", "unusable", "skipped"):
            getattr(self, name).copy_(state[name])
        # The rules are those of the stage: nep.in may have changed them since.
        rules = self.optimizer.state_dict()["param_groups"]
        rates = [group["lr"] for group in self.optimizer.param_groups]
        self.optimizer.load_state_dict({**state["optimizer"], "param_groups": rules})
        for group, rate in zip(self.optimizer.param_groups, rates):
            group["lr"] = rate  # not the copy that loading makes: a graph reads the rate of now
