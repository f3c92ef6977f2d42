"""The command ``nepkit``: parses and calls, nothing else.

Exit codes: 0 done, 1 internal error, 2 a user's mistake, 3 interrupted and resumable.
"""

from __future__ import annotations

import argparse
import os
import sys
import traceback

from . import __version__
from .errors import UserError

TRAIN_EXAMPLES = """examples:
  nepkit train PbTe                          train in PbTe/, go on after an interruption
  nepkit train PbTe --out run1 generation=5000 batch=4
  nepkit train PbTe --restart                move the old run to PbTe/previous-1, start anew
"""
PREDICT_EXAMPLES = """examples:
  nepkit predict nep.txt test.xyz --out predictions
  nepkit predict nep.txt test.xyz --out predictions --precision float64 --descriptors
"""


def main(arguments: list[str] | None = None) -> int:
    """Run the command with ``arguments`` (default: of the process); returns the exit code."""
    try:
        options = _parser().parse_args(arguments)
        options.call(options)
        return 0
    except UserError as error:
        if os.environ.get("NEPKIT_DEBUG"):
            traceback.print_exc()
        print(f"nepkit: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("nepkit: interrupted", file=sys.stderr)
        return 3
    except BrokenPipeError:  # the reader of our output has gone, as in `nepkit ... | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="nepkit", description="Train NEP4 interatomic potentials and evaluate them."
    )
    parser.add_argument("--version", action="version", version=f"nepkit {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)

    train = _command(commands, "train", "train on a GPUMD run directory", TRAIN_EXAMPLES, _train)
    train.add_argument("run_dir", metavar="RUN_DIR", help="folder with nep.in, train.xyz, maybe test.xyz")
    train.add_argument("--out", metavar="DIR", help="folder for the results (default: RUN_DIR)")
    train.add_argument("--seed", type=int, metavar="N", help="of the initial parameters and the data order (default: 0)")
    train.add_argument("--restart", action="store_true", help="move an old run to previous-N and start anew")
    train.add_argument("--force-mode", default="analytic", choices=("analytic", "autograd"), help="autograd is slower, to check the other")
    train.add_argument("keywords", nargs="*", metavar="key=value", help="keywords of nep.in, in place of its lines")

    predict = _command(commands, "predict", "evaluate a nep.txt on a file of frames", PREDICT_EXAMPLES, _predict)
    predict.add_argument("model", metavar="MODEL", help="nep.txt")
    predict.add_argument("data", metavar="DATA.xyz", help="extended XYZ, also .xyz.gz and .xyz.xz")
    predict.add_argument("--out", metavar="DIR", required=True, help="folder for the results")
    predict.add_argument("--descriptors", action="store_true", help="also write descriptor.out")
    for command in (train, predict):
        command.add_argument("--device", default="auto", metavar="NAME", help="auto, cpu, cuda (also ROCm), cuda:1 (default: auto)")
        command.add_argument("--precision", default="float32", choices=("float32", "float64"))
    return parser


def _command(commands, name: str, summary: str, examples: str, call) -> argparse.ArgumentParser:
    command = commands.add_parser(
        name, help=summary, description=summary[0].upper() + summary[1:] + ".", epilog=examples,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    command.set_defaults(call=call)
    return command


def _train(options: argparse.Namespace):
    from .plot import plot_parity
    from .train import Interrupted, train_nep

    keywords = {}
    for word in options.keywords:
        key, equals, value = word.partition("=")
        if not equals or not key:
            raise UserError(f"{word}: give keywords of nep.in as key=value, such as generation=5000")
        if key in keywords:
            raise UserError(f"{key}: given twice on the command line")
        keywords[key] = value
    if options.seed is not None:
        keywords["seed"] = options.seed
    try:
        train_nep(
            options.run_dir, out=options.out, device=options.device, precision=options.precision,
            force_mode=options.force_mode, restart=options.restart, **keywords,
        )  # fmt: skip
    except Interrupted:
        print("interrupted; the same command goes on from here", file=sys.stderr)
        raise KeyboardInterrupt from None
    plot = plot_parity(options.out or options.run_dir)
    if plot:
        print(f"parity plot: {plot}")


def _predict(options: argparse.Namespace):
    from .predict import predict_dataset
    from .train.outputs import error_table

    predicted = predict_dataset(
        options.model, options.data, out=options.out, device=options.device,
        precision=options.precision, descriptors=options.descriptors,
    )  # fmt: skip
    print(error_table({os.path.basename(options.data): predicted.errors}))


if __name__ == "__main__":
    sys.exit(main())
