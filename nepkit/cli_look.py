"""The commands that look at a run: ``nepkit plot`` and ``nepkit report``."""

from __future__ import annotations

import argparse


def plot(options: argparse.Namespace):
    """Draw the figures of a run."""
    from .plot import plot_run

    for path in plot_run(options.run_dir, out=options.out, format=options.format):
        print(path)


def report(options: argparse.Namespace):
    """Write the page about a run."""
    from .report import write_report

    print(write_report(options.run_dir, out=options.out))
