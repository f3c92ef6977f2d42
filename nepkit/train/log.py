"""What a run tells: to the terminal, to nepkit.log, and as numbers to loss.out and history.csv."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from tqdm import tqdm

from ..errors import UserError


class RunLog:
    """Lines for people, on the terminal and in nepkit.log."""

    def __init__(self, path: Path):
        self.path = path

    def __call__(self, text: str):
        """Print ``text`` above any progress bar and append it to the file."""
        tqdm.write(text, file=sys.stdout)
        sys.stdout.flush()
        append(self.path, text + "\n")


class Table:
    """Rows of numbers appended to a file that a checkpoint can cut back."""

    def __init__(self, path: Path, header: str = ""):
        self.path, self.header = path, header

    def add(self, row: str):
        """Append one row; the header first if the file is new."""
        new = not self.path.exists() or self.path.stat().st_size == 0
        append(self.path, (self.header if new else "") + row + "\n")

    def size(self) -> int:
        """Bytes in the file."""
        return self.path.stat().st_size if self.path.exists() else 0

    def cut(self, size: int):
        """Drop what was written after the file had ``size`` bytes."""
        if self.path.exists():
            os.truncate(self.path, min(size, self.size()))


def append(path: Path, text: str):
    """Add ``text`` to a file in one write."""
    try:
        with open(path, "a", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise UserError(f"{path}: cannot be written: {error.strerror}") from error
