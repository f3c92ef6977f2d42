"""Parity plots of a finished run."""

from __future__ import annotations

import io
import os
from pathlib import Path

import numpy as np

from .files import write_atomically
from .train.folder import OutputFolder
from .train.outputs import MISSING

NAME = "parity.png"
# Okabe-Ito colours: told apart by colour-blind readers and in grey. The test set lies on top.
COLORS = {"train": "#0072B2", "test": "#D55E00"}
# File, title, unit, columns.
PANELS = (
    ("energy", "Energy", "eV/atom", 1),
    ("force", "Force", "eV/Å", 3),
    ("virial", "Virial", "eV/atom", 6),
)
# Points drawn of a data set at most, evenly taken; the errors are those of all.
MOST_POINTS = 50000


def plot_parity(folder: str | os.PathLike) -> Path | None:
    """Draw prediction against label from the *.out files of ``folder`` into parity.png.

    Returns its path; None where matplotlib is not installed (the extra ``plot``).

    Raises:
        UserError: a parity.png is there that nepkit did not draw, or it cannot be written.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError:
        return None
    path = Path(folder) / NAME
    figure = Figure(figsize=(10.5, 3.7), layout="constrained")
    for axes, (name, title, unit, width) in zip(figure.subplots(1, 3), PANELS, strict=True):
        sets = {s: _read(path.with_name(f"{name}_{s}.out"), width) for s in COLORS}
        _draw(axes, {s: both for s, both in sets.items() if both is not None}, unit)
        axes.set_title(title)
    image = io.BytesIO()
    figure.savefig(image, dpi=160, format="png", metadata={"Software": None})
    with OutputFolder(path.parent) as out:
        out.check([NAME])
        if not path.exists() or path.read_bytes() != image.getvalue():
            out.claim([NAME])
            write_atomically(path, image.getvalue())
    return path


def _read(path: Path, width: int) -> tuple[np.ndarray, np.ndarray] | None:
    """Labels and predictions (n,) of a file where there are both; None where there are none."""
    if not path.exists() or path.stat().st_size == 0:
        return None
    table = np.loadtxt(path, ndmin=2)
    predicted, label = table[:, :width].ravel(), table[:, width:].ravel()
    known = (label != MISSING) & np.isfinite(predicted)
    return (label[known], predicted[known]) if known.any() else None


def _draw(axes, sets: dict[str, tuple[np.ndarray, np.ndarray]], unit: str):
    """One panel: square, the same range on both axes, the errors in its legend."""
    axes.set(xlabel=f"label ({unit})", ylabel=f"NEP ({unit})", box_aspect=1)
    if not sets:
        axes.text(0.5, 0.5, "no labels", ha="center", va="center", transform=axes.transAxes)
        axes.set(xticks=[], yticks=[])
        return
    numbers = np.concatenate([values for both in sets.values() for values in both])
    low, high = numbers.min(), numbers.max()
    margin = 0.05 * (high - low) or 0.5
    ends = (low - margin, high + margin)
    axes.set(xlim=ends, ylim=ends)
    axes.plot(ends, ends, color="0.4", linewidth=0.8, zorder=0)
    for name, (label, predicted) in sets.items():
        error = 1e3 * np.sqrt(np.mean((predicted - label) ** 2))
        some = slice(None, None, -(-len(label) // MOST_POINTS))
        axes.plot(
            label[some], predicted[some], ".", color=COLORS[name], markersize=4, alpha=0.5,
            markeredgewidth=0, label=f"{name}  {error:.3g} m{unit}",
        )  # fmt: skip
    axes.locator_params(nbins=5)
    axes.legend(
        title="RMSE", alignment="left", frameon=False, fontsize="small", markerscale=2,
        loc="upper left",
    )  # fmt: skip
