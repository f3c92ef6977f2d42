"""What a step on CPUs does with its gradient, by one kernel."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from ..ops.cpu.adamw import CHUNK, Moments, Rules
from ..ops.cpu.threads import arrays, run_together, thread_count
from ..ops.cpu.update import Moved, Plan, update
from ..ops.gather import Stretches
from .parametrisation import Plain

# Numbers that are worth a thread.
SHARE = 30_000


class KernelUpdate:
    """Clips, moves by AdamW, expands and averages: Step's update, in one pass over the parameters.

    The state remains that of ``optimizer``, a torch.optim.AdamW; it only comes to lie side by side.
    ``gradient`` (n_parameters,), ``shared`` (to what is shared), ``average`` (n_parameters,) and the
    counters are Step's.
    """

    def __init__(
        self,
        parameters: Plain,
        optimizer: torch.optim.AdamW,
        weight_decay: float,
        max_norm: float,
        gradient: Tensor,
        shared: Tensor,
        average: Tensor,
        unusable: Tensor,
        skipped: Tensor,
    ):
        self.optimizer, size, latent = optimizer, len(gradient), parameters.latent
        steps, *means = side_by_side(optimizer)
        squares = gradient.new_empty(math.ceil(size / CHUNK))
        flat, counters = parameters.model.flat, (unusable.view(1), skipped.view(1))
        moved = arrays([parameters.room, steps, flat, average, shared, squares, *counters])
        moved = Moved(Moments(*arrays([latent, *means])), *moved)
        group, parts = optimizer.param_groups[0], list(parameters.decays())
        edges = np.array([0, *(part.stop for part, _ in parts)])
        decay = np.array([weight_decay * share for _, share in parts])
        rules = Rules(group["betas"], group["eps"], max_norm, edges, decay)
        self.fixed = (plan_of(parameters), moved, rules, *arrays([gradient, parameters.start]))
        self.n_parts = 1 + len(latent) // SHARE

    def __call__(self, weight: float):
        """Take the step; ``weight``: of the new parameters in the average."""
        count = min(thread_count(), self.n_parts)
        run_together(update, count, *self.fixed, self.optimizer.param_groups[0]["lr"], weight)

    def compile(self):
        """Compile the kernel where it has to be, by a step of copies."""
        plan, moved, *rest = self.fixed
        copies = Moved(Moments(*map(np.copy, moved.latent)), *map(np.copy, moved[1:]))
        run_together(update, 1, plan, copies, *rest, 0.0, 0.0)


def plan_of(parameters: Plain) -> Plan:
    """The kernel's view of a parametrisation."""
    pieces, none = parameters.pieces, np.zeros(1, np.int32)
    if pieces is None:
        edges = np.append(np.arange(0, len(parameters.latent), CHUNK), len(parameters.latent))
        return Plan(edges, np.zeros_like(edges), *[Stretches(none, *[none[:0]] * 3)] * 4)
    kinds = [
        part.arrays()
        for part in (pieces.of_elements, pieces.expanded, pieces.of_rows, pieces.of_own)
    ]
    place = np.append(kinds[1].place, parameters.size).astype(np.int64)
    # Whole pieces, CHUNK numbers or one piece.
    first = np.unique(np.searchsorted(place, np.arange(0, parameters.size, CHUNK)))
    first = np.append(first, len(place) - 1)
    return Plan(place[first], first, *kinds)


def side_by_side(optimizer: torch.optim.AdamW) -> list[Tensor]:
    """Steps, running means of gradients and of their squares of all parameters, end to end.

    The optimizer's own become views of them.
    """
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    parameters.sort(key=Tensor.storage_offset)
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
