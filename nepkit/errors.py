"""The one error class for what a user can mend."""

from __future__ import annotations

import os


class UserError(Exception):
    """A mistake in the user's input: what is wrong, where, and what to do, in one or two lines.

    Programs end with exit code 2 and print the message without a traceback.
    """

    # Whether another process of the same run tells the user; None: they settle it.
    told: bool | None = None


def at(path: str | os.PathLike, line: int | None = None, frame: int | None = None) -> str:
    """The place of a fault as ``file, frame 3, line 17``: frames count from 0, lines from 1."""
    place = os.fspath(path)
    if frame is not None:
        place += f", frame {frame}"
    if line is not None:
        place += f", line {line}"
    return place
