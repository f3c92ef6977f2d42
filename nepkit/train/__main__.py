"""``python -m nepkit.train RUN_DIR`` is ``nepkit train RUN_DIR``."""

import sys

from ..cli import main

sys.exit(main(["train", *sys.argv[1:]]))
