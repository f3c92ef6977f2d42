"""The command ``nepkit``: parses and calls, nothing else.

Exit codes: 0 done, 1 internal error, 2 a user's mistake, 3 interrupted and resumable.
"""

from __future__ import annotations

import argparse
import os
import shlex
import sys
import traceback

from .cli_look import plot, report
from .errors import UserError
from .parser import build_parser

# Arguments of train_nep that are no keywords of nep.in.
OPTIONS = (
    "run_dir", "out", "seconds", "device", "precision", "force_mode", "restart", "profile",
    "tensorboard", "max_time",
)  # fmt: skip


def main(arguments: list[str] | None = None) -> int:
    """Run the command with ``arguments`` (default: of the process); returns the exit code."""
    for stream in (sys.stdout, sys.stderr):
        # A terminal that cannot show Å gets a question mark instead of an error.
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")
    try:
        options = _parse(sys.argv[1:] if arguments is None else arguments)
        CALLS[options.command](options)
        if sys.stdout is not None:
            sys.stdout.flush()
        return 0
    except UserError as error:
        if os.environ.get("NEPKIT_DEBUG"):
            traceback.print_exc()
        if error.told is False:
            print(f"nepkit: {error}", file=sys.stderr)
        elif error.told is None:
            _say(str(error))
        return 2
    except KeyboardInterrupt as error:
        _say(str(error) or "interrupted; give the same command again")
        return 3
    except BrokenPipeError:  # the reader of our output has gone, as in `nepkit ... | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 3
    except Exception as error:  # noqa: BLE001 - a bug of ours, whatever it is
        if type(error).__name__ == "LostContact":
            _say("another process of this run has ended; the same command goes on", late=True)
        elif _speaks(repr(error)):
            traceback.print_exc()
            _say("this is an error of nepkit itself, please report it")
        return 1


def _say(text: str, late: bool = False):
    """Print a last word; ``late``: unless another process has had one."""
    if _speaks(text, late):
        print(f"nepkit: {text}", file=sys.stderr, flush=True)


def _speaks(text: str, late: bool = False) -> bool:
    """Whether of several processes this one says ``text``."""
    if not {"RANK", "SLURM_PROCID"} & os.environ.keys():
        return True
    from .train import world

    first = world.says("a last word")
    return first if late else world.says(text)


def _parse(arguments: list[str]) -> argparse.Namespace:
    parser = build_parser()
    options, others = parser.parse_known_args(arguments)
    options.words = arguments
    # argparse takes key=value only where it follows RUN_DIR at once.
    if others and (
        any(word.startswith("-") for word in others) or not hasattr(options, "keywords")
    ):
        raise UserError(f"{others[0]}: unknown; see nepkit {options.command} -h")
    if others:
        options.keywords += others
    return options


def _train(options: argparse.Namespace):
    from .plot import plot_parity
    from .train import Interrupted, train_nep, train_nep_sharded
    from .train.place import place
    from .train.signals import RaiseKeyboardInterrupt

    keywords, here = _keywords(options), place()
    if options.finetune is not None:
        if "fine_tune" in keywords:
            raise UserError("fine_tune: given twice, as --finetune and as a keyword")
        # nep.in names it from the run directory, the command line from where one is.
        keywords["fine_tune"] = [os.path.relpath(options.finetune, options.run_dir)]
    with RaiseKeyboardInterrupt() as signals:
        try:
            (train_nep if here is None else train_nep_sharded)(
                options.run_dir, out=options.out, device=options.device,
                precision=options.precision, force_mode=options.force_mode,
                restart=options.restart, profile=options.profile,
                tensorboard=options.tensorboard, max_time=options.max_time, **keywords,
            )  # fmt: skip
        except Interrupted:
            if here is not None:
                signals.ignore()
            message = f"interrupted; to go on from here: {_going_on(options.words)}"
            raise KeyboardInterrupt(message) from None
        first = here is None or here.rank == 0
        plot = first and plot_parity(options.out or options.run_dir)
    if plot:
        print(f"parity plot: {plot}")


def _going_on(words: list[str]) -> str:
    """The command that goes on with the run that ``words`` began."""
    # argparse takes --restart in shorter forms too.
    kept = [word for word in words if len(word) < 3 or not "--restart".startswith(word)]
    return shlex.join(["nepkit", *kept])


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
            raise UserError(f"{word}: not a keyword of nep.in; see nepkit {options.command} -h")
        if key in keywords:
            raise UserError(f"{key}: given twice on the command line")
        keywords[key] = value
    return keywords


def _predict(options: argparse.Namespace):
    from .predict import predict_dataset, predict_dataset_sharded
    from .train.place import place
    from .train.prediction import print_errors
    from .train.signals import RaiseKeyboardInterrupt

    here = place()
    with RaiseKeyboardInterrupt():
        predicted = (predict_dataset if here is None else predict_dataset_sharded)(
            options.model, options.data, out=options.out, device=options.device,
            precision=options.precision, descriptors=options.descriptors,
        )  # fmt: skip
    if here is None or here.rank == 0:
        print_errors(predicted)


def _check(options: argparse.Namespace):
    from .doctor import check_data, write_clean
    from .train.signals import RaiseKeyboardInterrupt

    limit = None if options.max_force is None else _positive("--max-force", options.max_force)
    with RaiseKeyboardInterrupt():
        checked = check_data(options.path, max_force=limit)
        print(checked.text(options.all))
        if options.write:
            print(f"written: {write_clean(checked, options.write)}")


def _prepare(options: argparse.Namespace):
    from .prepare import prepare_run, write_subset
    from .train.signals import RaiseKeyboardInterrupt

    keywords, subset = _keywords(options), options.elements or options.max_frames
    with RaiseKeyboardInterrupt():
        if os.path.isdir(options.path):
            if subset:
                raise UserError(f"{options.path}: frames are chosen from a file, not from a folder")
            prepare_run(options.path, out=options.out, **keywords)
            return
        if not (subset and options.out):
            raise UserError(
                f"{options.path}: give a run directory, or --elements or --max-frames to choose "
                "frames, and --out FILE.xyz for them"
            )
        most = None
        if options.max_frames is not None:
            most = int(_positive("--max-frames", options.max_frames))
        names = options.elements.replace(",", " ").split() if options.elements else None
        print(write_subset(options.path, options.out, elements=names, max_frames=most).text())


def _info(options: argparse.Namespace):
    from .info import describe

    print(describe(options.path))


def _bench(options: argparse.Namespace):
    from .bench import bench
    from .train.signals import RaiseKeyboardInterrupt

    keywords, seconds = _keywords(options), _positive("--seconds", options.seconds)
    with RaiseKeyboardInterrupt():
        measured = bench(
            options.run_dir, seconds=seconds, device=options.device, precision=options.precision,
            **keywords,
        )  # fmt: skip
    print(measured.text(options.run_dir))


def _positive(name: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise UserError(f"{name} {text}: give a number above 0")
    return value


CALLS = {
    "train": _train, "predict": _predict, "prepare": _prepare, "check": _check, "info": _info, "bench": _bench,
    "plot": plot, "report": report,
}  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
