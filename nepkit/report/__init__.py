"""One HTML file about a run: settings, errors, curves, and dots that tell which frame they are."""

from __future__ import annotations

import os
from pathlib import Path

from ..errors import UserError
from ..files import write_atomically
from ..results import read_results
from ..train.folder import OutputFolder
from .page import GENERATOR, make_page

NAME = "report.html"


def write_report(run_dir: str | os.PathLike, *, out: str | os.PathLike | None = None) -> Path:
    """Write the report of the run in ``run_dir`` to the file ``out`` (default: report.html there).

    The file needs nothing else, no network either. Returns its path.

    Raises:
        UserError: no results, a damaged file, or ``out`` is there and no report.
    """
    page = make_page(read_results(run_dir))
    if out is None:
        with OutputFolder(Path(run_dir)) as folder:
            folder.claim([NAME])
            write_atomically(folder.path / NAME, page)
        return Path(run_dir) / NAME
    path = Path(out)
    if path.exists() and not (path.is_file() and GENERATOR in path.read_bytes()[:1000]):
        raise UserError(
            f"{path}: not a report of nepkit and would be overwritten; give another name"
        )
    write_atomically(path, page)
    return path
