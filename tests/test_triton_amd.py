"""Every kernel compiled for GPUs that need not be there: registers, spills, scratch, atomics.

``python -m pytest tests/test_triton_amd.py -s`` shows a table; -m slow adds large models and float64.
"""

import importlib
import pkgutil
import sys
from pathlib import Path

import pytest

pytest.importorskip("triton", reason="kernels are compiled by triton")
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "scripts"))

from amd_report import MODELS, TARGETS, kernels, report
from triton.backends import backends
from triton.runtime import JITFunction

import nepkit.ops.triton

CASES = [
    pytest.param(
        target, model, dtype,
        marks=[] if (model, dtype) == ("ordinary", "fp32") else [pytest.mark.slow],
    )
    for dtype in ("fp32", "fp64")
    for model in MODELS
    for target in TARGETS
]  # fmt: skip


@pytest.mark.parametrize(("target", "model", "dtype"), CASES)
def test_kernels_fit(target, model, dtype):
    maker = {"hip": "amd", "cuda": "nvidia"}[TARGETS[target].backend]
    if maker not in backends:
        pytest.skip(f"this triton compiles nothing for {maker}")
    table, wrong = report(target, model, dtype)
    print(f"\n{table}")
    assert not wrong


def test_every_kernel_is_compiled():
    known = {kernel.function for kernel in kernels(MODELS["ordinary"]).values()}
    package = nepkit.ops.triton
    for module in pkgutil.iter_modules(package.__path__):
        names = vars(importlib.import_module(f"{package.__name__}.{module.name}"))
        for name, value in names.items():
            if isinstance(value, JITFunction) and name.endswith("_kernel"):
                assert value in known, f"{module.name}.{name} is missing from amd_report"
