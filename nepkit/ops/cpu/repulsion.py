"""ZBL of one pair for the MD kernels (model/zbl.py defines)."""

from __future__ import annotations

import math

from .jit import inlined


@inlined
def pair_energy(r, pair_type, zbl):
    """Energy, eV, and its derivative, eV/Å, of a pair; 0 from the outer radius on."""
    outer, inner = zbl.outer[pair_type], zbl.inner[pair_type]
    if r >= outer:
        return 0.0, 0.0
    scale, screening = zbl.inverse_length[pair_type], zbl.screening[pair_type]
    phi, phi_slope = 0.0, 0.0
    for k in range(0, 8, 2):
        wave = screening[k] * math.exp(-screening[k + 1] * scale * r)
        phi += wave
        phi_slope -= screening[k + 1] * scale * wave
    strength = zbl.strength[pair_type] / r
    energy, slope = strength * phi, strength * (phi_slope - phi / r)
    if r > inner:
        width = outer - inner
        angle = math.pi * (r - inner) / width
        cutoff, rate = 0.5 * math.cos(angle) + 0.5, -0.5 * math.pi / width * math.sin(angle)
        energy, slope = energy * cutoff, slope * cutoff + energy * rate
    return energy, slope
