"""Time training steps of nepkit, and of other NEP trainers on the same frames.

    python scripts/bench_step.py --case pbte --batch 5 --data DIR --peers --threads 2
    python scripts/bench_step.py --xyz train.xyz --nep-in nep.in --batch 20 --json steps.json

A batch is the first frames of a file. nepkit's step is the one that training takes: the batch is
assembled, evaluated and differentiated, optimizer and average are updated. Peers (scripts/
bench_peers.py) take theirs with a batch that was assembled before. The programs take turns, with
the same number of threads. The ratio is a program's time over nepkit's.
"""

from __future__ import annotations

import argparse
import importlib
import json
import multiprocessing
import os
import statistics
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

import bench_peers
import numpy as np
import torch

from nepkit.config import read_nep_in
from nepkit.data.xyz import read_xyz
from nepkit.train.folder import OutputFolder
from nepkit.train.reading import read_data
from nepkit.train.start import Setup, new_run
from nepkit.units import ELEMENTS

METALS = "Ag Al Au Cr Cu Mg Mo Ni Pb Pd Pt Ta Ti V W Zr"
MOST = " ".join(e for e in ELEMENTS if e not in ("Po", "At", "Rn", "Fr", "Ra"))
COMMON = {"version": "4", "n_max": "4 4", "basis_size": "8 8"}


@dataclass(frozen=True)
class Case:
    """Frames and a model to time."""

    file: str  # below --data
    batch: int  # frames
    nep_in: dict[str, str]


def _case(file: str, batch: int, elements: str, cutoff: str, neuron: int, **more: str) -> Case:
    kind = f"{len(elements.split())} {elements}"
    own = {"type": kind, "cutoff": cutoff, "neuron": str(neuron), "l_max": "4 2 0"}
    return Case(file, batch, {**own, **COMMON, **more})


ZBL = {"l_max": "4 2 1", "zbl": "2"}
CASES = {
    "pbte": _case("a_pbte/train.xyz", 5, "Te Pb", "8 4", 30),
    "m16": _case("m16.xyz", 100, METALS, "6 5", 50),
    "m89": _case("m89.xyz", 100, MOST, "6 5", 80),
    "nbmotaw": _case("b_alloy/nbmotaw_train.xyz", 20, "Nb Mo Ta W", "6 5", 80, **ZBL),
    "subset89": _case("c_multi/subset89_train.xyz", 20, MOST, "6 5", 80, **ZBL),
}


@dataclass(frozen=True)
class Row:
    """One line of the result."""

    case: str
    batch: int  # frames
    device: str
    program: str
    ms_per_step: float  # median
    atoms_per_s: float
    peak_bytes: int | None  # to prepare the frames and train on them; None where unknown
    ratio: float  # time over nepkit's
    ms_min: float


def new_step(
    frames_xyz: Path,
    nep_in: dict[str, str],
    device: str,
    precision: str = "float32",
    force_mode: str = "analytic",
) -> bench_peers.Step:
    """The training step on all frames of a file from its start, as a function without arguments."""
    folder = frames_xyz.parent
    path = folder / "nep.in"
    keywords = {**nep_in, "generation": "1000000", "batch": "1000000 exact"}
    path.write_text("".join(f"{key} {value}\n" for key, value in keywords.items()))
    setup = Setup(folder, torch.device(device), getattr(torch, precision), force_mode)
    out = OutputFolder(folder)
    config, quiet = read_nep_in(path), lambda line: None  # noqa: E731
    sources = read_data({"train": frames_xyz}, config, None, quiet)
    run = new_run(setup, out, config, sources, {}, quiet)
    members = np.arange(len(sources["train"].labels))

    def step():
        # What the training loop does, so that nothing is left out.
        step.loss = run._take_step(members, run.done)

    step.run = run
    return step


def nepkit_step(frames_xyz: Path, nep_in: dict[str, str], device: str) -> bench_peers.Step:
    """The same, warmed up."""
    start = time.perf_counter()
    step = new_step(frames_xyz, nep_in, device)
    run = step.run
    info = {"atoms": int(run.sets[0].prepared.n_atoms.sum()), "parameters": len(run.model.flat)}
    return bench_peers.warmed_up(step, torch.device(device), info, start)


def programs(peers: bool, compiled: bool) -> dict[str, tuple[Callable, dict]]:
    """The programs to time by name: what prepares a step, and its options."""
    found = {"nepkit": (nepkit_step, {})}
    for name, maker in bench_peers.available().items() if peers else ():
        found[name] = (maker, {})
        if name == "torchnep" and compiled:
            found["torchnep compiled"] = (maker, {"mode": "compiled"})
    return found


def prepared(program: tuple[Callable, dict], case: Case, xyz: Path, device: str):
    """The step of one program on the frames of ``xyz``."""
    maker, options = program
    return maker(xyz, bench_peers.model_keywords(case.nep_in), device, **options)


