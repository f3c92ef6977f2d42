"""The commands that look at a run: ``nepkit plot`` and ``nepkit report``."""

from __future__ import annotations

import argparse

PLOT_EXAMPLES = """\
Curves, parity, errors by element and by source (config_type), and
distributions of errors.

examples:
  nepkit plot PbTe
  nepkit plot PbTe --format pdf --out figures
"""
REPORT_EXAMPLES = """\
One file that needs no network: settings, errors, curves, and dots that tell
their frames.

examples:
  nepkit report PbTe
  nepkit report PbTe --out PbTe.html
"""


def add_plot_and_report(commands, command):
    """Add the commands to ``commands``; ``command`` makes one of name, summary and examples."""
    plot = command(commands, "plot", "draw figures of a run", PLOT_EXAMPLES)
    plot.set_defaults(call=_plot)
    plot.add_argument("run_dir", metavar="RUN_DIR", help="folder that a run wrote to")
    plot.add_argument(
        "--format", default="png", metavar="TYPE", choices=("png", "svg", "pdf"),
        help="png, svg or pdf (default: png)",
    )  # fmt: skip
    plot.add_argument("--out", metavar="DIR", help="folder for the figures (default: RUN_DIR)")
    report = command(commands, "report", "write a web page about a run", REPORT_EXAMPLES)
    report.set_defaults(call=_report)
    report.add_argument("run_dir", metavar="RUN_DIR", help="folder that a run wrote to")
    report.add_argument("--out", metavar="FILE", help="(default: RUN_DIR/report.html)")


def _plot(options: argparse.Namespace):
    from .plot import plot_run

    for path in plot_run(options.run_dir, out=options.out, format=options.format):
        print(path)


def _report(options: argparse.Namespace):
    from .report import write_report

    print(write_report(options.run_dir, out=options.out))
