"""Kineto traces of ``nepkit train RUN_DIR --profile N``, read again.

python -m nepkit.profile RUN_DIR/profile.json
"""

from __future__ import annotations

import sys

from .errors import UserError
from .train.profiling import stage_table


def main(arguments: list[str]) -> int:
    """Print the table of stages of a trace; returns the exit code of nepkit's commands."""
    try:
        if len(arguments) != 1:
            raise UserError("give one file, the profile.json of a run")
        print(stage_table(arguments[0]))
    except UserError as error:
        print(f"nepkit: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
