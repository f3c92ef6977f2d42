"""Speed, memory and quality of the ways to take a training step, side by side.

    python scripts/bench_variants.py --case pbte,nbmotaw --data DIR --json variants.json
    python scripts/bench_variants.py --case pbte --data DIR --device cuda --plot variants.png
    python scripts/bench_variants.py --case pbte --data DIR --curves curves.csv

loop, bmm, mulsum: the forms of the contraction in plain torch, operation by operation; mulsum compiled:
the same by Inductor, to which the sums over pairs are closed; make_fx: force_mode autograd; fused: what
training takes, numba's kernels on CPUs and one graph of Triton's on GPUs. Each takes N steps from the
same start on the first frames of a file (cases as in bench_step.py); times are those of steps that
are waited for, memory is what preparing the frames, compiling and the steps took, the loss that of the
last step.
A variant that cannot run here is named with the reason. --curves writes the losses of all steps of
mulsum (eager), its compiled form and fused, in float32 and float64, and a plot beside them.
"""

from __future__ import annotations

import argparse
import gc
import json
import multiprocessing
import statistics
import sys
import tempfile
import time
import warnings
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path

import bench_peers
import bench_step
import torch
import variant_figures

from nepkit.model.compiled import Compiled, compiled_contract
from nepkit.ops import policy
from nepkit.train.objective import analytic

VARIANTS = ("loop", "bmm", "mulsum", "mulsum compiled", "make_fx", "fused")


@dataclass
class Row:
    """One line of the result."""

    case: str
    frames: int  # a step
    device: str
    variant: str
    precision: str
    ms_per_step: float | None = None  # median
    ms_min: float | None = None
    peak_bytes: int | None = None  # None where the system does not say
    steps: int = 0
    loss: float | None = None  # of the last step
    note: str = ""  # why there are no numbers, or fewer steps
    losses: list[float] = field(default_factory=list)  # of all steps


def made(row: Row, xyz: Path, nep_in: dict[str, str], held: ExitStack) -> bench_peers.Step:
    """The step of a variant; what it needs to run stays in ``held``."""
    device, name = torch.device(row.device), row.variant
    if name == "fused" and not (policy.fused_on(device) or policy.kernels_on(device)):
        raise RuntimeError(f"{'numba' if device.type == 'cpu' else 'Triton'} is not installed")
    form = name.split()[0]
    if form in policy.FORMS:
        compiled = name.endswith("compiled")
        usual = policy.contraction_policy(device.type, compiled, int(nep_in["type"].split()[0]))
        held.enter_context(policy.reference_path())
        held.enter_context(policy.forced_contraction(form, usual.one_hot))
    mode = "autograd" if name == "make_fx" else "analytic"
    step = bench_step.new_step(xyz, nep_in, row.device, row.precision, mode)
    if name == "mulsum compiled":
        batch = step.run.step.batch
        batch.function, batch.contract = Compiled(analytic), compiled_contract(step.run.model)
    return step


def uncompiled(step: bench_peers.Step) -> str:
    """Why what should be compiled is not."""
    function = step.run.step.batch.function
    traced = [run for _, run in getattr(function, "graphs", {}).values()]
    return next((f for run in (function, *traced) if (f := getattr(run, "failure", ""))), "")


def take_steps(row: Row, step: bench_peers.Step, steps: int, seconds: float):
    """Up to ``steps`` steps, and no more once those after the first took ``seconds``."""
    times = []
    while len(times) < steps and sum(times[1:]) < 1e3 * seconds:
        begin = time.perf_counter()
        step()
        if row.device != "cpu":
            torch.cuda.synchronize(row.device)
        times.append(1e3 * (time.perf_counter() - begin))
        row.losses.append(float(step.loss))
        if failure := uncompiled(step):
            raise RuntimeError(f"not compiled: {failure}")
    # The first steps compile and capture.
    counted = times[min(bench_peers.NUMBER_OF_WARMUPS, len(times) - 1) :]
    row.ms_per_step, row.ms_min = statistics.median(counted), min(counted)
    row.steps, row.loss = len(times), row.losses[-1]
    if row.steps < steps:
        row.note = f"stopped after {seconds:g} s"
    graphs = step.run.step.graphs
    if graphs is not None and graphs.trusted is False:
        row.note += "graphs are not to be relied on here: steps run one by one"


