"""Members sorted by group (pair type, element): weights chosen by group without scatter or atomics."""

from __future__ import annotations

import torch
from torch import Tensor

from ..data.batch import starts
from .segment import gathered_segment_sum, segment_sum


class Groups:
    """The members (M,) of each of G groups, from ``group`` (M,) int."""

    def __init__(self, group: Tensor, n_groups: int):
        self.group, self.n_groups = group, n_groups
        self.order = torch.argsort(group, stable=True).to(torch.int32)
        self.counts = torch.bincount(group, minlength=n_groups).to(torch.int32)
        self.start = starts(self.counts)

    def members(self):
        """(group, its members) of each group that has any; reads sizes back to the host."""
        counts = self.counts.tolist()
        for group, members in enumerate(self.order.split(counts)):
            if counts[group]:
                yield group, members

    def reduce(self, values: Tensor) -> Tensor:
        """Sum over the members of each group: (M, ...) -> (G, ...)."""
        return gathered_segment_sum(values, self.order, self.start)


class TiledGroups(Groups):
    """Groups cut into tiles of ``tile`` slots, each of one group; empty slots hold zeros.

    A weight is gathered once a tile instead of once a member, products are dense blocks, and the
    gradient to a weight is a sum over its group's tiles.
    """

    def __init__(self, group: Tensor, n_groups: int, tile: int):
        super().__init__(group, n_groups)
        self.tile = tile
        tiles = (self.counts + tile - 1) // tile
        self.tile_start = starts(tiles)
        groups = torch.arange(n_groups, dtype=torch.int32, device=group.device)
        self.tile_group = torch.repeat_interleave(groups, tiles)
        skipped = tile * self.tile_start[:-1] - self.start[:-1]
        sorted_group = group.index_select(0, self.order)
        slot = torch.arange(len(group), dtype=torch.int32, device=group.device)
        slot += skipped.index_select(0, sorted_group)
        self.slot = torch.empty_like(slot)  # of each member
        self.slot[self.order.long()] = slot
        n_slots = tile * len(self.tile_group)
        self.member = torch.full((n_slots,), len(group), dtype=torch.int32, device=group.device)
        self.member[slot.long()] = self.order

    def gather(self, values: Tensor) -> Tensor:
        """values (M, A) in slots, (tiles, tile, A)."""
        padded = torch.cat([values, values.new_zeros(1, values.shape[1])])
        return padded.index_select(0, self.member).view(-1, self.tile, values.shape[1])

    def spread(self, tiles: Tensor) -> Tensor:
        """(tiles, tile, B) back to the members' order, (M, B)."""
        return tiles.flatten(0, 1).index_select(0, self.slot)

    def weights(self, values: Tensor) -> Tensor:
        """values (G, ...) of each tile's group, (tiles, ...)."""
        return values.index_select(0, self.tile_group)

    def reduce_tiles(self, tiles: Tensor) -> Tensor:
        """Sum over the tiles of each group: (tiles, ...) -> (G, ...)."""
        return segment_sum(tiles, self.tile_start)
