"""Commands and their options, as argparse takes them."""

from __future__ import annotations

import argparse
from typing import NoReturn

from . import __version__
from .errors import UserError
from .help_pages import ENDINGS


class _Parser(argparse.ArgumentParser):
    """Mistakes in one line."""

    def error(self, message: str) -> NoReturn:
        raise UserError(f"{message}; see {self.prog} -h")


def build_parser() -> argparse.ArgumentParser:
    """The parser of the command ``nepkit``; ``command`` names what was asked for."""
    parser = _Parser(
        prog="nepkit",
        description="Train NEP4 interatomic potentials and evaluate them.",
        epilog=ENDINGS[""],
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"nepkit {__version__}")
    commands = parser.add_subparsers(
        title="commands", metavar="COMMAND", required=True, dest="command"
    )
    train = _command(commands, "train", "train on a GPUMD run directory")
    add = train.add_argument
    add("run_dir", metavar="RUN_DIR", help="folder with nep.in, train.xyz, perhaps test.xyz")
    add("keywords", nargs="*", metavar="key=value", help="keywords of nep.in, replace its lines")
    add("--out", metavar="DIR", help="folder for the results (default: RUN_DIR)")
    add("--seed", metavar="N", help="of parameters and data order (default: nep.in, 0)")
    add("--restart", action="store_true", help="move the old run to previous-N, start anew")
    add(
        "--force-mode", default="analytic", metavar="MODE", choices=("analytic", "autograd"),
        help="analytic, or autograd: slow, a check (default: analytic)",
    )  # fmt: skip
    add("--profile", metavar="N", help="time N steps: a table, and a trace in profile.json")
    add("--tensorboard", action="store_true", help="also write the folder tensorboard")
    add("--max-time", metavar="T", help="end, to be gone on with, within seconds or HH:MM:SS")
    predict = _command(commands, "predict", "evaluate a nep.txt on a file")
    add = predict.add_argument
    add("model", metavar="MODEL", help="nep.txt")
    add("data", metavar="DATA.xyz", help="extended XYZ, also .xyz.gz and .xyz.xz")
    add("--out", metavar="DIR", required=True, help="folder for the results")
    add("--descriptors", action="store_true", help="also write descriptor.out")
    for command in (train, predict):
        _add_computing(command)
    _add_prepare(commands)
    _add_check(commands)
    _add_info(commands)
    _add_bench(commands)
    _add_plot_and_report(commands)
    return parser


def _add_prepare(commands):
    prepare = _command(commands, "prepare", "make data ready ahead, or choose frames")
    prepare.set_defaults(seed=None)
    add = prepare.add_argument
    add("path", metavar="RUN_DIR or FILE.xyz", help="run directory, or a file to choose from")
    add("keywords", nargs="*", metavar="key=value", help="keywords of nep.in, replace its lines")
    add("--elements", metavar="A,B,...", help="frames made of these elements alone")
    add("--max-frames", metavar="N", help="at most N frames, of all compositions alike")
    add("--out", metavar="PATH", help="FILE.xyz for the frames; folder for a run's results")


def _add_check(commands):
    check = _command(commands, "check", "look for mistakes in a data set")
    add = check.add_argument
    add("path", metavar="RUN_DIR or FILE.xyz", help="folder with nep.in and train.xyz, or a file")
    add("--all", action="store_true", help="show every finding, not a few of each kind")
    add("--max-force", metavar="F", help="eV/Å, larger is serious (default: from the data)")
    add(
        "--write", metavar="FILE.xyz",
        help="copy the training frames without serious and suspicious ones, their text as it is",
    )  # fmt: skip


def _add_info(commands):
    info = _command(commands, "info", "say what a file or folder is")
    info.add_argument("path", metavar="PATH", help="model, checkpoint, data or run directory")


def _add_bench(commands):
    bench = _command(commands, "bench", "measure training steps on this machine")
    bench.set_defaults(seed=None)
    add = bench.add_argument
    add("run_dir", metavar="RUN_DIR", help="folder with nep.in and train.xyz; stays as it is")
    add("keywords", nargs="*", metavar="key=value", help="keywords of nep.in, replace its lines")
    add("--seconds", metavar="S", default="10", help="how long to measure (default: 10)")
    _add_computing(bench)


def _add_plot_and_report(commands):
    plot = _command(commands, "plot", "draw figures of a run")
    plot.add_argument("run_dir", metavar="RUN_DIR", help="folder that a run wrote to")
    plot.add_argument(
        "--format", default="png", metavar="TYPE", choices=("png", "svg", "pdf"),
        help="png, svg or pdf (default: png)",
    )  # fmt: skip
    plot.add_argument("--out", metavar="DIR", help="folder for the figures (default: RUN_DIR)")
    report = _command(commands, "report", "write a web page about a run")
    report.add_argument("run_dir", metavar="RUN_DIR", help="folder that a run wrote to")
    report.add_argument("--out", metavar="FILE", help="(default: RUN_DIR/report.html)")


def _command(commands, name: str, summary: str) -> argparse.ArgumentParser:
    return commands.add_parser(
        name, help=summary, description=f"{summary.capitalize()}.".replace("gpumd", "GPUMD"),
        epilog=ENDINGS[name], formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip


def _add_computing(command: argparse.ArgumentParser):
    command.add_argument(
        "--device", default="auto", metavar="NAME",
        help="auto, cpu, cuda (ROCm too), cuda:1 (default: auto)",
    )  # fmt: skip
    command.add_argument(
        "--precision", default="float32", metavar="TYPE", choices=("float32", "float64"),
        help="float32 or float64 (default: float32)",
    )  # fmt: skip
