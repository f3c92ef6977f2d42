"""How near the kernels of a training step come to what their bytes and operations cost at least.

    python scripts/kernel_floors.py --case pbte,m16,m89 --data DIR --json floors.json
    python scripts/kernel_floors.py --xyz data/sige/train.xyz --nep-in data/sige/nep.in --batch 20

On a GPU, for the cases of bench_step.py. A step is replayed as a graph, and taken operation by
operation under torch's profiler. The floor of an operator is the longer of two times: of reading each
argument and writing each result once at the speed of a large copy, and of its products at the speed of
a large fp32 matrix product; both are measured here. Most of what a step moves lies in the cache, which
is faster than the copy: a ratio below 1 can be. Kernels are listed below their operator where there are
several. Operators of aten are taken together by name, what no operator launches by kernel.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path

import bench_peers
import bench_step
import torch
from operator_record import MARK, Operator, Recorder, triton_noted
from torch.profiler import ProfilerActivity, profile

from nepkit.train.profiling import ON_DEVICE, launched

STEPS = 20  # under the profiler
OUTSIDE = "outside of the graph"


def add_times(operators: dict[str, Operator], events: list[dict]):
    """Give operators the kernels that a trace says they launched."""
    events = [event for event in events if event.get("ph") == "X"]
    marks = [e for e in events if e.get("cat") == "user_annotation" and e["name"].startswith(MARK)]
    marks.sort(key=lambda event: event["ts"])
    kernels = [event for event in events if event.get("cat") in ON_DEVICE]
    for kernel, (mark, duration) in zip(kernels, launched(kernels, events, marks)):
        operator = operators[mark.removeprefix(MARK) or OUTSIDE]
        operator.launches += 1
        operator.us += duration
        own = operator.kernels.setdefault(kernel["name"], [0, 0])
        own[0] += 1
        own[1] += duration


def per_step(operators: dict[str, Operator], steps: int, ceilings: dict[str, float]):
    """Divide sums over ``steps`` and set the floors; those that launch nothing go."""
    for name in [name for name, operator in operators.items() if not operator.launches]:
        del operators[name]
    for operator in operators.values():
        for key in ("calls", "bytes", "operations", "launches", "us"):
            setattr(operator, key, getattr(operator, key) / steps)
        operator.kernels = {k: [x / steps for x in v] for k, v in operator.kernels.items()}
        moving = operator.bytes / ceilings["bytes_per_us"]
        operator.floor_us = max(moving, operator.operations / ceilings["operations_per_us"])


def recorded(step: bench_peers.Step) -> dict[str, Operator]:
    """Sums over STEPS steps, taken operation by operation."""
    graphs, recorder = step.run.step.graphs, Recorder()
    step.run.step.run_directly(True)
    step()
    plain = graphs._run

    def run(*args):
        with recorder:
            plain(*args)

    graphs._run = run  # what a graph holds
    activities = [ProfilerActivity.CPU, ProfilerActivity.CUDA]
    with triton_noted(recorder), profile(activities=activities) as profiler:
        for _ in range(STEPS):
            step()
        torch.cuda.synchronize()
    graphs._run = plain
    step.run.step.run_directly(False)
    with tempfile.TemporaryDirectory() as folder:
        trace = Path(folder, "trace.json")
        profiler.export_chrome_trace(str(trace))
        add_times(recorder.operators, json.loads(trace.read_text(encoding="utf-8"))["traceEvents"])
    return recorder.operators


def microseconds(work, count: int) -> float:
    """Time of one of ``count`` calls one after the other, on the GPU's clock."""
    work()
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    for _ in range(count):
        work()
    end.record()
    torch.cuda.synchronize()
    return 1e3 * start.elapsed_time(end) / count


