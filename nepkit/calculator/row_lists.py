"""Neighbour lists with a skin in rows, for the kernels on CPUs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..config import ModelSettings
from ..data.frame import Frame
from ..data.neighbors import pair_cutoffs, search
from ..ops.cpu.skin import PairList, sorted_pairs
from .skin import SkinRule, into_cell


@dataclass(frozen=True, eq=False)
class SkinList(SkinRule):
    """The pairs of a structure within the cutoffs and a skin, in rows."""

    pairs: PairList

    @staticmethod
    def of(frame: Frame, types: np.ndarray, settings: ModelSettings, skin: float) -> SkinList:
        """Find the pairs of ``frame``; raises UserError as ``search`` does."""
        cutoffs = pair_cutoffs(settings.radial_cutoff)
        cutoff = float(cutoffs.max())
        wrapped, inside = into_cell(frame)
        center, neighbor, distance, image = search(inside, cutoff + skin, "S")
        if cutoffs.min() < cutoff:
            keep = distance < cutoffs[types[center], types[neighbor]] + skin
            center, neighbor, image = center[keep], neighbor[keep], image[keep]
        images, place = numbered(image)
        n_types = len(settings.elements)
        pairs = sorted_pairs(center, neighbor, place, types, n_types, len(images))
        return SkinList(frame, cutoff + skin, cutoff, images, wrapped, PairList(*pairs))


def numbered(image: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """All images (S, 3) up to the furthest of ``image`` (H, 3), and the place of each among them.

    They are in an order that a turn of all signs reverses.
    """
    most = np.abs(image).max(0, initial=0)
    _, b, c = 2 * most + 1
    grid = np.stack(np.meshgrid(*(np.arange(-m, m + 1) for m in most), indexing="ij"), -1)
    return grid.reshape(-1, 3).astype(np.float64), (image + most) @ np.array([b * c, c, 1])


def joined(lists: Sequence[SkinList]) -> PairList:
    """The pairs of structures side by side, atoms and images counted through."""
    if len(lists) == 1:
        return lists[0].pairs
    columns = {name: [getattr(one.pairs, name) for one in lists] for name in PairList._fields}
    atoms = before([len(one.reference) for one in lists])
    images = before([len(one.images) for one in lists])
    rows = before([len(types) for types in columns["row_type"]])
    pairs = before([len(neighbors) for neighbors in columns["neighbor"]])
    zero = [np.zeros(1, np.int64)]
    return PairList(
        np.concatenate(zero + [s[1:] + n for s, n in zip(columns["row_start"], rows)]),
        np.concatenate(columns["row_type"]),
        np.concatenate(zero + [s[1:] + n for s, n in zip(columns["pair_start"], pairs)]),
        np.concatenate([j + n for j, n in zip(columns["neighbor"], atoms)]),
        np.concatenate([s + n for s, n in zip(columns["shift"], images)]),
    )


def before(counts: list[int]) -> np.ndarray:
    """How many there are before each (int32), from how many each has."""
    return (np.cumsum(counts) - counts).astype(np.int32)
