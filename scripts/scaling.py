"""How training speeds up with more processes: measured, and by a model on paper.

    python scripts/scaling.py RUN_DIR --processes 1,2,4 --frames 64 --out scaling.json
    srun python scripts/scaling.py RUN_DIR --measure --frames 64 --strong 512 --out 64.json
    python scripts/scaling.py --read 8.json 64.json --plot scaling.png

Weak scaling: every process has --frames frames a step. Strong: all together have --strong frames.
The first form starts torchrun for each number of processes of this machine; the second measures
the processes that a launcher has started; the third puts measurements together. A measurement of
one process must be among them.

The model. A step takes as long as the slowest of N processes needs for its share, and then the sum
of the gradients. Steps of one process alone scatter by a part s, and the slowest of N is later by
s times the expected largest of N normal numbers. The sum of S bytes over the g processes of a node
takes a + 2 (g - 1) / g S / b, where a and b are fitted to sums of this machine's own; over m nodes
it takes 2 log2(m) A + 2 S / B more, as trees do (--node-latency A, --node-bandwidth B a process).
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from statistics import NormalDist

import numpy as np
import torch

from nepkit.config import read_nep_in
from nepkit.data.windows import at_hand
from nepkit.train.folder import OutputFolder
from nepkit.train.reading import read_data
from nepkit.train.sharded import own_device
from nepkit.train.start import Setup, data_files, new_run
from nepkit.train.world import World, joined

ROUNDS, SUM_SIZES = 5, [2**k for k in range(10, 26, 3)]
ON_PAPER = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1000)


def steps_of(setup: Setup, batch: int, seconds: float) -> dict:
    """Median and scatter of a step on ``batch`` frames, all processes together."""
    keywords = {"batch": f"{batch} exact", "generation": 10**6, "output_interval": 10**6}
    config = read_nep_in(setup.run_dir / "nep.in", keywords)
    quiet = lambda line: None  # noqa: E731
    world = setup.world
    with tempfile.TemporaryDirectory() as scratch:
        sources = read_data(data_files(setup.run_dir), config, Path(scratch), quiet, world)
        folder = OutputFolder(Path(scratch))
        run = new_run(setup, folder, config, sources, {}, quiet)
    sampler, structures = run.sampler(0), run.sets[0].prepared.structures
    run.step.warm_up(sampler.frames(0))

    def steps(count: int) -> float:
        world.total(np.zeros(1))
        start = time.perf_counter()
        for _ in range(count):
            value = run.step(at_hand(structures, sampler, run.done), 1e-3, run.done)
            run.done += 1
            run.step.prepare(at_hand(structures, sampler, run.done))
        float(value)  # waits for the device
        return time.perf_counter() - start

    steps(min(3 * sampler.n_batches, 100))  # graphs of most sizes are captured
    count = int(world.gather(max(3, round(seconds / ROUNDS / (steps(5) / 5))))[0])
    times = [max(world.gather(steps(count))) / count for _ in range(ROUNDS)]
    single = [steps(1) for _ in range(30)]
    middle = statistics.median(single)
    scatter = 1.48 * statistics.median(abs(seconds - middle) for seconds in single) / middle
    atoms = structures.counts[:, 0].mean() * min(batch, len(structures))
    return {
        "processes": world.size, "batch": batch, "ms": 1e3 * statistics.median(times),
        "ms_min": 1e3 * min(times), "scatter": scatter,
        "atoms_per_s": atoms / statistics.median(times),
        "bytes": run.step.batch.reduced.numel() * run.step.batch.reduced.itemsize,
    }  # fmt: skip


def sums_of(world: World, device: torch.device) -> list[dict]:
    """Seconds that sums of tensors over the processes take."""
    rows = []
    for size in SUM_SIZES if world.size > 1 else ():
        tensor, times = torch.zeros(size // 4, device=device), []
        for _ in range(6):
            world.total(np.zeros(1))
            start = time.perf_counter()
            for _ in range(20):
                world.sum(tensor)
            float(tensor[0])
            times.append((time.perf_counter() - start) / 20)
        rows.append({"processes": world.size, "bytes": size, "us": 1e6 * min(times[1:])})
    return rows


def measured(options: argparse.Namespace) -> dict | None:
    """What the processes that a launcher has started measure; of the first one."""
    device = own_device(options.device)
    with joined(device) as world:
        setup = Setup(options.run_dir, device, torch.float32, "analytic")
        setup = replace(setup, world=world)
        batches = {options.frames * world.size, options.strong}
        if world.size == 1:  # shares that processes of larger runs will have
            batches |= {options.strong // n for n in options.processes} | {options.frames}
        rows = [steps_of(setup, batch, options.seconds) for batch in sorted(batches)]
        found = {"frames": options.frames, "strong": options.strong, "steps": rows}
        found["sums"] = sums_of(world, device)
        return found if world.first else None


def started(options: argparse.Namespace) -> list[dict]:
    """Measurements by each number of processes of this machine."""
    found = []
    for count in options.processes:
        with tempfile.TemporaryDirectory() as folder:
            out = Path(folder, "out.json")
            words = [
                str(options.run_dir), "--measure", "--frames", options.frames, "--strong",
                options.strong, "--seconds", options.seconds, "--device", options.device,
                "--processes", ",".join(map(str, options.processes)), "--out", out,
            ]  # fmt: skip
            torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node"]
            command = [sys.executable, *torchrun, count, __file__, *words]
            subprocess.run(list(map(str, command)), check=True)
            found.append(json.loads(out.read_text()))
    return found


class Model:
    """Predicts steps from those of one process and the sums of a few."""

    def __init__(self, found: list[dict], options: argparse.Namespace):
        self.alone = {r["batch"]: r for part in found for r in part["steps"] if r["processes"] == 1}
        self.options = options
        sums = [row for part in found for row in part["sums"]]
        self.latency, self.per_byte = 2e-5, 1 / 1e11  # where nothing is known
        if sums:
            few = min(row["processes"] for row in sums)
            rows = [row for row in sums if row["processes"] == few]
            self.latency = 1e-6 * min(row["us"] for row in rows)
            large = rows[-1]
            carried = 2 * (few - 1) / few * large["bytes"]
            self.per_byte = max(1e-6 * large["us"] - self.latency, 0.0) / carried

    def share(self, batch: float) -> float:
        """Seconds of one process for a share of ``batch`` frames."""
        known = sorted(self.alone)
        return 1e-3 * float(np.interp(batch, known, [self.alone[b]["ms"] for b in known]))

    def sum(self, n_bytes: int, n: int) -> float:
        """Seconds to add up ``n_bytes`` over ``n`` processes."""
        options, here = self.options, min(n, self.options.node)
        if n == 1:
            return 0.0
        seconds = self.latency + 2 * (here - 1) / here * n_bytes * self.per_byte
        nodes = math.ceil(n / here)
        if nodes > 1:
            seconds += 2 * math.log2(nodes) * options.node_latency
            seconds += 2 * n_bytes / options.node_bandwidth
        return seconds

    def step(self, batch: int, n: int) -> float:
        """Seconds of a step on ``batch`` frames by ``n`` processes."""
        row = next(iter(self.alone.values()))
        late = NormalDist().inv_cdf((n - 0.375) / (n + 0.25)) if n > 1 else 0.0
        scatter = statistics.median(row["scatter"] for row in self.alone.values())
        return self.share(batch / n) * (1 + scatter * late) + self.sum(row["bytes"], n)


def report(found: list[dict], options: argparse.Namespace) -> tuple[str, list[dict]]:
    """Tables for people, and the rows of measured scaling."""
    model, frames, strong = Model(found, options), found[0]["frames"], found[0]["strong"]
    lines = [
        f"{'':8}{'processes':>10}{'batch':>8}{'ms':>9}{'model':>9}{'off':>7}{'efficiency':>12}"
    ]
    rows = []
    for part in found:
        for row in part["steps"]:
            n = row["processes"]
            for kind, batch in (("weak", frames * n), ("strong", strong)):
                if row["batch"] != batch:
                    continue
                alone = model.share(frames) if kind == "weak" else model.share(strong) / n
                predicted = 1e3 * model.step(batch, n)
                efficiency = 1e3 * alone / row["ms"]
                rows.append({"kind": kind, **row, "model_ms": predicted, "efficiency": efficiency})
    for row in sorted(rows, key=lambda row: (row["kind"] != "weak", row["processes"])):
        lines.append(
            f"{row['kind']:8}{row['processes']:10d}{row['batch']:8d}{row['ms']:9.3f}"
            f"{row['model_ms']:9.3f}{row['model_ms'] / row['ms'] - 1:7.0%}{row['efficiency']:12.3f}"
        )
    n_bytes = next(iter(model.alone.values()))["bytes"]
    lines.append(
        f"sum of {n_bytes / 1e6:.2f} MB a step; fitted: {1e6 * model.latency:.0f} µs and "
        f"{1e-9 / max(model.per_byte, 1e-15):.0f} GB/s; on paper, {options.node} processes a node:"
    )
    lines.append(f"{'processes':>10}{'sum ms':>9}{'weak ms':>9}{'efficiency':>12}")
    for n in ON_PAPER:
        step = model.step(frames * n, n)
        lines.append(
            f"{n:10d}{1e3 * model.sum(n_bytes, n):9.3f}{1e3 * step:9.3f}"
            f"{model.share(frames) / step:12.3f}"
        )
    return "\n".join(lines), rows


def plot(found: list[dict], rows: list[dict], options: argparse.Namespace):
    """Weak efficiency and strong speed-up, measured and by the model."""
    from matplotlib.figure import Figure

    model, frames, strong = Model(found, options), found[0]["frames"], found[0]["strong"]
    figure = Figure(figsize=(7.0, 3.2), layout="constrained")
    weak, fast = figure.subplots(1, 2)
    weak.semilogx(ON_PAPER, [model.share(frames) / model.step(frames * n, n) for n in ON_PAPER])
    fast.loglog(ON_PAPER, [model.share(strong) / model.step(strong, n) for n in ON_PAPER])
    fast.loglog(ON_PAPER, ON_PAPER, ":", color="grey")
    for row in rows:
        axes, value = (weak, 1.0) if row["kind"] == "weak" else (fast, row["processes"])
        axes.plot(row["processes"], value * row["efficiency"], "o", color="black", markersize=4)
    weak.set(xlabel="processes", ylabel="weak efficiency", ylim=(0, 1.1))
    weak.set_title(f"{frames} frames a process", fontsize=9)
    fast.set(xlabel="processes", ylabel="speed-up")
    fast.set_title(f"{strong} frames in all", fontsize=9)
    figure.savefig(options.plot, dpi=200)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("run_dir", nargs="?", type=Path, metavar="RUN_DIR")
    add("--processes", default="1,2", metavar="N,N", help="of this machine (default: 1,2)")
    add("--frames", type=int, default=64, help="a process and step, weak scaling (default: 64)")
    add("--strong", type=int, help="a step, strong scaling (default: --frames times the most)")
    add("--seconds", type=float, default=5.0, help="for one measurement (default: 5)")
    add("--device", default="auto", help="auto, cuda or cpu")
    add("--measure", action="store_true", help="measure the processes of a launcher")
    add("--read", nargs="+", type=Path, metavar="FILE", help="measurements to put together")
    add("--out", type=Path, metavar="FILE", help="for the measurements")
    add("--plot", type=Path, metavar="FILE", help="png, svg or pdf")
    add("--node", type=int, default=8, help="processes a node, on paper (default: 8)")
    add("--node-latency", type=float, default=8e-6, metavar="S", help="(default: 8e-6)")
    add("--node-bandwidth", type=float, default=12.5e9, metavar="B/S", help="(default: 12.5e9)")
    options = parser.parse_args(arguments)
    options.processes = [int(word) for word in options.processes.split(",")]
    options.strong = options.strong or options.frames * max(options.processes)
    if options.measure:
        found = measured(options)
        if found is not None:
            options.out.write_text(json.dumps(found, indent=1) + "\n")
        return 0
    if options.read:
        parts = [json.loads(path.read_text()) for path in options.read]
        found = [
            part for whole in parts for part in (whole if isinstance(whole, list) else [whole])
        ]
    else:
        found = started(options)
        if options.out:
            options.out.write_text(json.dumps(found, indent=1) + "\n")
    text, rows = report(found, options)
    print(text)
    if options.plot:
        plot(found, rows, options)
    return 0


if __name__ == "__main__":
    sys.exit(main())
