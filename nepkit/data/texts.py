"""Extended XYZ files cut into pieces of whole frames, which are then read side by side."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple

from .frame import Frame
from .xyz import BLOCK, BYTE_ORDER_MARK, Reader, opened


class Text(NamedTuple):
    """Whole frames of a file as they are written there."""

    content: bytes
    index: int  # of the first of them, from 0
    line: int  # lines before it

    def frames(self, path: str) -> list[Frame]:
        """The frames, as ``iter_xyz`` reads them from the file at ``path``."""
        reader = Reader(path, io.BytesIO(self.content))
        reader.index, reader.line = self.index, self.line
        return list(reader.frames())


def iter_texts(path: str | os.PathLike, size: int) -> Iterator[Text]:
    """The frames of a file in pieces of about ``size`` bytes, each to be read by itself.

    Bounded memory, whatever the file holds. What is wrong in a frame is met by whoever reads the
    piece: of several mistakes, the first piece has the one that ``iter_xyz`` raises.
    """
    with opened(path) as file:
        yield from _Cutter(os.fspath(path), file).texts(size)


class _Cutter(Reader):
    """A reader that understands the numbers of atoms alone."""

    def texts(self, size: int) -> Iterator[Text]:
        """The file in pieces of whole frames; a fault ends the last piece."""
        lines: list[bytes] = []
        index, before, held = 0, 0, 0
        whole = True
        while whole:
            start = len(lines)
            whole = self.read_lines(lines)
            held += sum(map(len, lines[start:]))
            self.index += whole
            if lines and (held >= size or not whole):
                yield Text(b"".join(lines), index, before)
                lines, index, before, held = [], self.index, self.line, 0

    def read_lines(self, lines: list[bytes]) -> bool:
        """Add the lines of the next frame to ``lines``; whether it seems to be a whole one."""
        for line in self.file:
            self.line += 1
            lines.append(line)
            if word := line.removeprefix(BYTE_ORDER_MARK if self.line == 1 else b"").strip():
                break
        else:
            return False
        if not (word.isdigit() and len(word) <= 12):
            return False
        wanted, start = 1 + int(word), len(lines)
        block, columns = [b""], set()
        # A mistaken number of atoms ends where lines have another number of columns.
        while block and len(columns) < 2 and len(lines) - start < wanted:
            block = list(islice(self.file, min(wanted - len(lines) + start, BLOCK)))
            lines += block
            if wanted > BLOCK:
                columns |= {len(line.split()) for line in lines[start + 1 :][-len(block) :]}
        self.line += len(lines) - start
        return len(lines) - start == wanted