def measured_ceilings() -> dict[str, float]:
    """What the GPU at hand reaches: a copy, an fp32 matrix product, launches in a graph."""
    n, launches = 8192, 1000
    source = torch.ones(2**28, dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)
    copy = microseconds(lambda: target.copy_(source), 50)
    left = torch.ones(n, n, device="cuda")
    product = microseconds(lambda: left @ left, 5)
    one, graph = torch.zeros(1, device="cuda").add_(1.0), torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(launches):
            one.add_(1.0)
    return {
        "bytes_per_us": 2 * len(source) / copy,
        "operations_per_us": 2 * n**3 / product,
        "us_per_launch": microseconds(graph.replay, 20) / launches,
    }


def report(name: str, frames: int, operators: dict[str, Operator]) -> str:
    """The operators of a step for people, the costliest first."""
    head = f"{'launches':>9s}{'µs':>10s}{'µs':>10s}{'MB':>9s}{'MFLOP':>9s}{'µs':>9s}{'time /':>10s}"
    lines = [f"{name}, {frames} frames a step", f"{'operator':40s}{head}"]
    units = ("a step", "a launch", "a step", "a step", "a step", "floor", "floor")
    lines.append(" " * 40 + "".join(f"{u:>{w}s}" for u, w in zip(units, (9, 10, 10, 9, 9, 9, 10))))
    for key, o in sorted(operators.items(), key=lambda item: -item[1].us):
        ratio = f"{o.us / o.floor_us:10.1f}" if o.floor_us else f"{'-':>10s}"
        lines.append(
            f"{key:40s}{o.launches:9.1f}{o.us / o.launches:10.2f}{o.us:10.2f}{o.bytes / 1e6:9.2f}"
            f"{o.operations / 1e6:9.1f}{o.floor_us:9.2f}{ratio}"
        )
        own = sorted(o.kernels.items(), key=lambda item: -item[1][1])
        for kernel, (count, us) in own if len(own) > 1 and key.startswith("nepkit") else ():
            lines.append(f"  {kernel[:36]:38s}{count:9.1f}{us / count:10.2f}{us:10.2f}")
    return "\n".join(lines)


def summary(step_us: float, operators: dict[str, Operator], ceilings: dict[str, float]) -> str:
    """Where the time of a replayed step goes."""
    inside = [o for name, o in operators.items() if name != OUTSIDE]
    launches, time, floor = (
        sum(getattr(o, key) for o in inside) for key in ("launches", "us", "floor_us")
    )
    least = launches * ceilings["us_per_launch"]
    return (
        f"a replayed step takes {step_us:.1f} µs: {time:.1f} in {launches:.0f} kernels, "
        f"{step_us - time:.1f} between them; the floor of bytes and operations is {floor:.1f} µs, "
        f"that of so many launches {least:.1f} µs\n"
    )


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    bench_step.add_cases(parser)
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args(arguments)
    if not torch.cuda.is_available():
        sys.exit("kernel_floors needs a GPU, and torch finds none")
    ceilings, results = measured_ceilings(), []
    print(
        f"{torch.cuda.get_device_name()}: a copy moves {ceilings['bytes_per_us'] / 1e6:.2f} TB/s, "
        f"an fp32 matrix product makes {ceilings['operations_per_us'] / 1e6:.1f} TFLOP/s, "
        f"a launch in a graph takes {ceilings['us_per_launch']:.2f} µs\n"
    )
    for name, (case, path) in bench_step.chosen_cases(options).items():
        with tempfile.TemporaryDirectory() as folder:
            xyz = Path(folder, "train.xyz")
            frames = bench_peers.first_frames(path, options.batch or case.batch, xyz)
            step = bench_step.nepkit_step(xyz, bench_peers.model_keywords(case.nep_in), "cuda")
        step_us = min(microseconds(step, 100) for _ in range(5))
        operators = recorded(step)
        per_step(operators, STEPS, ceilings)
        print(report(name, frames, operators))
        print(summary(step_us, operators, ceilings), flush=True)
        found = {key: asdict(operator) for key, operator in operators.items()}
        results.append({"case": name, "frames": frames, "step_us": step_us, "operators": found})
        if options.json:
            options.json.write_text(
                json.dumps({"ceilings": ceilings, "cases": results}, indent=1) + "\n"
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())
