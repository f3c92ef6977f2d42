"""Extended XYZ files, as GPUMD and ASE write them, read into frames.

Nothing is dropped silently: what cannot be read is a ``UserError`` with file, frame and line.
"""

from __future__ import annotations

import gzip
import io
import lzma
import os
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain, islice
from typing import NamedTuple, NoReturn

import numpy as np
from tqdm import tqdm

from nepkit.data.columns import first_fault, read_fixed_point, read_words
from nepkit.data.comment import Fault, Layout, shown
from nepkit.data.frame import Frame
from nepkit.data.labels import parse_comment
from nepkit.errors import UserError, at
from nepkit.units import ATOMIC_NUMBERS, ELEMENTS

BYTE_ORDER_MARK = b"\xef\xbb\xbf"
# Frames are read into arrays together until they have this many atom lines: numpy is fast for
# long arrays only.
_BATCH = 1000
# Atom lines fetched at a time, so that a mistaken number of atoms does not fetch the whole file.
BLOCK = 10_000


def read_xyz(path: str | os.PathLike, *, progress: bool = False) -> list[Frame]:
    """All frames of an extended XYZ file; with ``progress`` counted in a bar on a terminal.

    Units and shapes as in ``Frame``. Raises as ``iter_xyz``.
    """
    options = {"disable": None if progress else True, "leave": False, "delay": 1.0}
    return list(tqdm(iter_xyz(path), f"reading {path}", unit=" frames", **options))


def iter_xyz(path: str | os.PathLike) -> Iterator[Frame]:
    """The frames of an extended XYZ file (also .gz and .xz) one by one, in bounded memory.

    Labels that a frame lacks are None. Raises ``UserError`` for a file that cannot be opened,
    ends early or holds no frame, and for whatever in a frame is wrong or ambiguous.
    """
    with opened(path) as file:
        yield from Reader(os.fspath(path), file).frames()


