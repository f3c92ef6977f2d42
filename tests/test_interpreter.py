"""Triton's kernels in Triton's interpreter: interpreted_kernels.py."""

import os
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.parametrize("which", ["not slow", pytest.param("slow", marks=pytest.mark.slow)])
def test_kernels_in_the_interpreter(which):
    """In a process of its own, as triton looks at the environment when it is imported."""
    pytest.importorskip("triton", reason="the kernels need triton")
    file = Path(__file__).with_name("interpreted_kernels.py")
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-x", "-m", which, "--durations=5", str(file)],
        cwd=file.parents[1],
        env={**os.environ, "TRITON_INTERPRET": "1"},
        check=False,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert run.returncode == 0, run.stdout + run.stderr
