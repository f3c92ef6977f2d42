"""The data sets of a run as they are read: frames in memory, or the store of a large file."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from ..config import ModelSettings, NepConfig
from ..data.frame import Frame
from ..data.known import Labels
from ..data.prepared import type_lookup
from ..data.split import held_out
from ..data.store import Store, store_name
from ..data.store_part import StorePart
from ..data.storing import open_store
from ..data.xyz import check_elements, read_xyz
from ..errors import UserError
from ..files import Unwritable
from .world import ALONE, World

# Bytes of text from which a file gets a store: reading and preparing take some 0.2 s a MB.
STORED = 30_000_000
# Where a run writes down which frames of the training file are held out.
VALID_FRAMES = "valid_frames.txt"
# How many times larger text is than its compressed form.
COMPRESSION = {".gz": 3, ".xz": 4}


@dataclass(frozen=True, eq=False)
class Source:
    """A data set before its neighbours are known: its labels, and its frames or its store."""

    labels: Labels
    frames: list[Frame] = field(default_factory=list)
    store: Store | StorePart | None = None

    def take(self, chosen: np.ndarray) -> Source:
        """The frames whose numbers are ``chosen`` (n,)."""
        frames = [self.frames[k] for k in chosen.tolist()] if self.frames else []
        store = None if self.store is None else StorePart(self.store, chosen)
        return Source(self.labels.take(chosen), frames, store)


def read_data(
    files: dict[str, Path],
    config: NepConfig,
    folder: Path | None,
    log: Callable[[str], None],
    world: World = ALONE,
) -> dict[str, Source]:
    """Each data set, all of elements that the model has, and ``valid``: what valid_ratio holds out.

    Large files are read once into a store beside them, or in ``folder`` (see open_store). Without
    ``folder`` none is written. The first process of ``world`` makes the store, all read it.
    """
    settings = config.model
    sources = {name: _read(path, settings, folder, log, world) for name, path in files.items()}
    for name, source in sources.items():
        labels, file = source.labels, files[name].name
        counts = {
            "energy": np.isfinite(labels.energy), "virial": np.isfinite(labels.virial[:, 0]),
            "forces": np.isfinite(labels.forces[labels.first_atom[:-1], 0]),
        }  # fmt: skip
        told = ", ".join(f"{counts[n].sum()} with {n}" for n in ("energy", "forces", "virial"))
        log(f"{file}: {len(labels)} frames, {len(labels.types)} atoms; {told}")
        seen = np.bincount(labels.types, minlength=len(settings.elements)) > 0
        if name == "train" and not seen.all():
            unseen = [element for element, there in zip(settings.elements, seen) if not there]
            log(f"warning: {file} has no atom of {' '.join(unseen)}")
        if open_frames := int((~labels.periodic).sum()):
            log(
                f"warning: {file}: {open_frames} of {len(labels)} frames are not periodic in all "
                "directions; GPUMD takes every frame as periodic"
            )
        if name == "train" and not any(known.any() for known in counts.values()):
            raise UserError(
                f"{files['train']}: no frame has an energy, forces or a virial to train on"
            )
    return sources if not config.valid_ratio else _held_out(sources, config, files["train"], log)


def _held_out(
    sources: dict[str, Source], config: NepConfig, path: Path, log: Callable[[str], None]
) -> dict[str, Source]:
    """The data sets with some frames of the training set as the validation set."""
    source, name = sources["train"], path.name
    if len(source.labels) < 2:
        raise UserError(f"{name}: valid_ratio needs 2 frames or more, one of them to train on")
    counts = source.labels.counts(len(config.model.elements))
    chosen = held_out(counts, config.valid_ratio, config.seed)
    if not chosen.any():
        raise UserError(
            f"{name}: no frame can be held out (valid_ratio): each has an element that no other has"
        )
    log(f"{chosen.sum()} frames of {name} are held out for validation ({VALID_FRAMES})")
    parts = {
        "train": source.take(np.flatnonzero(~chosen)),
        "valid": source.take(np.flatnonzero(chosen)),
    }
    return parts | {name: other for name, other in sources.items() if name != "train"}


def sizes_of(sources: dict[str, Source]) -> tuple[int, int, int]:
    """Frames and atoms of the training set, and frames of all sets."""
    train = sources["train"].labels
    return len(train), len(train.types), sum(len(source.labels) for source in sources.values())


def _read(path: Path, settings: ModelSettings, folder: Path | None, log, world: World) -> Source:
    if folder is not None:
        store = _store(path, settings, folder, log, world)
        if store is not None:
            return Source(store.labels, store=store)
    frames = read_xyz(path, progress=world.first)
    check_elements(frames, settings.elements)
    lookup = type_lookup(settings.elements)
    return Source(Labels.of(frames, [lookup[frame.numbers] for frame in frames]), frames)


def _store(path: Path, settings: ModelSettings, folder: Path, log, world: World) -> Store | None:
    """The store of a large file, which the first process makes."""
    opened = []

    def make() -> bool:
        if _has_store(path, settings, folder):
            try:
                opened.append(open_store(path, settings, spare=folder, progress=True, tell=log))
            except Unwritable as error:
                log(f"warning: {error}; the neighbours are found again in every run")
        return bool(opened)

    if not world.from_first(make):
        return None
    return opened[0] if opened else open_store(path, settings, spare=folder, tell=log)


def _has_store(path: Path, settings: ModelSettings, folder: Path) -> bool:
    """Whether a file is large enough for a store, or has one that somebody made."""
    if any((place / store_name(path, settings)).exists() for place in (path.parent, folder)):
        return True
    size = path.stat().st_size if path.exists() else 0
    return size * COMPRESSION.get(path.suffix.lower(), 1) >= STORED
