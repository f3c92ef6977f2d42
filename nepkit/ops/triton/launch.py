"""Launch values of the kernels: launch.json, by architecture, with a default that launches anywhere.

scripts/tune_kernels.py finds those of the GPU at hand and writes them there.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

import torch
import triton

PATH = Path(__file__).with_name("launch.json")
# By the name that torch gives: gfx90a, gfx942, ... or sm_90; then by kernel.
TABLE: dict[str, dict[str, dict[str, int]]] = json.loads(PATH.read_text(encoding="utf-8"))


@cache
def architecture() -> str:
    """The GPU at hand, as TABLE names it; nothing without one."""
    if not torch.cuda.is_available():
        return ""
    properties = torch.cuda.get_device_properties(torch.cuda.current_device())
    if torch.version.hip:
        return properties.gcnArchName.split(":")[0]
    return f"sm_{properties.major}{properties.minor}"


def options(kernel: str) -> dict[str, int]:
    """Block sizes and warps of ``kernel`` on the GPU at hand."""
    chosen = TABLE.get(architecture(), {}).get(kernel, TABLE["default"][kernel])
    # Given, as Triton's default is about to change.
    return {"enable_fp_fusion": True, **chosen}


def of_width(kernel: str, components: int, bytes_each: int) -> str:
    """The entry of ``kernel`` in the table for so many components of a pair at once."""
    return f"{kernel}_wide" if components * bytes_each > 32 * 4 else kernel


def padded(size: int) -> int:
    """A power of two that holds ``size``."""
    return triton.next_power_of_2(size)
