"""Figures of a run, for journals: curves, parity, errors by group, distributions of errors."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path

from ..errors import UserError
from ..files import write_atomically
from ..results import SETS, Results, read_compared, read_results
from ..train.folder import OutputFolder

FORMATS = ("png", "svg", "pdf")


def plot_parity(folder: str | os.PathLike) -> Path | None:
    """Draw prediction against label from the *.out files of ``folder`` into parity.png.

    Returns its path; None where matplotlib is not installed (the extra ``plot``), or where there
    is no label.

    Raises:
        UserError: a parity.png is there that nepkit did not draw, or it cannot be written.
    """
    try:
        from .parity import draw_parity
        from .style import image
    except ImportError:
        return None
    folder = Path(folder)
    sets = {name: read_compared(folder, name) for name in SETS}
    sets = {name: compared for name, compared in sets.items() if compared}
    if not sets:
        return None
    return _write(folder, {"parity.png": image(partial(draw_parity, sets), "png")})[0]


def plot_run(
    run_dir: str | os.PathLike, *, out: str | os.PathLike | None = None, format: str = "png"
) -> list[Path]:
    """Draw the figures of the run in ``run_dir`` into ``out`` (default: there).

    curves: loss, errors and learning rate against step; parity: prediction against label;
    elements and sources: errors by element and by config_type; distribution: shares of errors.
    Figures without data are left out. Returns the paths of those drawn.

    Raises:
        UserError: no matplotlib, no results, or a file of somebody else's would be overwritten.
    """
    if format not in FORMATS:
        raise UserError(f"format {format}: give {', '.join(FORMATS[:-1])} or {FORMATS[-1]}")
    try:
        from .style import image
    except ImportError as error:
        raise UserError("figures need matplotlib: pip install 'nepkit-mlip[plot]'") from error
    figures = _figures(read_results(run_dir))
    images = {f"{name}.{format}": image(draw, format) for name, draw in figures.items()}
    return _write(Path(run_dir if out is None else out), images)


def _figures(results: Results) -> dict:
    """What draws each figure that there are data for, by name."""
    from .curves import draw_curves
    from .distribution import draw_distribution
    from .groups import draw_groups
    from .parity import draw_parity
    from .periodic import MANY, draw_periodic

    sets = {data.name: data.compared for data in results.sets}
    figures = {}
    if results.history:
        figures["curves"] = partial(draw_curves, results.history)
    if sets:
        figures["parity"] = partial(draw_parity, sets)
        figures["distribution"] = partial(draw_distribution, sets)
    elements = {data.name: data.by_element() for data in results.sets}
    sources = {data.name: data.by_source() for data in results.sets}
    for name, groups in (("elements", elements), ("sources", sources)):
        # A single group has the errors of the whole set.
        members = {group for found in groups.values() for group in found}
        draw = draw_periodic if name == "elements" and len(members) > MANY else draw_groups
        if len(members) > 1:
            figures[name] = partial(draw, groups)
    return figures


def _write(folder: Path, images: dict[str, bytes]) -> list[Path]:
    """Write images into a folder, those that are there already apart."""
    with OutputFolder(folder) as out:
        out.check(images)
        for name, content in images.items():
            path = folder / name
            if not path.exists() or path.read_bytes() != content:
                out.claim([name])
                write_atomically(path, content)
    return [folder / name for name in images]