def measured(row: Row, xyz: Path, nep_in: dict[str, str], steps: int, seconds: float) -> Row:
    """``row`` with its numbers, or the reason why there are none."""
    warnings.filterwarnings("ignore")  # of the compiler
    on_gpu = row.device != "cpu"
    gc.collect()
    if on_gpu:
        before = torch.cuda.memory_allocated(row.device)
        torch.cuda.reset_peak_memory_stats(row.device)
    else:
        before = bench_step.high_water()
    try:
        with ExitStack() as held:
            take_steps(row, made(row, xyz, nep_in, held), steps, seconds)
    except Exception as error:
        row.note = next(iter(str(error).splitlines()), "") or type(error).__name__
        row.losses.clear()
        return row
    peak = torch.cuda.max_memory_allocated(row.device) if on_gpu else bench_step.high_water()
    row.peak_bytes = None if peak is None else peak - before
    return row


def alone(row: Row, *others) -> Row:
    """``measured`` in a process of its own, but not on NVIDIA's GPUs.

    On a CPU its memory is that of the variant, and on ROCm compilers and graphs may abort.
    """
    if row.device != "cpu" and torch.version.hip is None:
        return measured(row, *others)
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        try:
            return pool.submit(measured, row, *others).result()
        except BrokenProcessPool:
            row.note = "its process was killed, or aborted"
            return row


def table(rows: list[Row]) -> str:
    """The rows for people."""
    head = f"{'case':10s}{'frames':>7s}  {'variant':16s}{'precision':10s}"
    head += f"{'median':>11s}{'min':>11s}"
    lines = [head + f"{'peak':>8s}{'steps':>7s}{'loss of':>13s}"]
    lines.append(f"{'':45s}{'ms/step':>11s}{'ms/step':>11s}{'MiB':>8s}{'':7s}{'the last':>13s}")
    for row in rows:
        start = f"{row.case:10s}{row.frames:7d}  {row.variant:16s}{row.precision:10s}"
        if row.loss is None:
            lines.append(f"{start} does not run here: {row.note}")
            continue
        peak = "-" if row.peak_bytes is None else f"{row.peak_bytes / 2**20:.0f}"
        numbers = (
            f"{row.ms_per_step:11.3f}{row.ms_min:11.3f}{peak:>8s}{row.steps:7d}{row.loss:13.6g}"
        )
        lines.append(f"{start}{numbers}  {row.note}".rstrip())
    return "\n".join(lines)


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    bench_step.add_cases(parser)
    parser.add_argument("--variant", metavar="NAME[,NAME]", default=",".join(VARIANTS))
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    parser.add_argument("--steps", type=int, default=200, metavar="N")
    parser.add_argument("--seconds", type=float, default=60, help="for all steps but the first")
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("--plot", type=Path, metavar="FILE.png")
    parser.add_argument("--curves", type=Path, metavar="FILE.csv", help="of the last case")
    options = parser.parse_args(arguments)
    options.variant = options.variant.split(",")
    if unknown := [name for name in options.variant if name not in VARIANTS]:
        sys.exit(f"unknown variant {unknown[0]}; there are {', '.join(VARIANTS)}")
    if options.device != "cpu" and not torch.cuda.is_available():
        sys.exit(f"device {options.device}: torch finds no GPU")
    return options


def main(arguments: list[str] | None = None) -> int:
    options = parse(arguments)
    wanted = [(name, "float32") for name in options.variant]
    if options.curves:
        both = [(name, p) for p in ("float32", "float64") for name in variant_figures.CURVES]
        wanted = list(dict.fromkeys([*wanted, *both]))
    rows: list[Row] = []
    for name, (case, path) in bench_step.chosen_cases(options).items():
        with tempfile.TemporaryDirectory() as folder:
            xyz = Path(folder, "train.xyz")
            frames = bench_peers.first_frames(path, options.batch or case.batch, xyz)
            nep_in = bench_peers.model_keywords(case.nep_in)
            found = []
            for variant, precision in wanted:
                row = Row(name, frames, options.device, variant, precision)
                found.append(alone(row, xyz, nep_in, options.steps, options.seconds))
        print(table(found), flush=True)
        rows += found
        if options.json:  # after every case: a long run may be cut short
            options.json.write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n")
    if options.curves:
        variant_figures.write_curves(options.curves, found)
    if options.plot:
        variant_figures.write_bars(options.plot, rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
