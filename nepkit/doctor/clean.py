"""A copy of a data file without some of its frames, the others as they are, byte for byte."""

from __future__ import annotations

import gzip
import lzma
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO

from ..errors import UserError
from ..files import write_atomically
from ..train.folder import OutputFolder

# Not that of a run: --restart moves a run's files away, but data stay where they are.
MANIFEST = "nepkit_copies.json"
_OPEN = {".gz": gzip.open, ".xz": lzma.open}


def write_without(
    source: str, target: Path, spans: Iterable[tuple[int, int]], option: str = "--write"
):
    """Write ``source`` to ``target`` without the lines (first, how many) of ``spans``, ascending.

    Both may be compressed, by their names. Raises ``UserError`` rather than overwrite a file that
    an earlier call did not write. ``option``: of the command, which names the target.
    """
    if target.exists() and os.path.samefile(source, target):
        raise UserError(f"{target}: is the file that is copied; give another name with {option}")
    with OutputFolder(target.parent, MANIFEST, option) as folder:
        folder.claim([target.name])
        write_atomically(target, lambda file: _copy(source, target, spans, file))


def _copy(source: str, target: Path, spans: Iterable[tuple[int, int]], file: IO[bytes]):
    wrap = _OPEN.get(target.suffix.lower())
    out = wrap(file, "wb") if wrap else file
    with _OPEN.get(Path(source).suffix.lower(), open)(source, "rb") as lines:
        for line in _kept(lines, iter(spans)):
            out.write(line)
    if wrap:
        out.close()  # writes what ends the compressed file; ``file`` itself stays open


def _kept(lines: Iterable[bytes], spans: Iterator[tuple[int, int]]) -> Iterator[bytes]:
    first, count = next(spans, (0, 0))
    for number, line in enumerate(lines, start=1):
        if first and number >= first + count:
            first, count = next(spans, (0, 0))
        if not (first and first <= number < first + count):
            yield line
