"""Launch values of the kernels: one table by architecture, with a default that launches anywhere."""

from __future__ import annotations

from functools import cache

import torch
import triton

DEFAULT = {
    "radial_forces": {"ROWS": 4, "PLACES": 8, "num_warps": 4},
    "angular_forces": {"num_warps": 1},
    "atom_sums": {"ATOMS": 4, "PLACES": 32, "num_warps": 4},
    "radial_tangents": {"ROWS": 4, "PLACES": 8, "num_warps": 4},
    "angular_tangents": {"num_warps": 1},
    "contraction": {"num_warps": 1},
    "expansion": {"num_warps": 1},
    "coefficient_products": {"INNER": 32, "num_warps": 4, "num_stages": 2},
    "invariants": {"ITEMS": 16, "num_warps": 4},
    "invariant_slopes": {"ITEMS": 8, "num_warps": 4},
    "layers": {"HB": 32, "AB": 32, "num_warps": 4, "num_stages": 1},
}
# By the name that torch gives: gfx90a, gfx942, ... or sm_90.
# A wave does a product of 16 by 16 with matrix instructions; elsewhere it takes many registers.
_CDNA = {
    "coefficient_products": {"INNER": 32, "num_warps": 1, "num_stages": 1},
    "layers": {"HB": 32, "AB": 32, "num_warps": 2, "num_stages": 1},
}
TABLE: dict[str, dict[str, dict[str, int]]] = {
    "gfx90a": _CDNA, "gfx942": _CDNA, "gfx950": _CDNA,
}  # fmt: skip


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
    chosen = TABLE.get(architecture(), {}).get(kernel, DEFAULT[kernel])
    # Given, as Triton's default is about to change.
    return {"enable_fp_fusion": True, **chosen}


def padded(size: int) -> int:
    """A power of two that holds ``size``."""
    return triton.next_power_of_2(size)
