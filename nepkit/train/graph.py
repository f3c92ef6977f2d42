"""Whole training steps as captured graphs, one for each rung of batch sizes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextvars import ContextVar
from itertools import chain

import numpy as np
import torch
from torch import Tensor

from ..data.feed import Part, Resident, Streamed
from ..data.outbox import Outbox
from ..data.structures import Structures
from ..ops.capture import nothing_collected
from ..ops.policy import during, kernels_on
from ..ops.stages import stage
from .gradient import finished
from .world import World

# Graphs kept; batches of further sizes run step by step.
MOST_GRAPHS = 128
# Steps that a graph must repeat bit by bit where graphs are not to be trusted.
CHECKED_STEPS = 3
# A graph, and what is added up over the processes after it.
Segment = tuple[torch.cuda.CUDAGraph, Tensor | None]
_inside: ContextVar[bool | None] = ContextVar("nepkit_sums_in_graphs", default=None)


def captures_sums() -> bool:
    """Whether sums over the processes are part of the graphs: NCCL's are, RCCL's follow them."""
    return torch.version.hip is None if _inside.get() is None else _inside.get()


def forced_sums(inside: bool):
    """Run the block with sums inside or between graphs, for tests and benchmarks."""
    return during(_inside, inside)


class StepGraphs:
    """Runs ``advance(batches)``, a step from batches to new parameters, as a graph a rung.

    ``differentiate(batches)`` is the part of it that changes no parameter; both yield what has to
    be added up over the processes of ``world``, among which ``deal(frames)`` shares out a batch.
    All of them use the same rung, and so capture it at the same step. ``state`` gives the tensors
    that a step changes. Nothing is read back to the host.
    """

    def __init__(
        self,
        device: torch.device,
        feed: Resident | Streamed,
        deal: Callable[[np.ndarray], np.ndarray],
        world: World,
        advance: Callable[[list], Iterator[Tensor]],
        differentiate: Callable[[list], Iterator[Tensor]],
        state: Callable[[], list[Tensor]],
        tell: Callable[[str], None],
    ):
        self.device, self.feed, self.deal, self.world = device, feed, deal, world
        self.state = state
        self.advance, self.differentiate = advance, differentiate
        self.tell = tell
        # On ROCm a graph has to show first that it repeats what direct steps do.
        self.trusted: bool | None = None if torch.version.hip else True
        self.inside = captures_sums()
        self.parts = 1  # that a batch is split into
        self.direct = False  # whether steps run operation by operation all the same
        self.forget()

    def forget(self):
        """Drop all graphs: what they have captured has changed."""
        # Of each rung: its graph, its inputs on the device, and what fills those.
        self.graphs: dict[tuple, tuple[list[Segment] | None, list, list[Callable]]] = {}
        self.pool = torch.cuda.graph_pool_handle()

    def prepare(self, frames: np.ndarray):
        """Tell which frames (B,) come next."""
        if self.feed.ahead:
            self.feed.prepare(self._split(self.deal(frames)))

    def warm_up(self, frames: np.ndarray):
        """Compile and capture what a step on ``frames`` (B,) needs, without taking it."""
        self._with_room(frames, lambda *_: None)

    def __call__(self, frames: np.ndarray):
        """One step on ``frames`` (B,); a batch that does not fit is split."""
        self._with_room(frames, self._run)

    def _with_room(self, frames: np.ndarray, act: Callable):
        shares = self.deal(frames)
        while True:
            try:
                return act(*self._ready(self._split(shares)))
            except torch.OutOfMemoryError:
                if self.parts >= shares.shape[1]:
                    raise
                self._split_further(shares)

    def _split(self, shares: np.ndarray) -> list[Part]:
        """The parts of this process, each with room for that of any."""
        parts, number = [], min(self.parts, shares.shape[1])
        for members in np.array_split(shares, number, axis=1) if number > 1 else [shares]:
            own, alone = members[self.world.rank], self.world.size == 1
            sizes = self.feed.ladder.sizes(own if alone else members)
            parts.append(Part(own if alone else own[own >= 0], sizes))
        return parts

    def _split_further(self, shares: np.ndarray):
        self.parts *= 2
        self.forget()
        torch.cuda.empty_cache()
        self.tell(
            f"a batch of {shares.shape[1]} frames does not fit into the GPU's memory: its gradient "
            f"is summed over {self.parts} parts"
        )

    def _ready(self, parts: list[Part]):
        sizes = [part.sizes for part in parts]
        inputs, key = self.feed.inputs(parts), tuple(sizes)
        full = key not in self.graphs and len(self.graphs) >= MOST_GRAPHS
        if self.direct or full or self.trusted is False:
            return None, self._static(inputs), sizes
        if key not in self.graphs:
            static = self._static(inputs)
            self.graphs[key] = self._agreed(static, sizes), static, _senders(static, inputs)
        segments, static, senders = self.graphs[key]
        for send, value in zip(senders, chain.from_iterable(inputs)):
            send(value)
        return segments, static, sizes

    def _agreed(self, static: list, sizes: list) -> list[Segment] | None:
        """A capture; where memory does not suffice for that of one process, it fails for all."""
        if self.world.size == 1:
            return self._captured(static, sizes)
        captured, failed = None, False
        try:
            captured = self._captured(static, sizes)
        except torch.OutOfMemoryError:
            failed = True
        if self.world.total(np.array([failed], float))[0]:
            raise torch.OutOfMemoryError
        return captured

    def _run(self, segments: list[Segment] | None, static: list, sizes: list):
        if segments is not None:
            self._replay(segments)
            return
        with stage("batch"):
            batches = self._batches(static, sizes)
        finished(self.advance(batches), self.world.sum)

    def _replay(self, segments: list[Segment]):
        for graph, tensor in segments:
            graph.replay()
            if tensor is not None:
                self.world.sum(tensor)

    def _batches(self, static: list, sizes: list) -> list:
        return [self.feed.batch(tensors, size) for tensors, size in zip(static, sizes)]

    def _static(self, inputs: list) -> list[list[Tensor]]:
        """``inputs`` in tensors of their own on the device."""
        return [
            [torch.as_tensor(values).to(self.device, copy=True) for values in of_part]
            for of_part in inputs
        ]

    def _captured(self, static: list, sizes: list) -> list[Segment] | None:
        device = self.device
        # Everything is compiled and tuned before the capture, on a stream of its own, as torch
        # asks for.
        stream = torch.cuda.Stream(device)
        stream.wait_stream(torch.cuda.current_stream(device))
        with torch.cuda.stream(stream):
            finished(self.differentiate(self._batches(static, sizes)), lambda tensor: None)
        torch.cuda.current_stream(device).wait_stream(stream)
        segments = self._segments(lambda: self.advance(self._batches(static, sizes)))
        if self.trusted is None:
            self.trusted = self._repeats(segments, lambda: self._run(None, static, sizes))
            if not self.trusted:
                self.tell(
                    "graphs of whole steps are not to be relied on here: steps run one by one"
                )
                return None
        return segments

    def _segments(self, work: Callable[[], Iterator[Tensor]]) -> list[Segment]:
        """``work`` as graphs: one, or one up to each sum over the processes."""
        # Other threads, as that of NCCL, do not disturb a capture of several processes' work.
        mode = "global" if self.world.size == 1 else "thread_local"
        segments, steps, tensor = [], None, None
        with nothing_collected():
            while not segments or tensor is not None:
                graph = torch.cuda.CUDAGraph()
                with torch.cuda.graph(graph, pool=self.pool, capture_error_mode=mode):
                    steps = steps or work()
                    tensor = next(steps, None)
                    while tensor is not None and self.inside:
                        self.world.sum(tensor)
                        tensor = next(steps, None)
                segments.append((graph, tensor))
        return segments

    def _repeats(self, segments: list[Segment], directly: Callable[[], None]) -> bool:
        """Whether a few replays of ``segments`` give what the same steps give when run directly."""
        before = [tensor.clone() for tensor in self.state()]
        found = []
        for step in (lambda: self._replay(segments), directly):
            for _ in range(CHECKED_STEPS):
                step()
            found.append([tensor.clone() for tensor in self.state()])
            for tensor, old in zip(self.state(), before):
                tensor.copy_(old)
        return all(map(torch.equal, *found))


def _senders(static: list[list[Tensor]], inputs: list) -> list[Callable]:
    """What fills each tensor of ``static`` with others that come as ``inputs`` did."""
    pairs = zip(chain.from_iterable(static), chain.from_iterable(inputs))
    return [
        Outbox(target).send if isinstance(values, np.ndarray) else target.copy_
        for target, values in pairs
    ]


def feed_of(structures: Structures, device: torch.device) -> Resident | Streamed:
    """What brings batches to a GPU."""
    if structures.device.type != "cuda":
        return Streamed(structures, device)
    if not kernels_on(device):
        return Resident(structures, structures.batch)
    from ..ops.triton.assembly import Assembly

    return Resident(structures, Assembly(structures).batch)
