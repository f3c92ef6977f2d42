"""Some steps of a run under torch's profiler (Kineto): a Chrome trace, and a table of stages."""

from __future__ import annotations

import json
import shutil
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from torch.profiler import ProfilerActivity, profile, record_function

from ..errors import UserError
from ..files import write_atomically
from .signals import Interrupted
from .step import Step

NAME = "profile.json"
STEP = "step"  # what a trace calls one round of the training loop
ROWS = 10
ON_DEVICE = ("kernel", "gpu_memcpy", "gpu_memset")


def check_profile(steps: int | str | None) -> int:
    """The number of steps to profile, 0 for None."""
    if steps is None:
        return 0
    try:
        number = int(steps)
    except ValueError:
        number = 0
    if number < 1:
        raise UserError(f"profile {steps}: give the number of steps to look at, at least 1")
    return number


class Recording:
    """While entered, takes the next ``count`` steps under the profiler; with 0 it does nothing.

    The trace goes to ``path``, unless that is None, its table to ``tell``. Steps then run one operation at a time, not
    as captured graphs, which know no names.
    """

    def __init__(self, count: int, step: Step, path: Path | None, tell: Callable[[str], None]):
        self.count, self.step, self.path, self.tell = count, step, path, tell
        self.done = 0
        self._profiler: profile | None = None

    def __enter__(self):
        if self.count:
            self.step.run_directly(True)
            activities = [ProfilerActivity.CPU]
            if self.step.model.flat.is_cuda:
                activities.append(ProfilerActivity.CUDA)
            self._profiler = profile(activities=activities)
            self._profiler.start()
        return self

    def begin_step(self):
        """A round of the training loop begins."""
        if self._profiler is not None:
            self._round = record_function(STEP)
            self._round.__enter__()

    def end_step(self):
        """It is over."""
        if self._profiler is not None:
            self._round.__exit__(None, None, None)
            self.done += 1
            if self.done == self.count:
                self._finish()

    def __exit__(self, kind, error, traceback):
        if self._profiler is not None:  # fewer steps than asked for, or an error
            self._finish(keep=self.done > 0 and kind in (None, Interrupted))

    def _finish(self, keep: bool = True):
        profiler, self._profiler = self._profiler, None
        if self.step.model.flat.is_cuda:
            torch.cuda.synchronize()
        profiler.stop()
        self.step.run_directly(False)
        if keep and self.path is not None:
            with TemporaryDirectory() as folder:
                trace = Path(folder) / NAME
                profiler.export_chrome_trace(str(trace))
                with open(trace, "rb") as source:
                    write_atomically(self.path, lambda file: shutil.copyfileobj(source, file))
            self.tell(f"{self.path}\n{stage_table(self.path)}")


def stage_table(path: Path) -> str:
    """Where the time of the steps in the trace ``path`` went, the costliest stages first.

    Kernels of a GPU count for the stage that launched them; without any, the time on the clock
    counts. A stage within another, as in an evaluation, belongs to it.
    """
    try:
        with open(path, encoding="utf-8") as file:
            events = json.load(file)["traceEvents"]
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise UserError(f"{path}: cannot be read as a Chrome trace: {error}") from error
    events = [event for event in events if event.get("ph") == "X"]
    marks = sorted(
        (event for event in events if event.get("cat") == "user_annotation"),
        key=lambda event: (event["ts"], -event["dur"]),
    )
    rounds = [mark for mark in marks if mark["name"] == STEP]
    if not rounds:
        raise UserError(f"{path}: holds no steps of a training by nepkit")
    stages = _outermost([mark for mark in marks if mark["name"] != STEP], rounds)
    wall = sum(mark["dur"] for mark in rounds)
    kernels = [event for event in events if event.get("cat") in ON_DEVICE]
    times: Counter = Counter()
    if kernels:
        for stage, duration in launched(kernels, events, stages):
            times[stage] += duration
    else:
        for mark in stages:
            times[mark["name"]] += mark["dur"]
    total = sum(times.values()) if kernels else wall
    return _formatted(times, total, wall, len(rounds), bool(kernels))


def _outermost(marks: list[dict], rounds: list[dict]) -> list[dict]:
    """Those of ``marks``, sorted by time, on the thread of the steps that are in no other."""
    found, end = [], float("-inf")
    for mark in marks:
        if mark["tid"] == rounds[0]["tid"] and mark["ts"] >= end:
            found.append(mark)
            end = mark["ts"] + mark["dur"]
    return found


def launched(kernels: list[dict], events: list[dict], stages: list[dict]):
    """(name of the stage that launched it or "", µs) of each of ``kernels``."""
    launches = {
        event["args"]["correlation"]: event["ts"]
        for event in events
        if event.get("cat") not in ON_DEVICE and "correlation" in event.get("args", {})
    }
    starts = [mark["ts"] for mark in stages]
    for kernel in kernels:
        launch = launches.get(kernel["args"].get("correlation"), float("-inf"))
        place = bisect_right(starts, launch) - 1
        inside = place >= 0 and launch <= stages[place]["ts"] + stages[place]["dur"]
        yield stages[place]["name"] if inside else "", kernel["dur"]


def _formatted(times: Counter, total: float, wall: float, n_steps: int, on_gpu: bool) -> str:
    named = Counter({name: time for name, time in times.items() if name})
    rows = named.most_common(ROWS)
    rows.append(("all else", total - sum(time for _, time in rows)))
    busy = f", of which the GPU works {1e-3 * total / n_steps:.2f} ms" if on_gpu else ""
    steps = f"{n_steps} steps" if n_steps > 1 else "1 step"
    head = f"{steps} of {1e-3 * wall / n_steps:.2f} ms{busy}, under the profiler, which slows them"
    width = max(len(name) for name, _ in rows)
    lines = [head, f"{'stage':<{width}}{'ms a step':>12}{'share':>8}"]
    for name, time in rows:
        share = time / max(total, 1e-9)
        lines.append(f"{name:<{width}}{1e-3 * time / n_steps:>12.3f}{share:>8.1%}")
    return "\n".join(lines)
