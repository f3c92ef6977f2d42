"""Files written whole or not at all."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import IO

from nepkit.errors import UserError, at

_ADVICE = {
    errno.ENOSPC: "the disk is full: free some space and run again",
    errno.EDQUOT: "the disk quota is used up: free some space and run again",
    errno.EROFS: "the file system is read-only: write to another folder",
    errno.EACCES: "permission denied: change the permissions or write to another folder",
    errno.EPERM: "permission denied: change the permissions or write to another folder",
    errno.ENOENT: "its folder does not exist: make it first",
    errno.ENOTDIR: "its folder is a file: write to another folder",
    errno.EISDIR: "it is a folder: remove it or write to another place",
}


class Unwritable(UserError):
    """A file that cannot be written where it was to be."""


def write_atomically(
    path: str | os.PathLike, data: str | bytes | Callable[[IO[bytes]], object]
) -> None:
    """Write ``data`` to ``path`` so that the file is always the old one or the new one, whole.

    ``data`` is text (written as UTF-8), bytes, or a function that writes to the binary file it
    is given. A process killed in the middle leaves ``NAME.XXXXXXXX.tmp`` beside the file.

    Raises:
        Unwritable: disk full, no permission, no such folder; the old file is then as it was.
    """
    # A link stays a link: the file that it points to is replaced.
    target = Path(os.path.realpath(path))
    # The random name keeps two processes that write the same file from mixing their bytes.
    temporary = target.with_name(f"{target.name}.{secrets.token_hex(4)}.tmp")
    try:
        _refuse_read_only(target)
        _write_and_sync(temporary, data)
        os.replace(temporary, target)
    except (OSError, RuntimeError) as error:
        # torch.save reports a full disk as a RuntimeError raised while handling the OSError.
        fault = error if isinstance(error, OSError) else error.__context__
        if not isinstance(fault, OSError):
            raise
        reason = _ADVICE.get(fault.errno) or fault.strerror or str(fault)
        raise Unwritable(f"{at(path)}: cannot be written: {reason}") from error
    finally:
        with contextlib.suppress(OSError):  # after os.replace there is nothing left to remove
            temporary.unlink()
    _sync_folder(target.parent)


def _refuse_read_only(target: Path) -> None:
    """Raise PermissionError for a file that its owner made read-only: os.replace would not."""
    if target.exists() and not os.access(target, os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))


def _write_and_sync(path: Path, data: str | bytes | Callable[[IO[bytes]], object]) -> None:
    """Write a new file and wait until the disk holds it."""
    with open(path, "xb") as file:
        if callable(data):
            data(file)
        else:
            file.write(data.encode() if isinstance(data, str) else data)
        file.flush()
        os.fsync(file.fileno())


def _sync_folder(folder: Path) -> None:
    """Make the new name durable, where the file system can sync a folder.

    The file is complete by now, so a file system that cannot is no error.
    """
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def digest(path: Path) -> str:
    """SHA-256 of a file; empty where there is none."""
    if not path.is_file():
        return ""
    found = hashlib.sha256()
    try:
        with open(path, "rb") as file:
            while block := file.read(1 << 20):
                found.update(block)
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}") from error
    return found.hexdigest()


def try_lock(file) -> bool:
    """Lock an open file until it is closed or its process ends; False if another holds it."""
    try:
        import fcntl
    except ImportError:  # Windows
        return _try_lock_windows(file)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        # Any other error means that this file system has no locks: then nobody can hold one.
        return error.errno not in (errno.EWOULDBLOCK, errno.EACCES)
    return True


def _try_lock_windows(file) -> bool:
    import msvcrt

    try:
        msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
    except OSError:
        return False
    return True
