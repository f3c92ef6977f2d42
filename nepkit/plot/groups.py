"""Errors by element or by source, as bars."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure

from ..train.compared import KINDS, Groups
from .style import COLORS, COLUMN, PAGE, new_figure

# Groups drawn at most: those of the largest errors.
MOST = 50


def draw_groups(groups: dict[str, Groups]) -> Figure:
    """``groups``: by data set, name of the group and kind. The largest errors on top."""
    kinds = [
        kind
        for kind in KINDS
        if any(kind.name in scores for found in groups.values() for scores in found.values())
    ]
    sets = [name for name, found in groups.items() if found]
    names = {name for found in groups.values() for name in found}
    # By the force where there is one: it has the most labels.
    leading = next((kind for kind in kinds if kind.name == "force"), kinds[0]).name
    shown = sorted(names, key=lambda name: (-_largest(groups, name, leading), name))[:MOST]
    width = COLUMN if len(kinds) == 1 else PAGE
    figure = new_figure(width, 0.75 + 0.19 * len(shown))
    panels = figure.subplots(1, len(kinds), sharey=True, squeeze=False)[0]
    height = 0.76 / len(sets)
    for axes, kind in zip(panels, kinds, strict=True):
        for place, data in enumerate(sets):
            errors = [_rmse(groups[data], name, kind.name) for name in shown]
            axes.barh(
                np.arange(len(shown)) + (place - (len(sets) - 1) / 2) * height,
                1e3 * np.array(errors), height, color=COLORS[data], label=data,
            )  # fmt: skip
        axes.set_xlabel(f"{kind.title} RMSE (m{kind.unit})")
        axes.locator_params(axis="x", nbins=5)
        axes.grid(axis="x", color="0.88", linewidth=0.5)
        axes.set_axisbelow(True)
        axes.tick_params(axis="y", length=0)
    panels[0].set_yticks(range(len(shown)), [_short(name) for name in shown])
    panels[0].set_ylim(len(shown) - 0.4, -0.6)
    figure.legend(
        *panels[0].get_legend_handles_labels(), loc="outside upper right", ncols=3,
        title=f"the {MOST} largest of {len(names)}" if len(names) > MOST else None,
    )  # fmt: skip
    return figure


def _rmse(found: Groups, name: str, kind: str) -> float:
    scores = found.get(name, {}).get(kind)
    return scores.rmse if scores else np.nan


def _largest(groups: dict, name: str, kind: str) -> float:
    errors = [_rmse(found, name, kind) for found in groups.values()]
    return max((error for error in errors if np.isfinite(error)), default=0.0)


def _short(name: str) -> str:
    return name if len(name) <= 32 else f"{name[:31]}…"
