"""What a compiled kernel's instructions say: their classes, products that lanes round differently, and
the least time that kernels over pairs can take on GPUs that need not be there."""

from __future__ import annotations

import re
from collections import Counter
from typing import NamedTuple

# In this order: the first that an instruction's name begins with.
CLASSES = {
    "matrix": "v_mfma|v_smfmac|v_wmma",
    "transcendental": "v_(exp|log|rcp|rsq|sqrt|sin|cos)_",
    "vector": "v_",
    "memory": "global_|buffer_|flat_|scratch_",
    "LDS": "ds_",
    "scalar": "s_",
}
WAVE = 64  # lanes


class Chip(NamedTuple):
    """A GPU of AMD's CDNA, after its data sheet."""

    name: str
    compute_units: int
    clock: float  # MHz, the highest


CHIPS = {"gfx90a": Chip("MI250X, one GCD", 110, 1700), "gfx942": Chip("MI300X", 304, 2100)}
# Cycles for which an instruction of a wave occupies its part of a compute unit. Each of the four SIMDs
# takes 16 lanes a cycle and a quarter of that for transcendental functions; memory takes the addresses
# of 16 lanes a cycle for all four, LDS 32 numbers; there is one scalar unit. An fp32 or fp64 product of
# 16 x 16 x 4 takes a SIMD 32 cycles.
CYCLES = {
    "vector": {"vector": 1, "transcendental": 4},
    "matrix": {"matrix": 8},
    "memory": {"memory": 4},
    "LDS": {"LDS": 2},
    "scalar": {"scalar": 1},
}

# What hands a lane the number of another, what copies it, and additions that are fused with a product.
SENT = re.compile(r"shfl|v_mov_b(32|64)_dpp|ds_bpermute|ds_swizzle|v_permlane")
COPIED = re.compile(r"mov|cvt|shl|or\.b|selp|v_mov_b|v_dual_mov|v_(dual_)?cndmask")
FUSED = re.compile(r"fma\.|v_(pk_|dual_)?fma(mk)?_|v_(pk_|dual_)?fmac_|v_mad_f|v_mac_f")
NOTHING_SET = re.compile(r"st\.|ds_write|ds_store|(global|buffer|flat|scratch)_store")
PREDICATE = re.compile(r"^\s*@!?%\w+")
REGISTER = re.compile(r"%\w+|\bv\d+|\bv\[\d+:\d+\]")


def _registers(operand: str) -> set[str]:
    found = set()
    for name in REGISTER.findall(operand):
        if ":" in name:
            first, last = map(int, name[2:-1].split(":"))
            found |= {f"v{number}" for number in range(first, last + 1)}
        else:
            found.add(name)
    return found


def lanes_may_differ(text: str) -> bool:
    """Whether a product is fused with what another lane sent: see ops/triton/sums.py.

    ``text``: PTX, or AMD's assembler. Followed from line to line, as sums of lanes have no branches.
    """
    sent: set[str] = set()
    for line in text.splitlines():
        for instruction in PREDICATE.sub("", line.split(";")[0]).split("::"):
            name, *rest = instruction.split(maxsplit=1) or [""]
            # A group in braces is one operand.
            parts = re.findall(r"\{[^}]*\}|[^,]+", "".join(rest))
            operands = [_registers(x) for x in parts] or [set()]
            if not operands[0] or NOTHING_SET.match(name):
                continue
            if FUSED.match(name):
                addend = operands[0] if re.search("fmac|_mac", name) else operands[3]
                if addend & sent:
                    return True
            from_others = COPIED.match(name) and sent & set().union(*operands[1:])
            if "_swap" in name:
                sent |= operands[0] | operands[1]
            elif SENT.match(name) or from_others:
                sent |= operands[0]
            else:
                sent -= operands[0]
    return False


def _class(line: str) -> str | None:
    name = line.strip()
    return next((key for key, names in CLASSES.items() if re.match(names, name)), None)


def count(lines: list[str]) -> Counter[str]:
    """Instructions of AMD's assembler by class."""
    return Counter(filter(None, map(_class, lines)))


def loops(text: str) -> list[list[str]]:
    """The lines of each outermost loop of AMD's assembler, in order; all lines where there is none."""
    lines = text.splitlines()
    labels = {line.split(":")[0]: n for n, line in enumerate(lines) if re.match(r"\.LBB\w+:", line)}
    spans: list[list[int]] = []
    for n, line in enumerate(lines):
        target = re.match(r"\s+s_c?branch\w*\s+(\.LBB\w+)", line)
        if target and (first := labels[target[1]]) < n:
            spans = [span for span in spans if span[0] < first]  # those inside
            if spans and spans[-1][1] > first:
                first = spans.pop()[0]
            spans.append([first, n])
    return [lines[first : last + 1] for first, last in spans] or [lines]


def least_cycles(counts: Counter[str] | dict[str, float]) -> float:
    """Of a compute unit, if everything else happens meanwhile."""
    return max(
        sum(counts.get(name, 0) * cycles for name, cycles in part.items())
        for part in CYCLES.values()
    )
