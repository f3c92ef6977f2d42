"""One training step: evaluate, compare, differentiate, update."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator

import numpy as np
import torch
from torch import Tensor

from ..config import Stage
from ..data.batch import Batch
from ..data.structures import Structures
from ..model.nep import Nep
from ..ops.policy import fused_on, on_reference_path
from ..ops.stages import stage
from .gradient import BatchGradient, finished
from .graph import StepGraphs, feed_of
from .loss import LossResult
from .muon import Muon, cut
from .parametrisation import Plain
from .world import ALONE, World

# Parameters of a piece at least, and pieces at most, that the optimizer works on side by side.
PIECE, MOST_PIECES = 8192, 32
OPTIMIZERS = {"adamw": torch.optim.AdamW, "adam": torch.optim.Adam, "muon": Muon}


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
        # Learning rate, weight of new in the average, wish to stop, numbers of labels.
        self.scalars = torch.zeros(6, device=device)
        if device.type == "cuda" and not on_reference_path():
            self.graphs = StepGraphs(
                feed_of(structures, device), self.batch.deal, world, self._advance,
                self.batch.of_batches, self._changing, tell,
            )  # fmt: skip
        self.begin_stage(stage)

    def begin_stage(self, stage: Stage):
        """Go on with the rules of ``stage`` and a new optimizer; biases never decay."""
        self.stage = stage
        self.batch.begin_stage(stage)
        groups: dict[tuple[float, bool], list[Tensor]] = {}
        matrices = self.parameters.matrices() if stage.optimizer == "muon" else []
        for whole, share in self.parameters.decays():
            for part, shape in cut(whole, matrices):
                values, gradient = self.parameters.latent[part].detach(), self._gradient_of(part)
                # The fused optimizer gives each piece to one block of threads.
                size = max(PIECE, math.ceil(len(values) / MOST_PIECES))
                pieces = [values.view(shape)] if shape else values.split(size)
                of_pieces = [gradient.view(shape)] if shape else gradient.split(size)
                for piece, of_piece in zip(pieces, of_pieces):
                    piece.grad = of_piece
                groups.setdefault((share, bool(shape)), []).extend(pieces)
        decay = stage.weight_decay or 0.0
        # One group of each kind, as each takes launches of its own.
        groups = [
            {"params": pieces, "weight_decay": share * decay, "matrices": as_matrices}
            for (share, as_matrices), pieces in groups.items()
        ]
        on_gpu = self.graphs is not None
        rate = self.scalars[0] if on_gpu else stage.learning_rate[0]
        self.optimizer = OPTIMIZERS[stage.optimizer](groups, lr=rate, fused=True, capturable=on_gpu)
        if on_gpu:
            self.graphs.forget()
            # A step that is not taken makes the optimizer's state, which graphs change in place.
            self.optimizer.found_inf = torch.ones_like(self.unusable)
            self.optimizer.step()
        self._take_kernel()

    def _take_kernel(self):
        """Update by one kernel, where there is one."""
        self.by_kernel = None
        if self.stage.optimizer == "adamw" and fused_on(self.model.flat.device):
            from .update import KernelUpdate

            self.by_kernel = KernelUpdate(
                self.parameters, self.optimizer, self.stage.weight_decay or 0.0,
                self.stage.max_grad_norm, self.gradient, self.shared, self.average, self.unusable,
                self.skipped,
            )  # fmt: skip

    def _gradient_of(self, part: slice) -> Tensor:
        """The gradient to a part of the latent tensor."""
        shift = len(self.gradient)
        if part.stop <= shift:
            return self.gradient[part]
        return self.shared[part.start - shift : part.stop - shift]

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
        counters. Nothing is read back to the host: the fused optimizer takes clipping and the
        finite flag from the device. ``stop``: whether this process wants to stop, for ``stops``.
        """
        # Early on the average forgets the start faster.
        decay = min(self.stage.ema, (1.0 + age) / (10.0 + age))
        if self.graphs is not None:
            labels = [0, 0, 0] if self.batch.labels is None else self.batch.labels[frames].sum(0)
            numbers = [rate, 1.0 - decay, float(stop), *labels]
            scalars = torch.tensor(numbers, dtype=torch.float32, pin_memory=True)
            self.scalars.copy_(scalars, non_blocking=True)
            self.graphs(frames)
            return self.value
        with self.batch.evaluate.threads():
            self.batch.wish.fill_(stop)
            result = self.differentiate(frames)
            for group in self.optimizer.param_groups:
                group["lr"] = rate
            self._update(1.0 - decay)
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
        self._update(self.scalars[1].to(self.average.dtype))

    def _update(self, weight: float | Tensor):
        with stage("update"):
            (self.by_kernel or self._take_gradient)(weight)

    def _take_gradient(self, weight: float | Tensor):
        norm = self.gradient.norm()
        self.parameters.pull(self.gradient, self.shared)
        unusable = (~(norm < math.inf)).float()  # 1 for infinity and NaN, else 0
        self.unusable.add_(1.0).mul_(unusable)
        self.skipped += unusable
        self.optimizer.found_inf = unusable
        self.optimizer.grad_scale = (norm / self.stage.max_grad_norm).clamp_min(1.0).float()
        self.optimizer.step()
        self.parameters.expand(self.model.flat)
        self.average.lerp_(self.model.flat, weight)

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
        self._take_kernel()
