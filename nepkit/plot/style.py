"""How all figures look, and how they become files."""

from __future__ import annotations

import io
from collections.abc import Callable

import numpy as np
from matplotlib import rc_context
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator

# Widths of a column and of a page of a journal, inches.
COLUMN, PAGE = 3.4, 7.0
# Okabe-Ito colours: told apart by colour-blind readers and in grey.
COLORS = {"train": "#0072B2", "valid": "#009E73", "test": "#D55E00"}
GREY = "0.45"
_STYLE = {
    "font.family": "DejaVu Sans", "font.size": 7.5, "axes.titlesize": 8, "axes.labelsize": 8,
    "xtick.labelsize": 7, "ytick.labelsize": 7, "legend.fontsize": 7, "legend.frameon": False,
    "axes.linewidth": 0.6, "lines.linewidth": 1.2, "xtick.major.width": 0.6,
    "ytick.major.width": 0.6, "xtick.minor.width": 0.4, "ytick.minor.width": 0.4,
    "xtick.major.size": 3, "ytick.major.size": 3, "xtick.minor.size": 1.5, "ytick.minor.size": 1.5,
    "xtick.direction": "in", "ytick.direction": "in", "xtick.top": False, "ytick.right": False,
    "axes.spines.top": False, "axes.spines.right": False, "legend.handlelength": 1.2,
    # Text in pdf files stays text; nothing in svg files depends on the moment.
    "pdf.fonttype": 42, "svg.hashsalt": "nepkit",
}  # fmt: skip
# The same figure is the same file.
_NO_DATE = {"png": {"Software": None}, "svg": {"Date": None}, "pdf": {"CreationDate": None}}


def image(draw: Callable[[], Figure], format: str) -> bytes:
    """The file of the figure that ``draw`` makes; dense points of a vector image have 400 dpi."""
    with rc_context():
        from matplotlib import rcParams, rcParamsDefault

        # Whatever the user has set elsewhere; the backend is not touched.
        rcParams.update({k: v for k, v in rcParamsDefault.items() if "backend" not in k})
        rcParams.update(_STYLE)
        file = io.BytesIO()
        dpi = 300 if format == "png" else 400
        draw().savefig(file, dpi=dpi, format=format, metadata=_NO_DATE[format])
    return file.getvalue()


def new_figure(width: float, height: float) -> Figure:
    """A figure without a window, in inches."""
    return Figure(figsize=(width, height), layout="constrained")


def plain_log(axis):
    """Ticks of a logarithmic axis as plain numbers; more of them where it spans little."""
    low, high = axis.get_view_interval()
    decades = np.log10(high / low)
    between = (1, 1.5, 2, 3, 4, 5, 7) if decades < 0.8 else (1, 2, 5) if decades < 1.7 else (1,)
    axis.set_major_locator(LogLocator(subs=between, numticks=8))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_formatter(FuncFormatter(lambda *_: ""))
