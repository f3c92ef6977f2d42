"""Every kernel compiled for GPUs that need not be there: registers, spills, scratch, atomics.

``python -m pytest tests/test_triton_amd.py -s`` shows a table; -m slow adds other GPUs, large models and float64.
"""

import importlib
import pkgutil
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("triton", reason="kernels are compiled by triton")
import triton
import triton.language as tl

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "scripts"))

from amd_instructions import CHIPS, CLASSES, count, lanes_may_differ, least_cycles, loops
from amd_report import CASES as BENCHMARKS
from amd_report import MODELS, TARGETS, instructions, kernels, report
from shares import environment
from triton.backends import backends
from triton.compiler import ASTSource
from triton.runtime import JITFunction

import nepkit.ops.triton
from nepkit.ops.triton.sums import of_products

MOST = "gfx90a", "gfx942", "sm_90"
CASES = [
    pytest.param(
        target, model, dtype,
        marks=[] if (model, dtype, target in MOST) == ("ordinary", "fp32", True) else [pytest.mark.slow],
    )
    for dtype in ("fp32", "fp64")
    for model in MODELS
    for target in TARGETS
]  # fmt: skip


@pytest.mark.parametrize(("target", "model", "dtype"), CASES)
def test_kernels_fit(target, model, dtype):
    skip_unless_compiled(target)
    table, wrong = report(target, model, dtype)
    print(f"\n{table}")
    assert not wrong
    assert ("prediction" in table) == (target in CHIPS)
    if target in CHIPS:
        word, *times = table.splitlines()[-1].split()
        assert word == "together" and len(times) == len(BENCHMARKS) and min(map(float, times)) > 0


def skip_unless_compiled(target):
    maker = {"hip": "amd", "cuda": "nvidia"}[TARGETS[target].backend]
    if maker not in backends:
        pytest.skip(f"this triton compiles nothing for {maker}")


@triton.jit
def sum_kernel(x, y, out, ROUNDED: tl.constexpr):
    row, column = tl.arange(0, 16), tl.arange(0, 32)
    at = row[:, None] * 32 + column[None, :]
    a, b = tl.load(x + at), tl.load(y + at)
    if ROUNDED:
        total = of_products(a, b, 1)
    else:
        total = tl.sum(a * b, 1)
    tl.store(out + row, total)


@pytest.mark.parametrize("dtype", ["fp32", "fp64"])
@pytest.mark.parametrize("target", TARGETS)
def test_lanes_agree_on_sums_of_products(target, dtype):
    """A compiler fuses the product of one lane with the sum of another, unless it may not."""
    skip_unless_compiled(target)
    for rounded in (False, True):
        signature = dict.fromkeys(("x", "y", "out"), f"*{dtype}") | {"ROUNDED": "constexpr"}
        source = ASTSource(sum_kernel, signature, {"ROUNDED": rounded})
        options = {"num_warps": 8, "enable_fp_fusion": True}
        result = triton.compile(source, target=TARGETS[target], options=options)
        assert lanes_may_differ(instructions(result)) == (not rounded)


@pytest.mark.parametrize(
    "text",
    [
        "shfl.sync.bfly.b32 %r2, %r1, 8, 31, -1;\n@%p1 fma.rn.f32 %r3, %r4, %r5, %r2;",
        "shfl.sync.bfly.b32 %r2, %r1, 8, 31, -1;\nselp.b32 %r6, %r2, %r1, %p1;\n"
        "fma.rn.f32 %r3, %r4, %r5, %r6;",
        "shfl.sync.bfly.b32 %r2, %r1, 8, 31, -1;\nmov.b64 %rd1, {%r7, %r2};\n"
        "mov.b64 {%r4, %r5}, %rd1;\nfma.rn.f32 %r3, %r8, %r9, %r5;",
        "v_mov_b32_dpp v2, v1 row_ror:8\nds_write_b32 v2, v7\nv_fmamk_f32 v3, v4, 0x3ebd70a4, v2",
        "v_permlane16_swap_b32 v7, v8\nv_cndmask_b32_e32 v6, v7, v8, vcc\nv_fmac_f32_e32 v6, v3, v2",
        "v_permlane32_swap_b32 v7, v8\nv_pk_fma_f32 v[0:1], v[2:3], v[4:5], v[8:9]",
    ],
)
def test_what_lanes_send_is_followed(text):
    assert lanes_may_differ(text)
    sent, *others = text.splitlines()
    assert not lanes_may_differ("\n".join(others))
    *before, fused = text.splitlines()
    product = re.sub("fm[a-z]*", "mul", fused)
    assert not lanes_may_differ("\n".join([*before, product]))


LOOPS = """
\tv_mov_b32_e32 v1, 0
.LBB0_1:                                ; outer
\tglobal_load_dword v2, v[0:1], off
.LBB0_2:
\tv_fma_f32 v1, v2, v2, v1
\tv_rsq_f32_e32 v3, v1
\ts_cbranch_scc1 .LBB0_2
\ts_cbranch_vccnz .LBB0_1
\ts_cbranch_scc0 .LBB0_4
.LBB0_3:
\tds_read_b32 v4, v5
\tv_mfma_f32_16x16x4f32 a[0:3], v1, v2, a[0:3]
\ts_branch .LBB0_3
.LBB0_4:
\ts_endpgm
"""


def test_loops_and_classes_of_instructions():
    first, second = (count(body) for body in loops(LOOPS))
    assert first == {"memory": 1, "vector": 1, "transcendental": 1, "scalar": 2}
    assert second == {"LDS": 1, "matrix": 1, "scalar": 1}
    assert set(first) | set(second) == set(CLASSES)
    assert least_cycles(first) == 5 and least_cycles(second) == 8
    straight = [line for line in LOOPS.splitlines() if "branch" not in line]
    assert loops("\n".join(straight)) == [straight]


def test_without_triton_it_is_asked_for():
    script = Path(nepkit.__file__).parents[1] / "scripts" / "amd_report.py"
    program = (
        "import runpy, sys; sys.modules['triton'] = None\n"
        f"sys.argv = ['amd_report.py']; runpy.run_path({str(script)!r}, run_name='__main__')"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=environment(), check=False, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 1 and done.stderr.count("\n") == 1
    assert done.stderr.endswith("pip install triton\n")


def test_every_kernel_is_compiled():
    known = {kernel.function for kernel in kernels(MODELS["ordinary"]).values()}
    package = nepkit.ops.triton
    for module in pkgutil.iter_modules(package.__path__):
        names = vars(importlib.import_module(f"{package.__name__}.{module.name}"))
        for name, value in names.items():
            if isinstance(value, JITFunction) and name.endswith("_kernel"):
                assert value in known, f"{module.name}.{name} is missing from amd_report"
