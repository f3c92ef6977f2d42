"""Which share of the errors lies below a size."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure

from ..train.compared import KINDS, Compared
from ..train.report import three_digits
from .style import COLORS, GREY, PAGE, new_figure, plain_log

# Corners of a curve at most: more would only make the file larger.
_POINTS = 1000
# How far below the median the axis begins.
_BELOW = 200


def draw_distribution(sets: dict[str, dict[str, Compared]]) -> Figure:
    """``sets``: by name, then by kind. A panel for each kind; half and 95 % in its legend."""
    kinds = [kind for kind in KINDS if any(kind.name in found for found in sets.values())]
    figure = new_figure(PAGE * len(kinds) / 3, 2.3)
    panels = figure.subplots(1, len(kinds), sharey=True, squeeze=False)[0]
    for axes, kind in zip(panels, kinds, strict=True):
        medians = []
        for name, found in sets.items():
            if kind.name not in found:
                continue
            label, predicted = found[kind.name].known()
            error = 1e3 * np.sort(abs(predicted - label))
            some = np.linspace(0, len(error) - 1, min(_POINTS, len(error))).astype(int)
            half, most = np.quantile(error, (0.5, 0.95))
            axes.plot(
                error[some], 100 * (some + 1) / len(error), color=COLORS[name],
                drawstyle="steps-post", label=f"{name}: {three_digits(half)}, {three_digits(most)}",
            )  # fmt: skip
            medians.append(half)
        if min(medians) > 0:
            # Below are labels that symmetry makes zero.
            axes.set_xscale("log")
            axes.set_xlim(left=min(medians) / _BELOW)
            plain_log(axes.xaxis)
        for level in (50, 95):
            axes.axhline(level, color=GREY, linewidth=0.5, linestyle=(0, (1, 2)), zorder=0)
        axes.set(xlabel=f"{kind.title}, |error| (m{kind.unit})", ylim=(0, 101))
        axes.legend(
            loc="upper left", title=f"50 %, 95 % (m{kind.unit})", title_fontsize=6.5,
            fontsize=6.5, alignment="left", frameon=True, edgecolor="none", borderpad=0.2,
        )  # fmt: skip
    panels[0].set_ylabel("Labels with smaller error (%)")
    return figure
