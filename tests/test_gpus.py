"""Two GPUs train as one does, with sums inside and between the captured graphs."""

import pytest
import torch
from shares import odd_run, processes
from test_sharded import assert_same_but_for_sums, write

from nepkit import train_nep

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(torch.cuda.device_count() < 2, reason="no two GPUs"),
]

PROGRAM = """
import sys
from pathlib import Path
from nepkit import train_nep_sharded
from nepkit.train.graph import forced_sums

for name, inside in (("inside", True), ("between", False)):
    with forced_sums(inside):
        train_nep_sharded(Path(sys.argv[1]) / name, precision="float64")
"""


def test_two_gpus_train_as_one(tmp_path):
    alone, inside, between = (odd_run(tmp_path / name) for name in ("alone", "inside", "between"))
    train_nep(alone, device="cuda", precision="float64")
    processes(2, write(tmp_path / "program.py", PROGRAM), tmp_path)
    assert_same_but_for_sums(alone, inside)
    assert_same_but_for_sums(alone, between)
