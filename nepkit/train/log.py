"""What a run tells: to the terminal, to nepkit.log, and as numbers to loss.out and history.csv."""

from __future__ import annotations

import errno
import os
import sys
from pathlib import Path

from tqdm import tqdm

from ..errors import UserError


class RunLog:
    """Lines for people, on the terminal and, once ``keep_in`` has named it, in a file.

    ``silent``: another process says the same.
    """

    def __init__(self, silent: bool = False):
        self._path: Path | None = None
        self._silent = silent
        self._kept: list[str] = []

    def keep_in(self, path: Path):
        """Append all lines, those said before too, to ``path``."""
        append(path, "".join(f"{text}\n" for text in self._kept))
        self._path, self._kept = path, []

    def __call__(self, text: str):
        """Print ``text`` above any progress bar and append it to the file."""
        if self._silent:
            return
        # The terminal may be closed, full or gone; BrokenPipeError is the caller's to handle.
        if sys.stdout is not None:
            try:
                tqdm.write(text, file=sys.stdout)
                sys.stdout.flush()
            except BrokenPipeError:
                raise
            except OSError:
                pass
        if self._path is None:
            self._kept.append(text)
        else:
            append(self._path, text + "\n")


class Table:
    """Rows of numbers appended to a file that a checkpoint can cut back."""

    def __init__(self, path: Path, header: str = ""):
        self.path, self.header = path, header

    def add(self, row: str):
        """Append one row; the header first if the file is new."""
        # The disk has the rows before the checkpoint that counts them.
        append(self.path, ("" if self.size() else self.header) + row + "\n", sync=True)

    def size(self) -> int:
        """Bytes in the file."""
        return self.path.stat().st_size if self.path.exists() else 0

    def cut(self, size: int):
        """Drop what was written after the file had ``size`` bytes."""
        if size < self.size():
            os.truncate(self.path, size)


class NoTable:
    """In place of a Table where another process writes it."""

    def __init__(self, path: Path, header: str = ""):
        pass

    def add(self, row: str):
        """Does nothing."""

    def size(self) -> int:
        """Nothing is known of it."""
        return 0

    def cut(self, size: int):
        """Does nothing."""


def append(path: Path, text: str, sync: bool = False):
    """Add ``text`` to a file in one write, or nothing; ``sync``: wait until the disk holds it."""
    data = text.encode()
    try:
        with open(path, "ab", buffering=0) as file:
            before = file.seek(0, os.SEEK_END)
            try:
                if file.write(data) < len(data):
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            except OSError:
                file.truncate(before)  # no line is left torn
                raise
            if sync:
                os.fsync(file.fileno())
    except OSError as error:
        raise UserError(
            f"{path}: cannot be written: {error.strerror}; "
            "when this is mended the same command goes on"
        ) from error
