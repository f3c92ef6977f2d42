"""``nepkit prepare``: makes the stores of a run directory ahead, and cuts a set out of a large file."""

from __future__ import annotations

import math
import os
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from tqdm import tqdm

from .config import read_nep_in
from .data.frame import Frame
from .data.storing import open_store
from .data.xyz import iter_xyz
from .doctor.clean import write_without
from .errors import UserError
from .files import write_atomically
from .text import names
from .train.start import data_files
from .units import ATOMIC_NUMBERS, ELEMENTS


def prepare_run(
    run_dir: str | os.PathLike, *, out: str | os.PathLike | None = None, **nep_in
) -> list[Path]:
    """Find all neighbours of the data of a run directory and store them for its trainings.

    A store lies beside its data, or in ``out`` (default: ``run_dir``), the folder for the results,
    where nothing can be written there. Other keywords are those of nep.in, as in train_nep.

    Returns the files. Raises ``UserError`` as train_nep does.
    """
    run_dir = Path(run_dir)
    config = read_nep_in(run_dir / "nep.in", nep_in)
    spare = Path(out) if out is not None else run_dir
    paths = []
    for path in data_files(run_dir).values():
        store = open_store(path, config.model, spare=spare, progress=True)
        paths.append(store.path)
        size = store.path.stat().st_size / 1e6
        print(f"{store.path}: {len(store):,} frames, {size:,.0f} MB")
        store.close()
    return paths


class Subset(NamedTuple):
    """What ``write_subset`` has written."""

    path: Path
    frames: int  # written
    among: int  # made of the elements
    total: int  # in the source
    compositions: int  # among those written
    elements: tuple[str, ...]

    def text(self) -> str:
        """The same in a line."""
        line = (
            f"{self.path}: {self.frames:,} of {self.total:,} frames, {self.compositions:,} "
            f"compositions of {names(self.elements)}"
        )
        return line + (f"; {self.among:,} to choose from" if self.among > self.frames else "")


def write_subset(
    source: str | os.PathLike,
    target: str | os.PathLike,
    *,
    elements: Sequence[str] | None = None,
    max_frames: int | None = None,
) -> Subset:
    """Copy frames of an extended XYZ file byte for byte.

    ``elements``: frames made of these alone. ``max_frames``: at most so many, of each composition
    (ratio of elements) the same number as far as there are, spread evenly over the file. Beside
    ``target`` a nep.in is written that names the elements, unless there is one.

    Raises ``UserError`` for a source that cannot be read, holds no such frame, or a target that
    somebody else made.
    """
    source, target = Path(source), Path(target)
    if max_frames is not None and max_frames < 1:
        raise UserError(f"--max-frames {max_frames}: give a number above 0")
    allowed = _allowed(elements)
    spans: list[tuple[int, int]] = []
    groups: dict[bytes, list[int]] = defaultdict(list)
    seen = np.zeros(len(ELEMENTS) + 1, bool)
    bar = tqdm(
        iter_xyz(source), f"reading {source}", unit=" frames", disable=None, leave=False, delay=1.0
    )
    for frame in bar:
        seen[frame.numbers] = True
        if allowed[frame.numbers].all():
            groups[_composition(frame)].append(frame.index)
        spans.append((frame.line, len(frame) + 2))
    among = sum(map(len, groups.values()))
    if not among:
        there = " ".join(ELEMENTS[number - 1] for number in np.flatnonzero(seen))
        raise UserError(
            f"{source}: no frame is made of {' '.join(elements)} alone; its elements are {there}"
        )
    chosen = _chosen(groups, max_frames or among)
    kept = {frame for members in chosen.values() for frame in members}
    write_without(
        os.fspath(source), target, (s for k, s in enumerate(spans) if k not in kept), "--out"
    )
    present = {number for composition in chosen for number in _numbers(composition)}
    order = elements or [ELEMENTS[number - 1] for number in sorted(present)]
    used = tuple(dict.fromkeys(name for name in order if ATOMIC_NUMBERS[name] in present))
    nep_in = target.parent / "nep.in"
    if not nep_in.exists():
        write_atomically(nep_in, f"type {len(used)} {' '.join(used)}\n")
    return Subset(target, len(kept), among, len(spans), len(chosen), used)


def _allowed(elements: Sequence[str] | None) -> np.ndarray:
    """Whether each atomic number may occur (95,)."""
    allowed = np.full(len(ELEMENTS) + 1, elements is None)
    for symbol in elements or ():
        if symbol not in ATOMIC_NUMBERS:
            raise UserError(f"--elements: {symbol} is not an element that NEP knows")
        allowed[ATOMIC_NUMBERS[symbol]] = True
    return allowed


def _composition(frame: Frame) -> bytes:
    """Atomic numbers and their ratio, as numbers without a common factor."""
    numbers, counts = np.unique(frame.numbers, return_counts=True)
    return np.array([numbers, counts // math.gcd(*counts.tolist())], np.int32).tobytes()


def _numbers(composition: bytes) -> list[int]:
    return np.frombuffer(composition, np.int32).reshape(2, -1)[0].tolist()


def _chosen(groups: dict[bytes, list[int]], most: int) -> dict[bytes, list[int]]:
    """At most ``most`` frames: the same number of each group as far as it has them."""
    order = sorted(groups, key=lambda composition: (_numbers(composition), composition))
    if len(order) > most:
        order = [order[k] for k in _spread(len(order), most)]
    left, result = most, {}
    # From the smallest group on: what one lacks is shared by those that follow.
    for rank, composition in enumerate(sorted(order, key=lambda key: len(groups[key]))):
        members = groups[composition]
        count = min(len(members), left // (len(order) - rank))
        result[composition] = [members[k] for k in _spread(len(members), count)]
        left -= count
    return result


def _spread(length: int, count: int) -> list[int]:
    """``count`` places of ``length``, evenly spread."""
    return [(2 * k + 1) * length // (2 * count) for k in range(count)]
