"""One training step: evaluate, compare, differentiate, update."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from ..config import Stage
from ..data.batch import Batch
from ..data.outbox import Outbox
from ..data.structures import Structures
from ..model.nep import Nep
from ..ops.policy import fused_on, kernels_on, on_reference_path
from ..ops.stages import stage
from .gradient import BatchGradient, finished
from .graph import StepGraphs, feed_of
from .loss import LossResult
from .optimizer import Optimizer, clipping
from .parametrisation import Plain
from .world import ALONE, World

if TYPE_CHECKING:
    from .gpu_update import GpuUpdate
    from .update import KernelUpdate


class Step:
    """Updates a model's parameters and their running average, batch by batch.

    ``use_virial``: whether the data have virial labels at all. ``force_mode``: analytic, or
    autograd, where torch differentiates the energy and then the loss, traced into one graph off the
    reference path. ``tell`` takes a line for the log. ``parametrisation``: what the optimizer
    moves and where weight decay draws it; ``frozen``: a part of the model that does not change.
    ``world``: the processes that take every step together, each with its share of the batch;
    several have to know of the ``labels`` of all frames (label_counts).

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
        parametrisation: type[Plain] = Plain,
        frozen: str = "",
        world: World = ALONE,
        labels: np.ndarray | None = None,
    ):
        self.model, self.tell = model, tell
        self.parameters = parametrisation(model)
        self.batch = BatchGradient(
            model, structures, use_virial=use_virial, force_mode=force_mode, tell=tell,
            frozen=frozen, world=world, labels=labels,
        )  # fmt: skip
        self.gradient = self.batch.gradient
        self.average = model.flat.clone()  # exponential moving average of the parameters
        latent = self.parameters.latent  # what the optimizer moves, and its gradient
        self.shared = latent.new_zeros(len(latent) - len(model.flat))
        # Steps without a finite gradient: in a row until now, and all.
        self.unusable = torch.zeros((), device=model.flat.device)
        self.skipped = torch.zeros((), device=model.flat.device)
        self.value = torch.zeros_like(model.flat[0])  # loss of the last batch
        device, self.graphs = model.flat.device, None
        if device.type == "cuda" and not on_reference_path():
            # Learning rate, weight of new in the average, wish to stop, numbers of labels.
            self.scalars = torch.zeros(6, device=device)
            self.numbers = Outbox(self.scalars)
            self.graphs = StepGraphs(
                device, feed_of(structures, device), self.batch.deal, world, self._advance,
                self.batch.of_batches, self._changing, tell,
            )  # fmt: skip
        self.rate = stage.learning_rate[0]  # of the last step
        self.begin_stage(stage)

    def begin_stage(self, stage: Stage):
        """Go on with the rules of ``stage`` and a new optimizer; biases never decay."""
        self.stage = stage
        self.batch.begin_stage(stage)
        self.optimizer = Optimizer(
            stage.optimizer, stage.weight_decay or 0.0, self.parameters, self.gradient, self.shared
        )
        if self.graphs is not None:
            self.graphs.forget()
        self.by_kernel = self._kernel()

    def _kernel(self) -> KernelUpdate | GpuUpdate | None:
        """The update by kernels, where there are such."""
        device = self.model.flat.device
        if kernels_on(device):
            from .gpu_update import GpuUpdate as Kernel
        elif self.stage.optimizer != "adam" and fused_on(device):
            from .update import KernelUpdate as Kernel
        else:
            return None
        return Kernel(self)

    def warm_up(self, frames: np.ndarray):
        """Compile what has to be, and say what was, before the first step, on ``frames`` (B,)."""
        if self.graphs is None:
            self.differentiate(frames)
            if self.by_kernel is not None:
                self.by_kernel.compile()
            return
        start = time.monotonic()
        self.graphs.warm_up(frames)
        if failure := getattr(self.batch.function, "failure", ""):
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

    def __call__(self, frames: np.ndarray, rate: float, age: int, stop: bool = False) -> Tensor:
        """Take a step on ``frames`` (B,) with learning rate ``rate``; ``age`` counts steps from 0.

        Returns the loss (). A step whose gradient is not finite changes nothing but the two
        counters. Nothing is read back to the host: clipping and the finite flag stay on the
        device. ``stop``: whether this process wants to stop, for ``stops``.
        """
        self.rate = rate
        # Early on the average forgets the start faster.
        decay = min(self.stage.ema, (1.0 + age) / (10.0 + age))
        if self.graphs is not None:
            labels = [0, 0, 0] if self.batch.labels is None else self.batch.labels[frames].sum(0)
            self.numbers.send((rate, 1.0 - decay, float(stop), *labels))
            self.graphs(frames)
            return self.value
        with self.batch.evaluate.threads():
            self.batch.wish.fill_(stop)
            result = self.differentiate(frames)
            self._update(rate, 1.0 - decay)
        return result.value

    def differentiate(self, frames: np.ndarray) -> LossResult:
        """The loss of ``frames`` (B,); its gradient goes to ``self.gradient``."""
        return finished(self.batch.of_frames(frames), self.batch.world.sum)

    def _advance(self, batches: list[Batch]) -> Iterator[Tensor]:
        """A step on a GPU; yields what has to be added up over the processes."""
        if self.batch.world.size > 1:
            self.batch.wish.copy_(self.scalars[2:3])
            self.batch.totals[3:].copy_(self.scalars[3:])
        result = yield from self.batch.of_batches(batches)
        self.value.copy_(result.value)
        self._update(*self.scalars[:2])

    def _update(self, rate: float | Tensor, weight: float | Tensor):
        with stage("update"):
            (self.by_kernel or self._take_gradient)(rate, weight)

    def _take_gradient(self, rate: float | Tensor, weight: float | Tensor):
        unusable, scale = clipping(self.gradient.norm(), self.stage.max_grad_norm)
        self.parameters.pull(self.gradient, self.shared)
        self.unusable.add_(1.0).mul_(unusable)
        self.skipped += unusable
        self.optimizer.step(rate, unusable, scale)
        self.parameters.expand(self.model.flat)
        self.average += weight * (self.model.flat - self.average)

    def _changing(self) -> list[Tensor]:
        """The tensors that a step changes."""
        kept = self.optimizer.state().values()
        changing = (self.parameters.latent, self.model.flat, self.average)
        return [*changing, self.unusable, self.skipped, self.value, *kept]

    def state(self) -> dict:
        """All that a later run needs to go on bit by bit."""
        return {
            "average": self.average,
            "latent": self.parameters.latent,
            "unusable": self.unusable,
            "skipped": self.skipped,
            "rule": self.stage.optimizer,
            "optimizer": self.optimizer.state(),
        }

    def load_state(self, state: dict):
        """Take up what ``state`` gave; the stage must be the same."""
        self.parameters.latent.copy_(state["latent"])
        for name in ("average", "unusable", "skipped"):
            getattr(self, name).copy_(state[name])
        # What Muon moves has no mean of squares: another optimizer begins anew.
        if (state["rule"] == "muon") == (self.stage.optimizer == "muon"):
            self.optimizer.load_state(state["optimizer"])
