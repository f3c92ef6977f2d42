"""The output folder of a run: who may write there, and which files are whose."""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Iterable
from pathlib import Path

from ..errors import UserError
from ..files import digest, try_lock, write_atomically

MANIFEST = "nepkit_run.json"
LOCK = "nepkit.lock"
# A folder in which TensorBoard's own code writes.
TENSORBOARD = "tensorboard"
# What write_atomically leaves when its process is killed.
_LEFTOVER = re.compile(r"(.+)\.[0-9a-f]{8}\.tmp")


class OutputFolder:
    """A folder that one run at a time writes to, and only to files that nepkit made.

    Use as a context manager: the lock goes with it, and with the process whatever ends it.

    The manifest names our files with their SHA-256. It is written when the folder is left; while a
    run writes a file, and ever after if that run is killed, its digest is null and whatever bears
    its name is ours. Otherwise a file that differs from its digest is somebody else's.

    ``about``: what the manifest tells of the run besides, kept by whoever writes it next.
    """

    def __init__(self, path: Path, manifest: str = MANIFEST, option: str = "--out"):
        """``option``: of the command, which names another folder."""
        self.path, self.manifest, self.option = path, manifest, option
        self.about: dict = {}
        self._claimed: set[str] = set()  # to be sealed when the folder is left

    def __enter__(self):
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            self._lock = open(self.path / LOCK, "a+b")
        except OSError as error:
            raise UserError(
                f"{self.path}: cannot be written to ({error.strerror}); give a folder with {self.option}"
            ) from error
        try:
            if not try_lock(self._lock):
                raise UserError(
                    f"{self.path}: another run is at work here; "
                    f"wait for it or give another folder with {self.option}"
                )
            found = read_manifest(self.path, self.manifest, self.option)
            self._digests, self.about = found
        except UserError:
            self._lock.close()
            raise
        return self

    def __exit__(self, *_):
        # Unlocks. The file stays: removing it would let two runs lock files of the same name.
        # On a full disk the digests stay null, which forbids nothing.
        with self._lock, contextlib.suppress(UserError, OSError):
            self._seal()

    def check(self, names: Iterable[str]):
        """Refuse if somebody else's file has one of ``names``."""
        for name in names:
            path = self.path / name
            if not (path.exists() or path.is_symlink()):
                continue
            if name not in self._digests:
                fault = "not written by nepkit"
            elif self._digests[name] not in (None, digest(path)):
                fault = "changed since nepkit wrote it"
            else:
                continue
            raise UserError(
                f"{path}: {fault} and would be overwritten;\n"
                f"move it away, or write the results to another folder with {self.option}"
            )

    def claim(self, names: Iterable[str]):
        """Make ``names`` ours before they are written; refuse if somebody else's file has one."""
        new = set(names) - self._claimed
        if not new:
            return
        self.check(new)
        self._digests |= dict.fromkeys(new)
        self._claimed |= new
        self._write_manifest()
        ours = new | {self.manifest}
        for path in list(self.path.iterdir()):
            match = _LEFTOVER.fullmatch(path.name)
            if match and match[1] in ours:
                path.unlink(missing_ok=True)

    def unchanged(self, names: Iterable[str]) -> bool:
        """Whether all ``names`` are there as a run left them that was not killed."""
        digests = [(self.path / name, self._digests.get(name)) for name in names]
        return all(
            known is not None and path.is_file() and digest(path) == known
            for path, known in digests
        )

    def move_to_previous(self, last: str) -> Path | None:
        """Move an old run's files to previous-N beside them; None without any.

        ``last``: the file that goes last, so that a move cut short leaves a run that can go on.
        """
        names = [name for name in self._digests if (self.path / name).exists()]
        if not names:
            return None
        self.check(names)
        entries = (re.fullmatch(r"previous-(\d+)", entry.name) for entry in self.path.iterdir())
        target = self.path / f"previous-{max((int(m[1]) for m in entries if m), default=0) + 1}"
        names.sort(key=lambda name: name == last)
        try:
            target.mkdir()
            boards = [TENSORBOARD] * (self.path / TENSORBOARD).is_dir()
            for name in [*boards, *names, self.manifest]:
                os.replace(self.path / name, target / name)
        except OSError as error:
            raise UserError(f"{target}: cannot be written: {error.strerror}") from error
        self._digests, self.about = {}, {}
        return target

    def _write_manifest(self):
        content = {**self.about, "files": dict(sorted(self._digests.items()))}
        text = json.dumps(content, indent=1) + "\n"
        path = self.path / self.manifest
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            write_atomically(path, text)

    def _seal(self):
        """Write down what the claimed files hold; those that were never written are nobody's."""
        if not self._claimed:
            return
        for name in self._claimed:
            path = self.path / name
            if path.is_file():
                self._digests[name] = digest(path)
            else:
                self._digests.pop(name, None)
        self._write_manifest()


def read_manifest(
    folder: Path, manifest: str = MANIFEST, option: str = "--out"
) -> tuple[dict[str, str | None], dict]:
    """The digests of nepkit's files in ``folder``, and what else its manifest tells."""
    path = folder / manifest
    if not path.exists():
        return {}, {}
    try:
        content = dict(json.loads(path.read_text(encoding="utf-8")))
        return dict(content.pop("files")), content
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(
            f"{path}: damaged; move it away or give another folder with {option}"
        ) from error


def at_work(path: Path) -> bool:
    """Whether a run is writing to a folder; changes nothing there."""
    try:
        with open(path / LOCK, "rb") as file:
            return not try_lock(file)
    except OSError:
        return False