@contextmanager
def opened(path: str | os.PathLike) -> Iterator[io.BufferedReader]:
    """The file, uncompressed; what makes it unreadable becomes a ``UserError``."""
    path = os.fspath(path)
    suffix = os.path.splitext(path)[1].lower()
    try:
        with (
            {".gz": gzip.open, ".xz": lzma.open}.get(suffix, open)(path, "rb") as file,
            io.BufferedReader(file, 1 << 20) as buffered,
        ):
            yield buffered
    except (OSError, EOFError, zlib.error, lzma.LZMAError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        packed = suffix in (".gz", ".xz") and not isinstance(error, FileNotFoundError)
        hint = "copy or compress it again" if packed else "check the path"
        raise UserError(f"{path}: cannot be read: {reason}; {hint}") from error


class _Head(NamedTuple):
    """A frame whose atom lines are not yet read into arrays."""

    index: int
    line: int  # of the number of atoms; the comment line and the atom lines follow
    layout: Layout
    labels: dict
    atom_lines: list[bytes]


class Reader:
    """One file being read, and how far."""

    def __init__(self, path: str, file: io.BufferedReader):
        self.path = path
        self.file = file
        self.line = 0  # lines read so far
        self.index = 0  # frame being read

    def frames(self) -> Iterator[Frame]:
        for batch in self.batches():
            yield from self.finish(batch)
        if self.index == 0:
            raise UserError(f"{at(self.path)}: the file holds no frame; check the path")

    def batches(self) -> Iterator[list[_Head]]:
        """Runs of frames with the same columns, to be read into arrays together."""
        batch, num_lines = [], 0
        try:
            while (head := self.read_head()) is not None:
                if batch and (head.layout != batch[0].layout or num_lines >= _BATCH):
                    yield batch
                    batch, num_lines = [], 0
                batch.append(head)
                num_lines += len(head.atom_lines)
        except Exception:
            # The frames before a fault come first, and so does a fault in them.
            yield batch
            raise
        yield batch

    def read_head(self) -> _Head | None:
        """The next frame with its comment line understood; None at the end of the file."""
        num_atoms = self.read_num_atoms()
        if num_atoms is None:
            return None
        line = self.line
        comment = self.file.readline()
        self.line += bool(comment)
        if not comment.endswith(b"\n"):
            self.fail(f"the file ends here; expected a comment line and {num_atoms} atom lines")
        try:
            layout, labels = parse_comment(comment, num_atoms)
        except Fault as fault:
            self.fail(str(fault))
        head = _Head(self.index, line, layout, labels, self.read_atom_lines(num_atoms, layout))
        self.line += num_atoms
        self.index += 1
        return head

    def read_num_atoms(self) -> int | None:
        """The number at the head of a frame; None at the end of the file."""
        for line in self.file:
            self.line += 1
            if self.line == 1:
                line = line.removeprefix(BYTE_ORDER_MARK)
            word = line.strip()
            if not word:
                continue
            # bytes.isdigit() is true for 0 to 9 only; no file has 10^12 atoms.
            if not (word.isdigit() and len(word) <= 12 and int(word) > 0):
                before = "is the number of atoms of the frame before right?"
                self.fail(
                    f"expected the number of atoms of a frame, found {shown(word)}; "
                    + (before if self.index else "is this extended XYZ?")
                )
            return int(word)
        return None

    def read_atom_lines(self, num_atoms: int, layout: Layout) -> list[bytes]:
        lines = list(islice(self.file, min(num_atoms, BLOCK)))
        block = lines
        # A frame larger than a block is checked as it comes, lest a mistaken number of atoms
        # swallow the frames that follow.
        while block and len(lines) < num_atoms:
            if read_fixed_point(block, layout) is None and first_fault(block, layout):
                break
            block = list(islice(self.file, min(num_atoms - len(lines), BLOCK)))
            lines += block
        if len(lines) < num_atoms:
            if fault := first_fault(lines, layout):
                self.fail_in_atoms(self.index, self.line + 1, num_atoms, fault)
            self.line += len(lines)
            self.fail(f"the file ends after {len(lines)} of {num_atoms} atom lines of the frame")
        return lines

    def finish(self, batch: list[_Head]) -> Iterator[Frame]:
        """The frames of a batch, which have the same layout."""
        lines = list(chain.from_iterable(head.atom_lines for head in batch))
        together = read_fixed_point(lines, batch[0].layout) if lines else None
        end = 0
        for head in batch:
            start, end = end, end + len(head.atom_lines)
            if together:
                numbers, *vectors = (array[start:end] for array in together)
            else:
                try:
                    numbers, *vectors = read_words(head.atom_lines, head.layout)
                except Fault as fault:
                    self.fail_in_atoms(head.index, head.line + 2, end - start, fault)
            yield Frame(
                numbers=numbers,
                positions=vectors[0],
                forces=vectors[1] if len(vectors) == 2 else None,
                path=self.path,
                index=head.index,
                line=head.line,
                **head.labels,
            )

    def fail(self, message: str) -> NoReturn:
        raise UserError(f"{at(self.path, self.line, self.index)}: {message}") from None

    def fail_in_atoms(self, index: int, line: int, num_atoms: int, fault: Fault) -> NoReturn:
        """Raise for a fault in the atom lines of frame ``index``, which start at ``line``."""
        place = at(self.path, line + fault.offset, index)
        raise UserError(f"{place}, atom {fault.offset + 1} of {num_atoms}: {fault}") from None


def check_elements(frames: Iterable[Frame], elements: Sequence[str]) -> tuple[str, ...]:
    """The members of ``elements`` that occur in no frame.

    Raises ``UserError`` where a frame has an element that is not among ``elements``.
    """
    known = np.zeros(len(ELEMENTS) + 1, bool)
    known[[ATOMIC_NUMBERS[symbol] for symbol in elements]] = True
    seen = np.zeros(len(ELEMENTS) + 1, bool)
    first = None
    for frame in frames:
        seen[frame.numbers] = True
        if first is None and not known[frame.numbers].all():
            first = frame
    if first is not None:
        atom = int(np.argmin(known[first.numbers]))
        symbol = ELEMENTS[first.numbers[atom] - 1]
        # The atoms follow the number of atoms and the comment line.
        place = at(first.path or "structures in memory", first.line + 2 + atom, first.index)
        missing = [ELEMENTS[number - 1] for number in np.flatnonzero(seen & ~known)]
        types = [*elements, *missing]
        raise UserError(
            f"{place}: element {symbol} is not in the type line of nep.in;\n"
            f"extend it: type {len(types)} {' '.join(types)}"
        )
    return tuple(symbol for symbol in elements if not seen[ATOMIC_NUMBERS[symbol]])
