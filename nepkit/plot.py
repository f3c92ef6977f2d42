"""Parity plots of a finished run."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from .train.outputs import MISSING

# Okabe-Ito colours: told apart by colour-blind readers and in grey.
COLORS = {"train": "#0072B2", "test": "#D55E00"}
PANELS = {
    "energy": ("energy", "eV/atom", 1),
    "force": ("force", "eV/Å", 3),
    "virial": ("virial", "eV/atom", 6),
}


def plot_parity(folder: str | os.PathLike) -> Path | None:
    """Draw prediction against label from the *.out files of ``folder`` into parity.png.

    Returns its path; None where matplotlib is not installed (the extra ``plot``).
    """
    try:
        from matplotlib.figure import Figure
    except ImportError:
        return None
    folder = Path(folder)
    figure = Figure(figsize=(10.5, 3.6), layout="constrained")
    for axes, (name, panel) in zip(figure.subplots(1, 3), PANELS.items()):
        _panel(axes, folder, name, *panel)
    path = folder / "parity.png"
    figure.savefig(path, dpi=200)
    return path


def _panel(axes, folder: Path, name: str, title: str, unit: str, width: int):
    everything = []
    for set_name, color in COLORS.items():
        path = folder / f"{name}_{set_name}.out"
        if not path.exists():
            continue
        table = np.loadtxt(path, ndmin=2)
        predicted, label = table[:, :width].ravel(), table[:, width:].ravel()
        known = (label != MISSING) & (predicted != MISSING)
        if not known.any():
            continue
        predicted, label = predicted[known], label[known]
        error = 1e3 * np.sqrt(np.mean((predicted - label) ** 2))
        axes.plot(
            label, predicted, ".", color=color, markersize=3, alpha=0.6,
            label=f"{set_name}: {error:.1f} m{unit}", rasterized=True,
        )  # fmt: skip
        everything += [label, predicted]
    if everything:
        ends = np.min(np.concatenate(everything)), np.max(np.concatenate(everything))
        axes.plot(ends, ends, color="0.3", linewidth=0.8, zorder=0)
        axes.legend(title="RMSE", frameon=False, fontsize="small")
    else:
        axes.text(0.5, 0.5, "no labels", ha="center", transform=axes.transAxes)
    axes.set_xlabel(f"{title}, label ({unit})")
    axes.set_ylabel(f"{title}, NEP ({unit})")
