"""Every kernel compiled for GPUs that need not be there: registers, spills, scratch, atomics.

``python -m pytest tests/test_triton_amd.py -s`` shows a table; -m slow adds large models and float64.
"""

import importlib
import pkgutil
import re

import pytest

pytest.importorskip("triton", reason="kernels are compiled by triton")

from amd_kernels import MODELS, TARGETS, compiled, kernels, resources
from triton.backends import backends
from triton.runtime import JITFunction

import nepkit.ops.triton

LDS = 64 * 1024
LANES = 1024  # of a workgroup
ATOMIC = re.compile(r"cmpswap|atomic_(pk_)?add_f|\batom\.|\bred\.")
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
    lines, faults = [], []
    for name, kernel in kernels(MODELS[model]).items():
        result, num_warps = compiled(kernel, target, dtype)
        found, text = resources(result), assembly(result)
        lines.append(f"{name:24}{num_warps:4}" + "".join(f"{n:13}" for n in found.values()))
        wrong = [key for key in ("VGPR spills", "SGPR spills", "scratch") if found[key]]
        if ATOMIC.search(text):
            wrong.append("atomics")
        if found["LDS"] > LDS:
            wrong.append("LDS")
        if num_warps * 64 > LANES:
            wrong.append("too many warps")
        if dtype == "fp32" and re.search(r"_f64|\.f64", text):
            wrong.append("float64")
        if "tf32" in text:
            wrong.append("TF32")
        faults += [f"{name}: {what}" for what in wrong]
    print(f"\n{target}, {model} model, {dtype}")
    print(f"{'kernel':24}warps" + "".join(f"{key:>13}" for key in found))
    print("\n".join(lines))
    assert not faults


def assembly(result) -> str:
    """The instructions of a compiled kernel."""
    text = result.asm.get("amdgcn") or result.asm["ptx"]
    # A function that is only declared, for assertions, is no instruction.
    return "\n".join(line for line in text.splitlines() if not line.startswith((".extern", "//")))


def test_every_kernel_is_compiled():
    known = {kernel.function for kernel in kernels(MODELS["ordinary"]).values()}
    package = nepkit.ops.triton
    for module in pkgutil.iter_modules(package.__path__):
        names = vars(importlib.import_module(f"{package.__name__}.{module.name}"))
        for name, value in names.items():
            if isinstance(value, JITFunction) and name.endswith("_kernel"):
                assert value in known, f"{module.name}.{name} is missing from amd_kernels"