def cpu_peak(name: str, case: Case, xyz: Path, threads: int) -> int | None:
    """Memory that a program takes on top of its libraries, measured in a process of its own."""
    warnings.filterwarnings("ignore")
    torch.set_num_threads(threads)
    if name != "nepkit":
        importlib.import_module(name.split()[0])
    before = high_water()
    prepared(programs(True, True)[name], case, xyz, "cpu")
    return None if before is None else high_water() - before


def high_water() -> int | None:
    """Most memory that this process ever had, in bytes; None where the system does not say."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return None
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))


def measure(name: str, case: Case, xyz: Path, options: argparse.Namespace) -> list[Row]:
    """Rows of all programs on the frames of ``xyz``."""
    device, steps, peaks = options.device, {}, {}
    on_gpu = torch.device(device).type == "cuda"
    chosen = programs(options.peers, options.compiled_peers)
    for program in chosen:
        if on_gpu:
            before = torch.cuda.memory_allocated(device)
            torch.cuda.reset_peak_memory_stats(device)
        steps[program] = prepared(chosen[program], case, xyz, device)
        if on_gpu:
            peaks[program] = torch.cuda.max_memory_allocated(device) - before
        else:
            with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
                there = pool.submit(cpu_peak, program, case, xyz, torch.get_num_threads())
                peaks[program] = there.result()
    load = os.getloadavg()[0]
    times = bench_peers.time_rounds(steps, device, options.rounds, options.seconds)
    print(f"{name}: {torch.get_num_threads()} threads, load {load:.2f} to {os.getloadavg()[0]:.2f}")
    atoms = steps["nepkit"].info["atoms"]
    ours = statistics.median(times["nepkit"])
    rows = []
    for program, values in times.items():
        median = statistics.median(values)
        rows.append(
            Row(
                name, len(read_xyz(xyz)), device, program, median, 1e3 * atoms / median,
                peaks[program], median / ours, min(values),
            )
        )  # fmt: skip
    return rows


def table(rows: list[Row]) -> str:
    """The rows for people."""
    head = f"{'case':12s}{'batch':>6s}  {'program':20s}{'median ms':>10s}{'min ms':>10s}"
    lines = [head + f"{'atoms/s':>12s}{'peak MiB':>10s}{'ratio':>8s}"]
    for row in rows:
        peak = "-" if row.peak_bytes is None else f"{row.peak_bytes / 2**20:.0f}"
        lines.append(
            f"{row.case:12s}{row.batch:6d}  {row.program:20s}{row.ms_per_step:10.2f}"
            f"{row.ms_min:10.2f}{row.atoms_per_s:12.0f}{peak:>10s}{row.ratio:8.2f}"
        )
    return "\n".join(lines)


def chosen_cases(options: argparse.Namespace) -> dict[str, tuple[Case, Path]]:
    """The cases asked for, each with its file."""
    names = options.case.split(",") if options.case else []
    if unknown := [name for name in names if name not in CASES]:
        sys.exit(f"unknown case {unknown[0]}; there are {', '.join(CASES)}")
    if not names and not (options.xyz and options.nep_in):
        sys.exit("say --case NAME, or --xyz FILE with --nep-in FILE")
    own = bench_peers.read_keywords(options.nep_in) if options.nep_in else None
    if not names:
        return {options.xyz.stem: (Case("", sys.maxsize, own), options.xyz)}
    found = {}
    for name in names:
        case = CASES[name]
        path = options.xyz or options.data / case.file
        if not path.exists():
            sys.exit(f"{path}: no such file; name the folder of the data with --data, or --xyz")
        found[name] = (Case(case.file, case.batch, own or case.nep_in), path)
    return found


def add_cases(parser: argparse.ArgumentParser):
    """Arguments that choose frames and a model."""
    parser.add_argument("--case", metavar="NAME[,NAME]", help=", ".join(CASES))
    parser.add_argument("--batch", type=int, metavar="FRAMES", help="default: the case's own")
    parser.add_argument("--data", type=Path, default=Path("."), metavar="DIR")
    parser.add_argument("--xyz", type=Path, metavar="FILE", help="frames in place of the case's")
    parser.add_argument(
        "--nep-in", type=Path, metavar="FILE", help="keywords in place of the case's"
    )


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_cases(parser)
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    parser.add_argument("--threads", type=int, default=0, metavar="N")
    parser.add_argument(
        "--peers", action="store_true", help="also torchnep and neppo, if installed"
    )
    parser.add_argument("--compiled-peers", action="store_true", help="torchnep also compiled")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2.0, help="for one round of one program")
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args(arguments)
    options.peers |= options.compiled_peers
    warnings.filterwarnings("ignore")  # of the peers
    if options.threads:
        torch.set_num_threads(options.threads)
    rows = []
    for name, (case, path) in chosen_cases(options).items():
        with tempfile.TemporaryDirectory() as folder:
            xyz = Path(folder, "train.xyz")
            bench_peers.first_frames(path, options.batch or case.batch, xyz)
            found = measure(name, case, xyz, options)
        print(table(found), flush=True)
        rows += found
        if options.json:  # after every case: a long run may be cut short
            options.json.write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
