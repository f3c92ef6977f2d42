"""``nepkit bench``: how fast this machine trains on a run directory."""

from __future__ import annotations

import os
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from .config import NepConfig, read_nep_in
from .data.windows import at_hand
from .errors import UserError
from .text import table
from .train.device import choose_device, describe_device, precision_type
from .train.folder import OutputFolder
from .train.loop import Run
from .train.reading import read_data, sizes_of
from .train.schedule import learning_rate, resolve
from .train.start import Setup, check_neurons, data_files, new_run

# Part of the time that goes to steps which are not counted: caches fill, graphs are captured.
WARM_UP = 0.2
# Steps between looks at the clock, for which a GPU is waited for.
AT_ONCE = 10


@dataclass(frozen=True)
class Measured:
    """Steps that were timed."""

    device: torch.device
    precision: torch.dtype
    config: NepConfig  # resolved
    steps: int
    seconds: float
    atoms: int  # of all steps
    pairs: int
    memory: int  # bytes at most, 0 where it is not known

    def text(self, name: str) -> str:
        """The result in some lines."""
        stage = self.config.stages[0]
        total = sum(stage.generation for stage in self.config.stages)
        per_step = self.seconds / self.steps
        precision = str(self.precision).removeprefix("torch.")
        size = f"{self.atoms / self.steps:,.0f} atoms, {self.pairs / self.steps:,.0f} pairs"
        speed = f"{1 / per_step:,.1f} steps/s, {self.atoms / self.seconds:,.0f} atoms/s"
        often = f"the evaluation of all frames every {self.config.output_interval:,} steps"
        rows = [
            ("device", f"{describe_device(self.device)}, {precision}"),
            ("batch", f"{stage.batch} frames: {size}"),
            ("step", f"{1e3 * per_step:.3g} ms: {speed}"),
            ("training", f"{total:,} steps take {duration(total * per_step)}, without {often}"),
        ]
        if self.memory:
            rows.append(("memory", f"{self.memory / 1e6:,.0f} MB at most, of this measurement"))
        return table(f"{name}: {self.steps:,} steps in {self.seconds:.1f} s", rows)


def bench(
    run_dir: str | os.PathLike,
    *,
    seconds: float = 10.0,
    device: str = "auto",
    precision: str = "float32",
    **nep_in,
) -> Measured:
    """Take training steps on a run directory for some ``seconds``; nothing is written there.

    Other keywords are those of nep.in, as in train_nep. Raises ``UserError`` as train_nep does.
    """
    run_dir = Path(run_dir)
    if not run_dir.is_dir():
        raise UserError(f"{run_dir}: no such folder; give the one that holds nep.in and train.xyz")
    config = read_nep_in(run_dir / "nep.in", nep_in)
    check_neurons(config.model)
    setup = Setup(run_dir, choose_device(device), precision_type(precision), "analytic")
    sources = read_data(data_files(run_dir), config, None, _quiet)
    config, _ = resolve(config, *sizes_of(sources))
    with tempfile.TemporaryDirectory() as scratch, OutputFolder(Path(scratch)) as folder:
        run = new_run(setup, folder, config, sources, {}, _quiet)
        return _measure(run, setup, seconds)


def _quiet(line: str):
    """Leaves out what a run says of its data, except what takes time."""
    if line.startswith("compiling"):
        print(line)


def _measure(run: Run, setup: Setup, seconds: float) -> Measured:
    step, stage = run.step, run.config.stages[0]
    structures = run.sets[0].prepared.structures
    sampler = run.sampler(0)
    step.warm_up(sampler.frames(0))
    done, counts = 0, np.zeros(4, np.int64)

    def go_on(seconds: float) -> float:
        nonlocal done, counts
        done, counts = 0, np.zeros(4, np.int64)
        started = time.perf_counter()
        while done % AT_ONCE or time.perf_counter() - started < seconds:
            frames = at_hand(structures, sampler, done)
            value = step(frames, learning_rate(done % max(stage.generation, 1), stage), done)
            step.prepare(at_hand(structures, sampler, done + 1))
            counts += structures.counts[frames].sum(0)
            done += 1
            if done % AT_ONCE == 0 or setup.device.type == "cpu":
                float(value)  # waits for the device
                if setup.device.type == "cpu" and time.perf_counter() - started > seconds:
                    break
        return time.perf_counter() - started

    go_on(WARM_UP * seconds)
    taken = go_on(seconds)
    atoms, _, halves, _ = counts.tolist()
    return Measured(
        setup.device, setup.dtype, run.config, done, taken, atoms, halves, _memory(setup.device)
    )


def _memory(device: torch.device) -> int:
    """Most bytes that the GPU, or this process, has held; 0 where it is not known."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    try:
        import resource
    except ImportError:  # Windows
        return 0
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else 1024 * most


def duration(seconds: float) -> str:
    """Seconds, minutes, hours or days, for people."""
    for unit, size in (("days", 86400.0), ("hours", 3600.0), ("minutes", 60.0)):
        if seconds >= 2 * size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.0f} s"
