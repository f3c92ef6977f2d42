"""Prediction against label: a panel for each quantity, and for each set where points are many."""

from __future__ import annotations

import numpy as np
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from ..train.compared import KINDS, Compared, Kind
from ..train.report import three_digits
from .style import COLORS, GREY, PAGE, new_figure

# Labels of a set above which it is drawn as density: dots would hide each other.
MANY = 5000
# Hexagons across a panel.
_HEXAGONS = 60


def draw_parity(sets: dict[str, dict[str, Compared]]) -> Figure:
    """``sets``: by name, then by kind. Few points: the test set on top of the training set; many:
    each in a row of its own, the test set above."""
    kinds = [kind for kind in KINDS if any(kind.name in found for found in sets.values())]
    points = {
        (name, kind): found[kind.name].known()
        for name, found in sets.items()
        for kind in kinds
        if kind.name in found
    }
    dense = any(len(label) > MANY for label, _ in points.values())
    rows = [[name] for name in reversed(sets)] if dense else [list(sets)]
    width = PAGE * len(kinds) / 3
    # A colour bar takes its room from the panels.
    panel = (width - 0.7 * dense) / len(kinds)
    figure = new_figure(width, 0.2 + len(rows) * (panel - 0.2))
    panels = figure.subplots(len(rows), len(kinds), squeeze=False)
    ends = {kind: _ends([both for (_, k), both in points.items() if k == kind]) for kind in kinds}
    densities = []
    for axes_row, names in zip(panels, rows, strict=True):
        for axes, kind in zip(axes_row, kinds, strict=True):
            drawn = {n: points[n, kind] for n in names if (n, kind) in points}
            densities += _draw(axes, drawn, ends[kind])
            _tell(axes, kind, {n: sets[n][kind.name] for n in drawn})
            if names is rows[-1]:
                axes.set_xlabel(f"{kind.title}, reference ({kind.unit})")
            axes.set_ylabel(f"{kind.title}, NEP ({kind.unit})")
    if densities:
        most = max(density.get_array().max() for density in densities)
        for density in densities:
            density.set_norm(LogNorm(1, max(most, 2)))
        bar = figure.colorbar(densities[0], ax=panels, aspect=40, fraction=0.03, pad=0.01)
        bar.set_label("Labels per hexagon")
        bar.outline.set_linewidth(0.4)
    return figure


def _ends(pairs: list[tuple[np.ndarray, np.ndarray]]) -> tuple[float, float]:
    """The range of both axes, eV/atom or eV/Å."""
    numbers = np.concatenate([values for both in pairs for values in both])
    low, high = float(numbers.min()), float(numbers.max())
    margin = 0.05 * (high - low) or 0.5
    return low - margin, high + margin


def _draw(axes, drawn: dict[str, tuple[np.ndarray, np.ndarray]], ends: tuple[float, float]) -> list:
    """One panel: square, the same range on both axes. Returns densities, still without a scale."""
    axes.set(xlim=ends, ylim=ends, box_aspect=1)
    axes.spines[["top", "right"]].set_visible(True)
    # Long numbers need more room.
    most = 6 if ends[1] - ends[0] > 1 else 3
    ticks = MaxNLocator(most, steps=(1, 2, 5, 10)).tick_values(*ends)
    ticks = [tick for tick in ticks if ends[0] <= tick <= ends[1]]
    axes.set(xticks=ticks, yticks=ticks)
    axes.plot(ends, ends, color=GREY, linewidth=0.6, zorder=0)
    densities = []
    for name, (label, predicted) in drawn.items():
        if len(label) > MANY:
            densities.append(
                axes.hexbin(
                    label, predicted, gridsize=_HEXAGONS, extent=(*ends, *ends), mincnt=1,
                    cmap="viridis", linewidths=0.1, rasterized=True,
                )
            )  # fmt: skip
        else:
            axes.plot(
                label, predicted, ".", color=COLORS[name], markersize=3.5, alpha=0.6,
                markeredgewidth=0, rasterized=len(label) > MANY // 5,
            )  # fmt: skip
    return densities


def _tell(axes, kind: Kind, compared: dict[str, Compared]):
    """The errors in the two corners that a parity plot leaves empty; of three sets those held out
    are told at length."""
    corners = [(0.04, 0.97, "left", "top"), (0.97, 0.03, "right", "bottom")]
    told = list(compared.items())
    if len(told) > len(corners):
        name, values = told.pop(0)
        rmse = three_digits(1e3 * values.scores().rmse)
        axes.text(
            0.04, 0.70, f"{name}\nRMSE {rmse}", ha="left", va="top", transform=axes.transAxes,
            fontsize=6.5, color=COLORS[name], linespacing=1.25,
        )  # fmt: skip
    for (name, values), (x, y, side, edge) in zip(told, corners, strict=False):
        scores = values.scores()
        lines = [
            name,
            f"RMSE {three_digits(1e3 * scores.rmse)} m{kind.unit}",
            f"MAE {three_digits(1e3 * scores.mae)} m{kind.unit}",
        ]
        if np.isfinite(scores.r2):
            lines.append(f"$R^2$ {scores.r2:.4f}")
        axes.text(
            x, y, "\n".join(lines), ha=side, va=edge, transform=axes.transAxes, fontsize=6.5,
            color=COLORS[name], linespacing=1.25, multialignment=side,
        )  # fmt: skip
