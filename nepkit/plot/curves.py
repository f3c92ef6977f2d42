"""Loss, errors and learning rate against step."""

from __future__ import annotations

from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter

from ..results import SETS, History
from ..train.compared import KINDS
from .style import COLORS, COLUMN, GREY, new_figure, plain_log


def draw_curves(history: History) -> Figure:
    """Panels one above the other: the loss, each error there is, the learning rate."""
    kinds = [kind for kind in KINDS if any((name, kind.name) in history.errors for name in SETS)]
    rate = history.learning_rate
    panels = 1 + len(kinds) + (rate is not None)
    figure = new_figure(COLUMN, 0.5 + 1.2 * panels)
    axes = list(figure.subplots(panels, 1, sharex=True, squeeze=False)[:, 0])
    marker = "." if len(history.step) < 3 else ""
    axes[0].plot(history.step, history.loss, color="black", marker=marker)
    axes[0].set_ylabel("Loss")
    for panel, kind in zip(axes[1:], kinds, strict=False):
        for name in SETS:
            if (error := history.errors.get((name, kind.name))) is not None:
                panel.plot(history.step, 1e3 * error, color=COLORS[name], label=name, marker=marker)
        panel.set_ylabel(f"{kind.title} RMSE\n(m{kind.unit})")
    if rate is not None:
        axes[-1].plot(history.step, rate, color="black", marker=marker)
        axes[-1].set_ylabel("Learning rate")
    best = int(history.step[history.best])
    for panel in axes:
        if all((line.get_ydata() > 0).all() for line in panel.lines):
            panel.set_yscale("log")
        panel.axvline(best, color=GREY, linewidth=0.6, linestyle=(0, (4, 3)), zorder=0)
    for panel in axes[: 1 + len(kinds)]:
        if panel.get_yscale() == "log":
            plain_log(panel.yaxis)
    if kinds:
        axes[1].legend(loc="upper right", ncols=3, frameon=True, edgecolor="none", borderpad=0.2)
    axes[0].annotate(
        f"best: step {best}", (best, 1), xycoords=("data", "axes fraction"), fontsize=7,
        xytext=(0, 2), textcoords="offset points", ha="center", va="bottom", color=GREY,
        annotation_clip=False,
    )  # fmt: skip
    axes[-1].set_xlabel("Step")
    axes[-1].margins(x=0.02)
    if history.step[-1] >= 20000:
        axes[-1].xaxis.set_major_formatter(EngFormatter(sep=""))
    figure.align_ylabels(axes)
    return figure
