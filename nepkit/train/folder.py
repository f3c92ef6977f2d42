"""The output folder of a run: who may write there, and what belongs to whom."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

from ..errors import UserError
from ..files import write_atomically

MANIFEST = "nepkit_run.json"
LOCK = "nepkit.lock"


class OutputFolder:
    """A folder that one run at a time writes to, and only to files that nepkit made.

    Use as a context manager: the lock goes with it, and with the process whatever ends it.
    """

    def __init__(self, path: Path):
        self.path = path

    def __enter__(self) -> OutputFolder:
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            self._lock = open(self.path / LOCK, "a+b")
        except OSError as error:
            raise UserError(
                f"{self.path}: cannot be written to ({error.strerror}); give a folder with --out"
            ) from error
        if not _try_lock(self._lock):
            self._lock.close()
            raise UserError(
                f"{self.path}: another run is at work here; wait for it or give another --out"
            )
        return self

    def __exit__(self, *_):
        # Unlocks. The file stays: removing it would let two runs lock files of the same name.
        self._lock.close()

    def written(self) -> list[str]:
        """Names of the files that nepkit made here, as far as they still exist."""
        path = self.path / MANIFEST
        if not path.exists():
            return []
        try:
            names = json.loads(path.read_text())["files"]
        except (ValueError, KeyError, TypeError) as error:
            raise UserError(f"{path}: damaged; move it away or give another --out") from error
        return [name for name in names if (self.path / name).exists()]

    def claim(self, names: list[str]):
        """Make ``names`` ours before they are written; refuse where somebody else's file lies."""
        ours = self.written()
        foreign = [name for name in names if name not in ours and (self.path / name).exists()]
        if foreign:
            raise UserError(
                f"{self.path / foreign[0]}: not written by nepkit and would be overwritten;\n"
                "move it away, or write the results to another folder with --out"
            )
        text = json.dumps({"files": sorted({*ours, *names})}, indent=1) + "\n"
        write_atomically(self.path / MANIFEST, text)

    def move_to_previous(self) -> Path | None:
        """Move an old run's files to previous-N beside them; None without any."""
        names = self.written()
        if not names:
            return None
        numbers = [
            int(match[1])
            for entry in self.path.iterdir()
            if (match := re.fullmatch(r"previous-(\d+)", entry.name))
        ]
        target = self.path / f"previous-{max(numbers, default=0) + 1}"
        target.mkdir()
        for name in [*names, MANIFEST]:
            os.replace(self.path / name, target / name)
        return target


def _try_lock(file) -> bool:
    """Lock an open file until it is closed or its process ends; False if another holds it."""
    try:
        import fcntl
    except ImportError:  # Windows
        import msvcrt

        try:
            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        return True
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
