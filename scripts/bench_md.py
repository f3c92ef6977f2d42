"""Time steps of molecular dynamics under ASE, of nepkit and of other programs that run a nep.txt.

    python scripts/bench_md.py nep.txt crystal.xyz --repeat 2 4 8 --peers
    python scripts/bench_md.py nep.txt crystal.xyz --repeat 23 --device cuda --alone

The structure is repeated 2, 4 and 8 times along each cell vector, its atoms are moved a little and
given the momenta of 300 K, and the programs take turns with steps of 1 fs at constant energy, ASE's
own work included. ``--alone`` times nepkit's evaluation without ASE too, on a GPU with the positions
there. Peers, where they are installed: calorine's CPUNEP, nep-adapters' and torchnep's calculators.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
from ase import Atoms, units
from ase.io import read
from ase.md.verlet import VelocityVerlet

from nepkit import NEPCalculator
from nepkit.calculator.frames import frame_of

KELVIN = 300.0


@dataclass(frozen=True)
class Row:
    """One line of the result."""

    atoms: int
    program: str
    steps_per_s: float  # median over rounds
    most_steps_per_s: float
    atom_steps_per_s: float  # of the median
    ratio: float  # nepkit's steps per second over this program's


def peers() -> dict[str, Callable[[str], object]]:
    """Makers of the calculators of other programs, of those that are installed."""
    found = {}
    try:
        from calorine.calculators import CPUNEP

        found["calorine CPUNEP"] = CPUNEP
    except ImportError:
        pass
    try:
        from nep_adapters.ase import NepAseCalculator

        found["nep-adapters"] = lambda path: NepAseCalculator(path, backend="cpu")
    except ImportError:
        pass
    try:
        from torchnep.ase_calculator import NEP

        found["torchnep"] = NEP
    except ImportError:
        pass
    return found


def warm(atoms: Atoms) -> Atoms:
    """The atoms a little off their places, in motion."""
    generator = np.random.default_rng(0)
    atoms = atoms.copy()
    atoms.positions += 0.03 * generator.normal(size=(len(atoms), 3))
    width = np.sqrt(units.kB * KELVIN * atoms.get_masses())[:, None]
    momenta = width * generator.normal(size=(len(atoms), 3))
    atoms.set_momenta(momenta - momenta.mean(0))
    return atoms


def dynamics(atoms: Atoms, calculator) -> VelocityVerlet:
    """Dynamics of a copy of ``atoms``, warmed up."""
    own = warm(atoms)
    own.calc = calculator
    made = VelocityVerlet(own, units.fs)
    made.run(3)
    return made


def rate(run: Callable[[int], None], seconds: float) -> float:
    """Steps a second of ``run(steps)`` over some ``seconds``."""
    steps, start = 0, time.perf_counter()
    while (taken := time.perf_counter() - start) < seconds:
        run(1)
        steps += 1
    return steps / taken


def alone(calculator: NEPCalculator, atoms: Atoms) -> Callable[[int], None]:
    """nepkit's evaluation of fixed positions, without ASE and, on a GPU, without copies."""
    field, frame = calculator.new_field(1.0), frame_of(warm(atoms), calculator.elements)
    field([frame])
    if calculator.device.type != "cuda":
        return lambda _: field([frame])

    def run(_):
        field.replayed()
        torch.cuda.synchronize()

    return run


def measure(atoms: Atoms, options: argparse.Namespace) -> list[Row]:
    """Rows of all programs on ``atoms``."""
    chosen = {"device": options.device, "precision": options.precision, "skin": options.skin}
    own = NEPCalculator(options.model, **chosen)
    runs = {"nepkit": dynamics(atoms, own).run}
    if options.alone:
        runs["nepkit, evaluation alone"] = alone(own, atoms)
    for name, maker in peers().items() if options.peers else ():
        runs[name] = dynamics(atoms, maker(str(options.model))).run
    rates = {name: [] for name in runs}
    for _ in range(options.rounds):
        for name, run in runs.items():
            rates[name].append(rate(run, options.seconds))
    ours = statistics.median(rates["nepkit"])
    rows = []
    for name, values in rates.items():
        median = statistics.median(values)
        rows.append(
            Row(len(atoms), name, median, max(values), median * len(atoms), ours / median)
        )  # fmt: skip
    return rows


def table(rows: list[Row]) -> str:
    """The rows for people."""
    head = f"{'atoms':>9s}  {'program':26s}{'steps/s':>10s}{'most':>10s}"
    lines = [head + f"{'atom-steps/s':>14s}{'ratio':>8s}"]
    for row in rows:
        lines.append(
            f"{row.atoms:9d}  {row.program:26s}{row.steps_per_s:10.2f}{row.most_steps_per_s:10.2f}"
            f"{row.atom_steps_per_s:14.3g}{row.ratio:8.1f}"
        )
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", type=Path, metavar="NEP_TXT")
    parser.add_argument("structure", type=Path, help="any file that ASE reads")
    parser.add_argument("--repeat", type=int, nargs="+", default=[1], metavar="N")
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    parser.add_argument("--precision", default="float32", help="float32 or float64")
    parser.add_argument("--skin", type=float, default=1.0, metavar="Å")
    parser.add_argument("--threads", type=int, default=0, metavar="N")
    parser.add_argument("--peers", action="store_true", help="other programs too, if installed")
    parser.add_argument("--alone", action="store_true", help="the evaluation without ASE too")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=3.0, help="for one round of one program")
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args(arguments)
    warnings.filterwarnings("ignore")  # of the peers
    if options.threads:
        torch.set_num_threads(options.threads)
    crystal, rows = read(options.structure), []
    for repeat in options.repeat:
        found = measure(crystal.repeat(repeat), options)
        print(f"{torch.get_num_threads()} threads, load {os.getloadavg()[0]:.2f}")
        print(table(found), flush=True)
        rows += found
        if options.json:  # after every size: a long run may be cut short
            options.json.write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
