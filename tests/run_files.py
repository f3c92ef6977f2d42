"""Tiny run directories for the tests of training, prediction and the command."""

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

NEP_IN = {
    "type": "2 Si Ge", "cutoff": "4 3", "n_max": "2 1", "basis_size": "4 3", "l_max": "4 1",
    "neuron": "4", "generation": "6", "batch": "2", "output_interval": "3",
}  # fmt: skip


@dataclass(frozen=True)
class Labelled:
    """A frame to be written; None leaves a label out."""

    symbols: tuple[str, ...]
    positions: np.ndarray  # (N, 3)
    cell: np.ndarray | None  # (3, 3)
    energy: float | None
    forces: np.ndarray | None  # (N, 3)
    virial: np.ndarray | None  # (3, 3)
    extra: str = ""

    def text(self) -> str:
        comment = []
        if self.cell is not None:
            comment.append(f'Lattice="{_numbers(self.cell)}"')
        if self.energy is not None:
            comment.append(f"energy={self.energy:.12g}")
        if self.virial is not None:
            comment.append(f'virial="{_numbers(self.virial)}"')
        columns = [self.positions]
        properties = "Properties=species:S:1:pos:R:3"
        if self.forces is not None:
            columns.append(self.forces)
            properties += ":forces:R:3"
        rows = [
            f"{symbol} {_numbers(row)}"
            for symbol, row in zip(self.symbols, np.hstack(columns), strict=True)
        ]
        comment += [self.extra] * bool(self.extra) + [properties]
        return "\n".join([str(len(rows)), " ".join(comment), *rows]) + "\n"


def _numbers(values) -> str:
    return " ".join(f"{value:.12g}" for value in np.ravel(values))


def random_frame(seed: int, n_atoms: int = 3, symbols=("Si", "Ge"), **changes) -> Labelled:
    """Atoms on a jittered line in a box of 3.6 Å, with labels of the usual size."""
    generator = np.random.default_rng(seed)
    chosen = tuple(symbols[k % len(symbols)] for k in range(n_atoms))
    cell = 3.6 * np.eye(3) + 0.1 * generator.normal(size=(3, 3))
    positions = np.linspace(0, 1, n_atoms, endpoint=False)[:, None] @ cell.sum(0)[None]
    positions = positions + 0.1 * generator.normal(size=(n_atoms, 3))
    forces = generator.normal(size=(n_atoms, 3))
    virial = generator.normal(size=(3, 3))
    energies = {"Si": -5.0, "Ge": -4.0}
    energy = sum(energies.get(symbol, -3.0) for symbol in chosen) + 0.1 * generator.normal()
    frame = Labelled(chosen, positions, cell, energy, forces - forces.mean(0), virial + virial.T)
    return replace(frame, **changes)


def random_frames(count: int, first_seed: int = 0, **changes) -> list[Labelled]:
    return [random_frame(first_seed + k, n_atoms=2 + k % 3, **changes) for k in range(count)]


def write_xyz(path: Path, frames: list[Labelled]):
    path.write_text("".join(frame.text() for frame in frames))


def write_nep_in(folder: Path, tail: str = "", **changes):
    """``changes`` replace lines of NEP_IN, None removes one; ``tail`` follows."""
    lines = {**NEP_IN, **changes}
    text = "".join(f"{key} {value}\n" for key, value in lines.items() if value is not None)
    (folder / "nep.in").write_text(text + tail)


def make_run(folder: Path, frames=None, test=None, tail: str = "", **changes) -> Path:
    """A run directory with nep.in, train.xyz and perhaps test.xyz."""
    folder.mkdir(exist_ok=True)
    write_nep_in(folder, tail, **changes)
    write_xyz(folder / "train.xyz", random_frames(5) if frames is None else frames)
    if test is not None:
        write_xyz(folder / "test.xyz", test)
    return folder


def contents(folder: Path, *without: str) -> dict[str, bytes]:
    """What each file of a folder holds."""
    names = sorted(path.name for path in folder.iterdir() if path.is_file())
    return {name: (folder / name).read_bytes() for name in names if name not in without}
