"""Whole training steps as captured graphs, one for each rung of batch sizes."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from ..data.feed import Resident, Streamed
from ..data.structures import Structures
from ..ops.policy import kernels_on
from ..ops.stages import stage

# Graphs kept; batches of further sizes run step by step.
MOST_GRAPHS = 128
# Steps that a graph must repeat bit by bit where graphs are not to be trusted.
CHECKED_STEPS = 3


class StepGraphs:
    """Runs ``advance(batches)``, a step from batches to new parameters, as a graph a rung.

    ``differentiate(batches)`` is the part of it that changes no parameter; ``state`` gives the
    tensors that a step changes. Nothing is read back to the host.
    """

    def __init__(
        self,
        feed: Resident | Streamed,
        advance: Callable[[list], None],
        differentiate: Callable[[list], None],
        state: Callable[[], list[Tensor]],
        tell: Callable[[str], None],
    ):
        self.feed, self.state = feed, state
        self.advance, self.differentiate = advance, differentiate
        self.tell = tell
        # On ROCm a graph has to show first that it repeats what direct steps do.
        self.trusted: bool | None = None if torch.version.hip else True
        self.parts = 1  # that a batch is split into
        self.direct = False  # whether steps run operation by operation all the same
        self.forget()

    def forget(self):
        """Drop all graphs: what they have captured has changed."""
        self.graphs: dict[tuple, tuple[torch.cuda.CUDAGraph | None, list]] = {}
        self.pool = torch.cuda.graph_pool_handle()

    def prepare(self, frames: np.ndarray):
        """Tell which frames (B,) come next."""
        self.feed.prepare(self._split(frames))

    def warm_up(self, frames: np.ndarray):
        """Compile and capture what a step on ``frames`` (B,) needs, without taking it."""
        self._with_room(frames, lambda *_: None)

    def __call__(self, frames: np.ndarray):
        """One step on ``frames`` (B,); a batch that does not fit is split."""
        self._with_room(frames, self._run)

    def _with_room(self, frames: np.ndarray, act: Callable):
        while True:
            try:
                parts = self._split(frames)
                return act(*self._ready(parts))
            except torch.OutOfMemoryError:
                if self.parts >= len(frames):
                    raise
                self._split_further(frames)

    def _split(self, frames: np.ndarray) -> list[np.ndarray]:
        return np.array_split(frames, min(self.parts, len(frames)))

    def _split_further(self, frames: np.ndarray):
        self.parts *= 2
        self.forget()
        torch.cuda.empty_cache()
        self.tell(
            f"a batch of {len(frames)} frames does not fit into the GPU's memory: its gradient is "
            f"summed over {self.parts} parts"
        )

    def _ready(self, parts: list[np.ndarray]):
        sizes = [self.feed.ladder.sizes(part) for part in parts]
        inputs, key = self.feed.inputs(parts, sizes), tuple(sizes)
        full = key not in self.graphs and len(self.graphs) >= MOST_GRAPHS
        if self.direct or full or self.trusted is False:
            return None, self._static(inputs), sizes
        if key not in self.graphs:
            self.graphs[key] = self._captured(inputs, sizes)
        graph, static = self.graphs[key]
        _copy(static, inputs)
        return graph, static, sizes

    def _run(self, graph: torch.cuda.CUDAGraph | None, static: list, sizes: list):
        if graph is not None:
            graph.replay()
            return
        with stage("batch"):
            batches = self._batches(static, sizes)
        self.advance(batches)

    def _batches(self, static: list, sizes: list) -> list:
        return [self.feed.batch(tensors, size) for tensors, size in zip(static, sizes)]

    def _static(self, inputs: list) -> list[list[Tensor]]:
        """``inputs`` in tensors of their own on the device."""
        device = self.state()[0].device
        static = [[torch.empty_like(t, device=device) for t in tensors] for tensors in inputs]
        _copy(static, inputs)
        return static

    def _captured(self, inputs: list, sizes: list) -> tuple[torch.cuda.CUDAGraph | None, list]:
        device = self.state()[0].device
        static = self._static(inputs)
        # Everything is compiled and tuned before the capture, on a stream of its own, as torch
        # asks for.
        stream = torch.cuda.Stream(device)
        stream.wait_stream(torch.cuda.current_stream(device))
        with torch.cuda.stream(stream):
            self.differentiate(self._batches(static, sizes))
        torch.cuda.current_stream(device).wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self.pool):
            self.advance(self._batches(static, sizes))
        if self.trusted is None:
            self.trusted = self._repeats(graph, lambda: self.advance(self._batches(static, sizes)))
            if not self.trusted:
                self.tell(
                    "graphs of whole steps are not to be relied on here: steps run one by one"
                )
                return None, static
        return graph, static

    def _repeats(self, graph: torch.cuda.CUDAGraph, directly: Callable[[], None]) -> bool:
        """Whether a few replays of ``graph`` give what the same steps give when run directly."""
        before = [tensor.clone() for tensor in self.state()]
        found = []
        for step in (graph.replay, directly):
            for _ in range(CHECKED_STEPS):
                step()
            found.append([tensor.clone() for tensor in self.state()])
            for tensor, old in zip(self.state(), before):
                tensor.copy_(old)
        return all(map(torch.equal, *found))


def _copy(static: list[list[Tensor]], inputs: list[list[Tensor]]):
    for there, here in zip(static, inputs):
        for target, source in zip(there, here):
            target.copy_(source, non_blocking=True)


def feed_of(structures: Structures, device: torch.device) -> Resident | Streamed:
    """What brings batches to a GPU."""
    if structures.device.type != "cuda":
        return Streamed(structures, device)
    if not kernels_on(device):
        return Resident(structures, structures.batch)
    from ..ops.triton.assembly import Assembly

    return Resident(structures, Assembly(structures).batch)
