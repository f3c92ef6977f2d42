"""ZBL of moving atoms (model/zbl.py defines): plain torch and Triton."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from .moving import Moving, angular_pairs, distances, force_and_virial
from .policy import kernels_on
from .segment import segment_sum


class Repulsion(NamedTuple):
    """ZBL of each pair type (T T,): radii, 1/a, K Z Z and the screening (T T, 8)."""

    inner: Tensor  # Å
    outer: Tensor  # Å
    inverse_length: Tensor  # 1/Å
    strength: Tensor  # eV Å
    screening: Tensor


def repulsions(moving: Moving, zbl: Repulsion, first: int, last: int) -> Tensor:
    """Force (3), virial (3, 3) and energy of the atoms first to last (N', 13).

    Only pairs within the angular cutoff take part.
    """
    if kernels_on(moving.types.device):
        from .triton.moving_repulsion import launch

        return launch(moving, zbl, first, last)
    near = angular_pairs(moving, first, last)
    r, end = distances(near, moving.angular_cutoff)
    inner, outer, scale, strength, screening = (v.index_select(0, near.kind) for v in zbl)
    inside = (r < end) & (r < outer)
    r = torch.where(inside, r, torch.ones_like(r))
    amplitude, rate = screening[:, 0::2], screening[:, 1::2] * scale[:, None]
    waves = amplitude * torch.exp(-rate * r[:, None])
    bare = strength / r * waves.sum(1)
    bare_slope = -strength / r * (rate * waves).sum(1) - bare / r
    beyond = r > inner
    width = torch.where(beyond, outer - inner, torch.ones_like(r))
    angle = torch.where(beyond, math.pi * (r - inner) / width, torch.zeros_like(r))
    cutoff, cutoff_slope = 0.5 * torch.cos(angle) + 0.5, -0.5 * math.pi / width * torch.sin(angle)
    energy = (0.5 * bare * cutoff).masked_fill(~inside, 0.0)
    slope = (0.5 * (bare_slope * cutoff + bare * cutoff_slope)).masked_fill(~inside, 0.0)
    pull = (slope / r)[:, None] * near.vectors
    columns = [force_and_virial(near.vectors, pull, pull), energy[:, None]]
    return segment_sum(torch.cat(columns, dim=1), None, near.start, 8)
