"""Neighbour lists with a skin on a device, of structures side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from ase.geometry import complete_cell
from torch import Tensor

from ..config import ModelSettings
from ..data.cell_list import all_images, near_pairs
from ..data.frame import Frame
from ..data.neighbors import CLOSEST, pair_cutoffs, refuse_crowd, too_close
from ..ops.listed import Neighborhood, turned_places
from .skin import SkinRule, into_cell


@dataclass(frozen=True, eq=False)
class DeviceList(SkinRule):
    """The pairs of a structure within the cutoffs and a skin, on a device."""

    radial: Neighborhood
    angular: Neighborhood
    turned: Tensor  # (P,) int32 place of each radial pair as its neighbour has it

    @staticmethod
    def of(frame: Frame, types: Tensor, settings: ModelSettings, skin: float) -> DeviceList:
        """Find the pairs of ``frame`` with atom ``types`` (N,) on their device.

        Raises UserError as ``data.neighbors.search`` does.
        """
        device, n_atoms = types.device, len(frame)
        cutoffs = [pair_cutoffs(c) for c in (settings.radial_cutoff, settings.angular_cutoff)]
        cutoff = float(cutoffs[0].max())
        refuse_crowd(frame, cutoff + skin)
        wrapped, inside = into_cell(frame)
        cell = complete_cell(frame.cell * frame.pbc[:, None])
        images = all_images(cell, frame.pbc, cutoff + skin)
        parts: tuple[list, list] = ([], [])
        if n_atoms:
            positions = torch.as_tensor(inside.positions, device=device)
            squares = [torch.as_tensor((c + skin).ravel() ** 2, device=device) for c in cutoffs]
            for pairs in near_pairs(positions, cell, frame.pbc, images, cutoff + skin):
                _refuse_close(frame, pairs)
                kind = types.index_select(0, pairs.center) * len(cutoffs[0])
                kind = kind + types.index_select(0, pairs.neighbor)
                for part, square in zip(parts, squares):
                    keep = (pairs.square < square.index_select(0, kind)).nonzero().squeeze(1)
                    part.append([v.index_select(0, keep) for v in pairs[:3]])
        radial, angular = (_neighborhood(part, n_atoms, device) for part in parts)
        turned, images = turned_places(radial, len(images)), images.astype(np.float64)
        rule = frame, cutoff + skin, cutoff, images, wrapped
        return DeviceList(*rule, radial, angular, turned)


def _neighborhood(parts: list[list[Tensor]], n_atoms: int, device: torch.device) -> Neighborhood:
    none = torch.zeros(0, dtype=torch.int64, device=device)
    center, neighbor, shift = (torch.cat([none, *column]) for column in zip(*parts or [[none] * 3]))
    atoms = torch.arange(n_atoms + 1, device=device)
    return Neighborhood(torch.searchsorted(center, atoms), neighbor.int(), shift.int())


def _refuse_close(frame: Frame, pairs):
    if len(pairs.square) and float(pairs.square.min()) < CLOSEST**2:
        place = int(pairs.square.argmin())
        distance = float(pairs.square[place]) ** 0.5
        raise too_close(frame, int(pairs.center[place]), int(pairs.neighbor[place]), distance)


def joined(lists: Sequence[DeviceList]) -> tuple[Neighborhood, Neighborhood, Tensor]:
    """Radial and angular pairs of structures side by side, atoms, images and places counted through."""
    if len(lists) == 1:
        return lists[0].radial, lists[0].angular, lists[0].turned
    atoms = np.cumsum([0, *(len(one.reference) for one in lists)]).tolist()
    images = np.cumsum([0, *(len(one.images) for one in lists)]).tolist()
    found = []
    for kind in ("angular", "radial"):
        parts = [getattr(one, kind) for one in lists]
        pairs = np.cumsum([0, *(len(part.neighbor) for part in parts)]).tolist()
        starts = [part.start[:-1] + n for part, n in zip(parts, pairs)]
        starts.append(parts[-1].start[-1:] + pairs[-2])
        found.append(
            Neighborhood(
                torch.cat(starts),
                torch.cat([part.neighbor + n for part, n in zip(parts, atoms)]),
                torch.cat([part.shift + n for part, n in zip(parts, images)]),
            )
        )
    turned = torch.cat([one.turned + n for one, n in zip(lists, pairs)])
    return *reversed(found), turned


class Room:
    """Tensors that keep their address: what a captured graph reads and what is copied into it."""

    def __init__(self):
        self.tensors: dict[str, Tensor] = {}
        self.moved = 0  # how often one had to be made larger

    def put(self, name: str, values: Tensor, spare: float = 1.25) -> Tensor:
        """Copy ``values`` to the front of the tensor ``name``, which has some room to spare."""
        held = self.tensors.get(name)
        if held is None or len(held) < len(values) or held.shape[1:] != values.shape[1:]:
            size = int(spare * len(values)) + 16
            held = values.new_zeros(size, *values.shape[1:])
            self.tensors[name] = held
            self.moved += 1
        held[: len(values)].copy_(values)
        return held
