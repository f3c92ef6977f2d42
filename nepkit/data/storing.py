"""Making the store of an extended XYZ file, and finding the one that is there."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

from tqdm import tqdm

from ..config import ModelSettings
from ..errors import UserError
from ..files import Unwritable, digest, write_atomically
from .block import Block, find_block
from .known import Labels
from .prepared import ATOMS_AT_ONCE, type_lookup
from .ragged import chunks
from .store import Store, Unusable, key_of, store_name
from .store_file import StoreWriter
from .texts import Text, iter_texts
from .workers import MOST_WORKERS, mapped, processors
from .xyz import check_elements, iter_xyz

# Bytes of text that are prepared at a time, and for which one more worker is started: its start
# takes as long as its share of the work.
PIECE, WORTH_A_WORKER = 500_000, 4_000_000
# Seconds after which what was being written beside a store is taken for a killed process's.
ABANDONED = 3600.0


def open_store(
    source: str | os.PathLike,
    settings: ModelSettings,
    *,
    spare: str | os.PathLike | None = None,
    content: str | None = None,
    progress: bool = False,
    tell: Callable[[str], None] = print,
) -> Store:
    """The store of the frames of ``source`` for the elements and cutoffs of ``settings``.

    It lies beside ``source``, or in the folder ``spare`` where nothing can be written there. One
    that is there and was made of the same content is opened; any other is made anew, with one line
    to ``tell``. Several processes may call this at a time: each finds a whole file.

    ``content``: SHA-256 of the source, if it is known. ``progress``: show a bar on a terminal.

    Raises:
        UserError: as read_xyz, check_elements and prepare, or if the store cannot be written.
    """
    source = Path(source)
    before = _stamp(source)
    name = store_name(source, settings)
    key = key_of(content or digest(source), settings)
    folders = [source.parent] if spare is None else [source.parent, Path(spare)]
    for folder in folders:
        if (folder / name).exists():
            try:
                return Store(folder / name, key, source)
            except Unusable as reason:
                tell(f"{folder / name}: {reason}; it is made anew")
    for number, folder in enumerate(folders, start=1):
        try:
            _build(folder / name, key, source, settings, progress)
            break
        except Unwritable:
            if number == len(folders):
                raise
    if _stamp(source) != before:
        (folder / name).unlink()
        raise UserError(f"{source}: was changed while it was read; give the command again")
    return Store(folder / name, key, source)


def _stamp(source: Path) -> tuple | None:
    """What changes with every change of a file; None where there is none."""
    try:
        found = source.stat()
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns


def _build(path: Path, key: dict, source: Path, settings: ModelSettings, progress: bool):
    """Write the store of ``source`` to ``path``."""
    for leftover in path.parent.glob(f"{path.name}.*.tmp"):
        abandoned = time.time() - leftover.stat().st_mtime > ABANDONED
        if abandoned and re.fullmatch(r"[0-9a-f]{8}", leftover.name.split(".")[-2]):
            leftover.unlink(missing_ok=True)
    # Known before the work: a folder that cannot be written, and elements that nep.in lacks.
    pieces = prepared_pieces(source, settings, progress)

    def write(file: IO[bytes]):
        with StoreWriter(file.name, key) as writer:
            for labels, block in pieces:
                writer.add(labels, block)

    write_atomically(path, write)


def prepared_pieces(
    source: Path, settings: ModelSettings, progress: bool
) -> Iterator[tuple[Labels, Block]]:
    """The frames of a file piece by piece, prepared by worker processes where it is large."""
    size = source.stat().st_size if source.exists() else 0
    number = min(processors(), MOST_WORKERS, size // WORTH_A_WORKER)
    tasks = ((os.fspath(source), settings, text) for text in iter_texts(source, PIECE))
    results = mapped(prepare_text, tasks, number) if number > 1 else map(prepare_text, tasks)
    bar = tqdm(
        desc=f"preparing {source.name}", unit=" frames", leave=False, delay=1.0,
        disable=None if progress else True,
    )  # fmt: skip
    with bar:
        for result in results:
            if result is None:
                check_elements(iter_xyz(source), settings.elements)
            labels, block = result
            yield labels, block
            bar.update(len(labels))


def prepare_text(task: tuple[str, ModelSettings, Text]) -> tuple[Labels, Block] | None:
    """Labels and pairs of some frames; None where they have an element that the model lacks."""
    path, settings, text = task
    frames = text.frames(path)
    lookup = type_lookup(settings.elements)
    types = [lookup[frame.numbers] for frame in frames]
    if any((of < 0).any() for of in types):
        return None
    blocks = [
        find_block(frames[start:stop], types[start:stop], settings)
        for start, stop in chunks([len(frame) for frame in frames], ATOMS_AT_ONCE)
    ]
    return Labels.of(frames, types), Block.joined(blocks)
