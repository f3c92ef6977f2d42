"""Making the store of an extended XYZ file, and finding the one that is there."""

from __future__ import annotations

import glob
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

from tqdm import tqdm

from ..config import ModelSettings
from ..errors import UserError
from ..files import Unwritable, digest, try_lock, write_atomically
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
# Seconds between looks whether another process is done.
LOOK = 0.2


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
    paths = [folder / name for folder in folders]
    for path in paths:
        if found := _found(path, key, source, tell):
            return found
    for path in paths:
        if _waited(path, tell) and (found := _found(path, key, source, tell)):
            return found
        try:
            _build(path, key, source, settings, progress)
            break
        except Unwritable:
            if path == paths[-1]:
                raise
    if _stamp(source) != before:
        path.unlink()
        raise UserError(f"{source}: was changed while it was read; give the command again")
    return Store(path, key, source)


def _found(path: Path, key: dict, source: Path, tell: Callable[[str], None]) -> Store | None:
    """The store at ``path`` if there is one of ``key``."""
    if not path.exists():
        return None
    try:
        return Store(path, key, source)
    except Unusable as reason:
        tell(f"{path}: {reason}; it is made anew")
        return None


def _waited(path: Path, tell: Callable[[str], None]) -> bool:
    """Remove what killed processes left of the store, and wait for one that is at work."""
    waited = False
    for part in path.parent.glob(f"{glob.escape(path.name)}.*.tmp"):
        looks = 0  # in a row that found it without its process
        while looks < 2 and part.exists():
            try:
                with open(part, "rb") as file:
                    looks = looks + 1 if try_lock(file) else 0
            except OSError:
                break
            if looks == 0 and not waited:
                tell(f"{path}: another process is making it; waiting")
                waited = True
            time.sleep(LOOK)
        # After the first look it may just have been given its name.
        if looks == 2:
            part.unlink(missing_ok=True)
    return waited


def _stamp(source: Path) -> tuple | None:
    """What changes with every change of a file; None where there is none."""
    try:
        found = source.stat()
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns


def _build(path: Path, key: dict, source: Path, settings: ModelSettings, progress: bool):
    """Write the store of ``source`` to ``path``."""

    def write(file: IO[bytes]):
        try_lock(file)
        with StoreWriter(file.name, key) as writer:
            for labels, block in prepared_pieces(source, settings, progress):
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
