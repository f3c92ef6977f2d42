"""Find the launch values of the Triton kernels for the GPU at hand and write them down.

    python scripts/tune_kernels.py --case pbte,m16,m89 --data DIR
    python scripts/tune_kernels.py --xyz data/sige/train.xyz --nep-in data/sige/nep.in

For one kernel after the other, every candidate is timed in whole training steps on the frames given
(see bench_step.py), and the fastest is kept where it gains over 1 %. The entry goes into
nepkit/ops/triton/launch.json under the name of the architecture.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from pathlib import Path

import bench_peers
import bench_step
import torch

from nepkit.ops.triton import launch

TILES = [(1, 1), (2, 1), (2, 2), (4, 2), (4, 4), (8, 4)]
ROWS = [(1, 16, 1), (2, 16, 2), (4, 8, 4), (8, 8, 4), (8, 16, 4), (16, 4, 4), (4, 16, 2)]
CANDIDATES = {
    "angular_forces": [{"num_warps": w} for w in (1, 2, 4)],
    "long_angular_tangents": [{"PAIRS": p, "num_warps": w} for p, w in TILES],
    "angular_tangents": [{"PAIRS": p, "num_warps": w} for p, w in TILES],
    "radial_forces": [
        {"BLOCK": b, "num_warps": w} for b, w in [(32, 1), (64, 2), (64, 4), (128, 4), (256, 8)]
    ],
    "radial_tangents": [{"ROWS": r, "PLACES": p, "num_warps": w} for r, p, w in ROWS],
    "atom_sums": [
        {"ATOMS": a, "PLACES": p, "num_warps": w}
        for a, p, w in [(1, 32, 1), (1, 64, 1), (2, 32, 2), (4, 16, 2), (4, 32, 4), (8, 16, 4)]
    ],
    "coefficient_products": [
        {"KB": k, "num_warps": w} for k, w in [(2, 1), (4, 1), (4, 2), (8, 2), (16, 4)]
    ],
    "contraction": [{"num_warps": w} for w in (1, 2, 4)],
    "expansion": [{"num_warps": w} for w in (1, 2, 4)],
    "invariants": [
        {"ITEMS": i, "num_warps": w} for i, w in [(16, 1), (16, 4), (32, 1), (64, 2), (128, 4)]
    ],
    "tiles": [
        {"CHUNK": c, "GROUPS": g, "num_warps": w}
        for c, g, w in [(512, 4, 2), (512, 8, 4), (1024, 4, 4), (1024, 8, 8), (256, 8, 2)]
    ],
    "loss_slopes": [{"ATOMS": a, "num_warps": w} for a, w in [(32, 1), (64, 2), (128, 4)]],
    "changes": [{"BLOCK": b, "num_warps": w} for b, w in [(64, 2), (128, 4), (256, 4)]],
}


def milliseconds(step, rounds: int = 5, count: int = 40) -> float:
    """Time of a step, its graph captured anew."""
    step.run.step.graphs.forget()
    step()
    times = []
    for _ in range(rounds):
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(count):
            step()
        torch.cuda.synchronize()
        times.append((time.perf_counter() - start) / count)
    return 1e3 * statistics.median(times)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    bench_step.add_cases(parser)
    options = parser.parse_args()
    entry = launch.TABLE.setdefault(launch.architecture(), {})
    steps = {}
    for name, (case, path) in bench_step.chosen_cases(options).items():
        with tempfile.TemporaryDirectory() as folder:
            xyz = Path(folder, "train.xyz")
            bench_peers.first_frames(path, options.batch or case.batch, xyz)
            steps[name] = bench_step.nepkit_step(
                xyz, bench_peers.model_keywords(case.nep_in), "cuda"
            )
    best = {name: milliseconds(step) for name, step in steps.items()}
    print(f"{'before':24s}{'':36s}" + "".join(f"{n} {t:.3f} ms  " for n, t in best.items()))
    for kernel, candidates in CANDIDATES.items():
        for candidate in candidates:
            kept = entry.get(kernel)
            entry[kernel] = candidate
            found = {name: milliseconds(step) for name, step in steps.items()}
            gain = statistics.fmean(best[name] / found[name] for name in steps)
            shown = "".join(f"{n} {t:.3f} ms  " for n, t in found.items())
            print(f"{kernel:24s}{candidate!s:36s}{shown}{'*' if gain > 1.01 else ''}", flush=True)
            if gain > 1.01:
                best = found
            elif kept is None:
                del entry[kernel]
            else:
                entry[kernel] = kept
    text = ",\n".join(
        f' "{name}": {{\n'
        + ",\n".join(f'  "{kernel}": {json.dumps(values)}' for kernel, values in table.items())
        + "\n }"
        for name, table in launch.TABLE.items()
    )
    launch.PATH.write_text(f"{{\n{text}\n}}\n", encoding="utf-8")
    print(f"written to {launch.PATH}: {json.dumps(entry)}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
