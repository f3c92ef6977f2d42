"""What a step on CPUs does with its gradient, by one kernel."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from ..ops.cpu.adamw import CHUNK, Moments, Rules
from ..ops.cpu.threads import arrays, run_together, thread_count
from ..ops.cpu.update import Blocks, Moved, update
from .parametrisation import Plain

# Numbers that are worth a thread.
SHARE = 30_000


class KernelUpdate:
    """Clips, moves by AdamW, expands and averages: Step's update, in one pass over the parameters.

    The state remains that of ``optimizer``, a torch.optim.AdamW; it only comes to lie side by side.
    ``gradient`` (n_parameters,), ``average`` (n_parameters,) and the counters are Step's.
    """

    def __init__(
        self,
        parameters: Plain,
        optimizer: torch.optim.AdamW,
        max_norm: float,
        gradient: Tensor,
        average: Tensor,
        unusable: Tensor,
        skipped: Tensor,
    ):
        self.optimizer, size, latent = optimizer, len(gradient), parameters.latent
        steps, *means = side_by_side(optimizer)
        shared = gradient.new_empty(len(latent) - size)
        squares = gradient.new_empty(math.ceil(size / CHUNK))
        flat, counters = parameters.model.flat, (unusable.view(1), skipped.view(1))
        moved = arrays([steps, flat, average, shared, squares, *counters])
        moved = Moved(Moments(*arrays([latent, *means])), *moved)
        groups = optimizer.param_groups
        sizes = [sum(len(p) for p in group["params"]) for group in groups]
        decay = np.array([group["weight_decay"] for group in groups])
        rules = Rules(groups[0]["betas"], groups[0]["eps"], max_norm, np.cumsum([0, *sizes]), decay)
        start = getattr(parameters, "start", gradient[:0])
        self.fixed = (blocks_of(parameters), moved, rules, *arrays([gradient, start]))
        self.n_parts = 1 + len(latent) // SHARE

    def __call__(self, weight: float):
        """Take the step; ``weight``: of the new parameters in the average."""
        count = min(thread_count(), self.n_parts)
        run_together(update, count, *self.fixed, self.optimizer.param_groups[0]["lr"], weight)

    def compile(self):
        """Compile the kernel where it has to be, by a step of copies."""
        blocks, moved, *rest = self.fixed
        copies = Moved(Moments(*map(np.copy, moved.latent)), *map(np.copy, moved[1:]))
        run_together(update, 1, blocks, copies, *rest, 0.0, 0.0)


def blocks_of(parameters: Plain) -> Blocks:
    """The kernel's view of a parametrisation."""
    model, shared = parameters.model, parameters.shared()
    rows = [shape[0] for shape in model.shapes.values()]
    width = np.array([math.prod(shape[1:]) for shape in model.shapes.values()])
    places = np.array([(*shared.get(name, ()), -1, -1, -1)[:3] for name in model.shapes])
    ends = [(end.owner, end.order, end.start) for end in getattr(parameters, "ends", ())]
    if not ends:
        ends = [torch.zeros(3, 1, dtype=torch.int32)] * 2
    first = np.cumsum([0, *(width * rows)])
    ends = [torch.stack(pair).numpy() for pair in zip(*ends)]
    return Blocks(first, width, places[:, 0].copy(), places[:, 1:].copy(), *ends)


def side_by_side(optimizer: torch.optim.AdamW) -> list[Tensor]:
    """Steps, running means of gradients and of their squares of all parameters, end to end.

    The optimizer's own become views of them.
    """
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    found = []
    for name in ("step", "exp_avg", "exp_avg_sq"):
        # As torch makes them at the first step.
        new = [torch.zeros(()) if name == "step" else torch.zeros_like(p) for p in parameters]
        pieces = [optimizer.state[p].get(name, zeros) for p, zeros in zip(parameters, new)]
        found.append(torch.cat([piece.flatten() for piece in pieces]))
        views = found[-1].split([piece.numel() for piece in pieces])
        for p, piece, view in zip(parameters, pieces, views):
            optimizer.state[p][name] = view.view_as(piece)
    return found
