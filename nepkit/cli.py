"""The command ``nepkit``: parses and calls, nothing else.

Exit codes: 0 done, 1 internal error, 2 a user's mistake, 3 interrupted and resumable.
"""

from __future__ import annotations

import argparse
import os
import sys
import traceback
from typing import NoReturn

from . import __version__
from .errors import UserError
from .help_pages import ENDINGS

# Arguments of train_nep that are no keywords of nep.in.
OPTIONS = ("run_dir", "out", "device", "precision", "force_mode", "restart", "profile")


def main(arguments: list[str] | None = None) -> int:
    """Run the command with ``arguments`` (default: of the process); returns the exit code."""
    for stream in (sys.stdout, sys.stderr):
        # A terminal that cannot show Å gets a question mark instead of an error.
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")
    try:
        options = _parse(sys.argv[1:] if arguments is None else arguments)
        options.call(options)
        if sys.stdout is not None:
            sys.stdout.flush()
        return 0
    except UserError as error:
        if os.environ.get("NEPKIT_DEBUG"):
            traceback.print_exc()
        print(f"nepkit: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt as error:
        print(
            f"nepkit: {str(error) or 'interrupted; give the same command again'}", file=sys.stderr
        )
        return 3
    except BrokenPipeError:  # the reader of our output has gone, as in `nepkit ... | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 3
    except Exception:  # noqa: BLE001 - a bug of ours, whatever it is
        traceback.print_exc()
        print("nepkit: this is an error of nepkit itself, please report it", file=sys.stderr)
        return 1


class _Parser(argparse.ArgumentParser):
    """Mistakes in one line."""

    def error(self, message: str) -> NoReturn:
        raise UserError(f"{message}; see {self.prog} -h")


def _parse(arguments: list[str]) -> argparse.Namespace:
    parser = _parser()
    options, others = parser.parse_known_args(arguments)
    # argparse takes key=value only where it follows RUN_DIR at once.
    if others and (
        any(word.startswith("-") for word in others) or not hasattr(options, "keywords")
    ):
        raise UserError(f"{others[0]}: unknown; see nepkit {options.command} -h")
    if others:
        options.keywords += others
    return options


def _parser() -> argparse.ArgumentParser:
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
    train.set_defaults(call=_train)
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
    predict = _command(commands, "predict", "evaluate a nep.txt on a file")
    predict.set_defaults(call=_predict)
    add = predict.add_argument
    add("model", metavar="MODEL", help="nep.txt")
    add("data", metavar="DATA.xyz", help="extended XYZ, also .xyz.gz and .xyz.xz")
    add("--out", metavar="DIR", required=True, help="folder for the results")
    add("--descriptors", action="store_true", help="also write descriptor.out")
    for command in (train, predict):
        _add_computing(command)
    _add_check(commands)
    _add_info(commands)
    return parser


def _add_check(commands):
    check = _command(commands, "check", "look for mistakes in a data set")
    check.set_defaults(call=_check)
    add = check.add_argument
    add("path", metavar="RUN_DIR or FILE.xyz", help="folder with nep.in and train.xyz, or a file")
    add("--all", action="store_true", help="show every finding, not a few of each kind")
    add("--max-force", metavar="F", help="eV/Å, larger is serious (default: from the data)")
    add(
        "--write", metavar="FILE.xyz",
        help="copy the training frames that have no serious finding, their text as it is",
    )  # fmt: skip


def _add_info(commands):
    info = _command(commands, "info", "say what a file or folder is")
    info.set_defaults(call=_info)
    info.add_argument("path", metavar="PATH", help="model, checkpoint, data or run directory")


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


def _train(options: argparse.Namespace):
    from .plot import plot_parity
    from .train import Interrupted, train_nep
    from .train.signals import RaiseKeyboardInterrupt

    keywords = _keywords(options)
    with RaiseKeyboardInterrupt():
        try:
            train_nep(
                options.run_dir, out=options.out, device=options.device,
                precision=options.precision, force_mode=options.force_mode,
                restart=options.restart, profile=options.profile, **keywords,
            )  # fmt: skip
        except Interrupted:
            without = " without --restart" if options.restart else ""
            message = f"interrupted; the same command{without} goes on from here"
            raise KeyboardInterrupt(message) from None
        plot = plot_parity(options.out or options.run_dir)
    if plot:
        print(f"parity plot: {plot}")


def _keywords(options: argparse.Namespace) -> dict[str, str]:
    """The keywords of nep.in that the command line gives."""
    words = list(options.keywords)
    if options.seed is not None:
        words.append(f"seed={options.seed}")
    keywords = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not equals or not key:
            raise UserError(f"{word}: give keywords of nep.in as key=value, as in generation=5000")
        if key in OPTIONS:
            raise UserError(f"{word}: not a keyword of nep.in; see nepkit train -h")
        if key in keywords:
            raise UserError(f"{key}: given twice on the command line")
        keywords[key] = value
    return keywords


def _predict(options: argparse.Namespace):
    from .predict import predict_dataset
    from .train.outputs import error_table
    from .train.signals import RaiseKeyboardInterrupt

    with RaiseKeyboardInterrupt():
        predicted = predict_dataset(
            options.model, options.data, out=options.out, device=options.device,
            precision=options.precision, descriptors=options.descriptors,
        )  # fmt: skip
    print(error_table({os.path.basename(options.data): predicted.errors}))


def _check(options: argparse.Namespace):
    from .doctor import check_data, write_clean
    from .train.signals import RaiseKeyboardInterrupt

    limit = None if options.max_force is None else _positive("--max-force", options.max_force)
    with RaiseKeyboardInterrupt():
        checked = check_data(options.path, max_force=limit)
        print(checked.text(options.all))
        if options.write:
            print(f"written: {write_clean(checked, options.write)}")


def _info(options: argparse.Namespace):
    from .info import describe

    print(describe(options.path))


def _positive(name: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise UserError(f"{name} {text}: give a number above 0")
    return value


if __name__ == "__main__":
    sys.exit(main())
