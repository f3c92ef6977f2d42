"""What a step on CPUs does with its gradient, by one kernel."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from ..ops.cpu.adamw import CHUNK, Moments, Rules
from ..ops.cpu.muon import Matrices, room_for
from ..ops.cpu.threads import arrays, run_together, thread_count
from ..ops.cpu.update import Moved, Plan, update
from ..ops.gather import Stretches
from .muon import FRESH, POLYNOMIAL, SIZE, TURNS
from .optimizer import BETAS, EPS, Part
from .parametrisation import Plain

if TYPE_CHECKING:
    from .step import Step

# Numbers that are worth a thread.
SHARE = 30_000
MOST_THREADS = 64  # that there is room for


class KernelUpdate:
    """Clips, moves, expands and averages: Step's update, in one pass over the parameters.

    The state is that of ``step``: its optimizer, average and counters.
    """

    def __init__(self, step: Step):
        parameters, optimizer, latent = step.parameters, step.optimizer, step.parameters.latent
        gradient, counters = optimizer.gradient, (step.unusable.view(1), step.skipped.view(1))
        squares = gradient.new_empty(math.ceil(len(gradient) / CHUNK))
        moments = Moments(*arrays([latent, optimizer.mean, optimizer.square]))
        moved = arrays([
            parameters.room, optimizer.steps, parameters.model.flat, step.average,
            optimizer.shared, squares, *counters,
        ])  # fmt: skip
        parts, moved = optimizer.parts, Moved(moments, *moved)
        edges = np.array([0, *(part.place.stop for part in parts)])
        decay = np.array([part.decay_by_adam for part in parts])
        rules = Rules(BETAS, EPS, step.stage.max_grad_norm, edges, decay)
        matrices, work = None, 0
        if any(part.shape for part in parts):
            matrices, work = matrices_of(parts, moments.value.dtype)
        tensors = arrays([gradient, parameters.start])
        self.fixed = (plan_of(parameters), moved, rules, matrices, *tensors)
        self.n_parts = min(1 + (len(latent) + work) // SHARE, MOST_THREADS)

    def __call__(self, rate: float, weight: float):
        """Take the step with learning rate ``rate``; ``weight``: of the new in the average."""
        run_together(update, min(thread_count(), self.n_parts), *self.fixed, rate, weight)

    def compile(self):
        """Compile the kernel where it has to be, by a step of copies."""
        plan, moved, *rest = self.fixed
        copies = Moved(Moments(*map(np.copy, moved.latent)), *map(np.copy, moved[1:]))
        run_together(update, 1, plan, copies, *rest, 0.0, 0.0)


def matrices_of(parts: list[Part], dtype: np.dtype) -> tuple[Matrices, int]:
    """The kernel's view of what Muon moves, and to how many numbers of AdamW that comes."""
    each = [
        (part.place.start + k * rows * columns, rows, columns, part.decay)
        for part in parts
        if part.shape is not None
        for count, rows, columns in [part.shape]
        for k in range(count)
    ]
    place, rows, columns = (np.array([m[i] for m in each], np.int64) for i in range(3))
    most = max(room_for(n, m) for _, n, m, _ in each)
    room = np.empty((MOST_THREADS, most), dtype)
    work = sum(n * m * min(n, m) for _, n, m, _ in each)
    decay = np.array([m[3] for m in each], float)
    return Matrices(place, rows, columns, decay, FRESH, SIZE, POLYNOMIAL, TURNS, room), work


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
