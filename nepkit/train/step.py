"""One training step: evaluate, compare, differentiate, update."""

from __future__ import annotations

import math
from dataclasses import replace

import torch
from torch import Tensor

from ..config import Stage
from ..data.batch import Structures
from ..model.evaluator import Evaluator
from ..model.nep import Evaluation, Nep
from ..model.rows import RowEvaluation
from ..ops.segment import segment_sum
from .loss import LossResult, loss, regularisation

OPTIMIZERS = {"adamw": torch.optim.AdamW, "adam": torch.optim.Adam}


class Step:
    """Updates a model's parameters and their running average, batch by batch.

    ``use_virial``: whether the data have virial labels at all. ``force_mode``: analytic, or
    autograd, where torch differentiates the energy and then the loss.
    """

    def __init__(
        self,
        model: Nep,
        structures: Structures,
        stage: Stage,
        *,
        use_virial: bool,
        force_mode: str = "analytic",
    ):
        self.model, self.use_virial = model, use_virial
        self.evaluate = Evaluator(model, structures)
        self.differentiate = {"analytic": self._analytic, "autograd": self._autograd}[force_mode]
        self.average = model.flat.clone()  # exponential moving average of the parameters
        self.gradient = torch.zeros_like(model.flat)
        # Steps without a finite gradient: in a row until now, and all.
        self.unusable = torch.zeros((), device=model.flat.device)
        self.skipped = torch.zeros((), device=model.flat.device)
        self.begin_stage(stage)

    def begin_stage(self, stage: Stage):
        """Go on with the rules of ``stage`` and a new optimizer; biases never decay."""
        self.stage = stage
        groups = []
        for part, decay in zip(self.model.weights_and_biases(), (stage.weight_decay, 0.0)):
            stretch = self.model.flat[part].detach()
            stretch.grad = self.gradient[part]
            groups.append({"params": [stretch], "weight_decay": decay})
        self.optimizer = OPTIMIZERS[stage.optimizer](groups, lr=stage.learning_rate[0], fused=True)

    def __call__(self, frames: Tensor, rate: float, age: int) -> LossResult:
        """Take a step on ``frames`` (B,) with learning rate ``rate``; ``age`` counts steps from 0.

        A step whose gradient is not finite changes nothing but the two counters. Nothing is read
        back to the host: the fused optimizer takes clipping and the finite flag from the device.
        """
        with self.evaluate.threads():
            result = self.differentiate(frames)
            self._update(rate, age)
        return result

    def _update(self, rate: float, age: int):
        norm = self.gradient.norm()
        unusable = (~(norm < math.inf)).float()  # 1 for infinity and NaN, else 0
        self.unusable = (self.unusable + 1.0) * unusable
        self.skipped = self.skipped + unusable
        self.optimizer.found_inf = unusable
        self.optimizer.grad_scale = (norm / self.stage.max_grad_norm).clamp_min(1.0).float()
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self.optimizer.step()
        # Early on the average forgets the start faster.
        decay = min(self.stage.ema, (1.0 + age) / (10.0 + age))
        self.average.lerp_(self.model.flat, 1.0 - decay)

    def _analytic(self, frames: Tensor) -> LossResult:
        """The loss of ``frames``; its gradient goes to ``self.gradient``."""
        evaluation = self.evaluate(frames)
        forces, virials = evaluation.forces_and_virials()
        result = self._loss(evaluation, forces, virials)
        atom_energy = result.energy.index_select(0, evaluation.batch.atom_frame)
        evaluation.gradient_into(self.gradient, atom_energy, result.forces, result.virial)
        self._regularise()
        return result

    def _autograd(self, frames: Tensor) -> LossResult:
        """The same by torch's double backward through the pair vectors."""
        batch = self.evaluate.structures.batch(frames)
        vectors = batch.vectors.detach().requires_grad_()
        flat = self.model.flat.detach().requires_grad_()
        evaluation = RowEvaluation(self.model, replace(batch, vectors=vectors), flat)
        energy = evaluation.atom_energies.sum()
        pair_forces = torch.autograd.grad(
            energy, vectors, create_graph=True, materialize_grads=True
        )[0].to(flat.dtype)
        geometry = evaluation.geometry
        result = self._loss(evaluation, geometry.forces(pair_forces), geometry.virials(pair_forces))
        self.gradient.copy_(torch.autograd.grad(result.value, flat)[0])
        self._regularise()
        return replace(result, value=result.value.detach())

    def _loss(self, evaluation: Evaluation, forces: Tensor, virials: Tensor) -> LossResult:
        batch = evaluation.batch
        energy = segment_sum(evaluation.atom_energies, batch.atom_start)
        return loss(batch, self.stage, energy, forces, virials if self.use_virial else None)

    def _regularise(self):
        if self.stage.lambda_1 > 0 or self.stage.lambda_2 > 0:
            self.gradient += regularisation(self.model.flat, self.stage)[2]

    def state(self) -> dict:
        """All that a later run needs to go on bit by bit."""
        return {
            "average": self.average,
            "unusable": self.unusable,
            "skipped": self.skipped,
            "optimizer": self.optimizer.state_dict(),
        }

    def load_state(self, state: dict):
        """Take up what ``state`` gave; the stage must be the same."""
        self.average.copy_(state["average"])
        self.unusable, self.skipped = state["unusable"], state["skipped"]
        # The rules are those of the stage: nep.in may have changed them since.
        rules = self.optimizer.state_dict()["param_groups"]
        self.optimizer.load_state_dict({**state["optimizer"], "param_groups": rules})
