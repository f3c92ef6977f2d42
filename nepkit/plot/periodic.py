"""Errors of the forces on the periodic table, where elements are too many for bars."""

from __future__ import annotations

import numpy as np
from matplotlib import colormaps
from matplotlib.cm import ScalarMappable
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from ..train.compared import KINDS, Scores
from ..train.report import three_digits
from ..units import ATOMIC_NUMBERS, group, period
from .style import COLORS, PAGE, new_figure, plain_log

# Elements above which bars would not fit a page.
MANY = 24
# Of the largest error: smaller ones are told and drawn as nothing.
LEAST = 1e-3


def place(number: int) -> tuple[float, int]:
    """Row and column of an element; lanthanides and actinides have rows of their own below."""
    row, column = period(number) - 1, group(number) - 1
    below = number - (55, 87)[row - 5] if row >= 5 and column == 2 else 16
    return (row + 2.4, below) if below < 16 else (row, column)


def draw_periodic(groups: dict[str, dict[str, dict[str, Scores]]]) -> Figure:
    """``groups``: by data set, element and kind, of which force is drawn; the test set above."""
    force = next(kind for kind in KINDS if kind.name == "force")
    sets = [name for name in reversed(groups) if groups[name]]
    errors = {n: {e: 1e3 * s["force"].rmse for e, s in groups[n].items()} for n in sets}
    sizes = [error for found in errors.values() for error in found.values() if error > 0]
    # An element whose forces vanish by symmetry would take all colours for itself.
    most = max(sizes, default=2)
    least = min((error for error in sizes if error > LEAST * most), default=1)
    norm = LogNorm(least, most * 1.001)
    colors = ScalarMappable(norm, colormaps["cividis"])
    figure = new_figure(PAGE, 3.6 * len(sets))
    for axes, name in zip(figure.subplots(len(sets), 1, squeeze=False)[:, 0], sets, strict=True):
        axes.set(xlim=(-0.05, 18.05), ylim=(9.5, -0.05), aspect="equal")
        axes.axis("off")
        for element, error in errors[name].items():
            _draw_element(axes, element, error, colors)
        axes.set_title(name, color=COLORS[name], loc="left", x=0.13, y=0.9)
        # In the room between hydrogen and helium.
        bar = figure.colorbar(
            colors, cax=axes.inset_axes((0.2, 0.86, 0.4, 0.04)), orientation="horizontal"
        )
        plain_log(bar.ax.xaxis)
        bar.set_label(f"{force.title} RMSE (m{force.unit})")
        bar.outline.set_linewidth(0.4)
    return figure


def _draw_element(axes, element: str, error: float, colors: ScalarMappable):
    row, column = place(ATOMIC_NUMBERS[element])
    color = colors.to_rgba(max(error, colors.norm.vmin))
    axes.add_patch(Rectangle((column + 0.03, row + 0.03), 0.94, 0.94, facecolor=color))
    dark = np.dot(color[:3], (0.299, 0.587, 0.114)) < 0.5
    told = three_digits(error) if error > LEAST * colors.norm.vmax else "0"
    axes.text(
        column + 0.5, row + 0.52, f"{element}\n{told}", ha="center", va="center",
        fontsize=6, color="white" if dark else "black",
    )  # fmt: skip
