"""Members sorted by group (pair type, element): weights chosen by group without scatter or atomics.

All shapes follow from the number of members and of groups, so that nothing is read back.
"""

from __future__ import annotations

import torch
from torch import Tensor

from .operator import operator
from .policy import kernels_on
from .segment import Linear, Segments


class Groups:
    """The members (M,) of each of G groups, from ``group`` (M,) int32."""

    def __init__(self, group: Tensor, n_groups: int):
        self.group, self.n_groups = group, n_groups
        self._segments: Segments | None = None

    @property
    def segments(self) -> Segments:
        """The members of each group."""
        if self._segments is None:
            # A GPU sorts by a byte at a time.
            n = self.n_groups
            kind = torch.int8 if n < 2**7 else torch.int16 if n < 2**15 else torch.int32
            ordered, order = torch.sort(self.group.to(kind), stable=True)
            groups = torch.arange(self.n_groups + 1, dtype=kind, device=ordered.device)
            start = torch.searchsorted(ordered, groups, out_int32=True)
            self._segments = Segments(start, self.group, order.to(torch.int32), 32)
        return self._segments

    def members(self):
        """(group, its members) of each group that has any; reads sizes back to the host."""
        counts = self.segments.start.diff().tolist()
        for group, members in enumerate(self.segments.order.split(counts)):
            if counts[group]:
                yield group, members

    def one_hot(self, dtype: torch.dtype) -> Tensor:
        """(M, G), 1 in the column of each member's group."""
        columns = torch.arange(self.n_groups, dtype=torch.int32, device=self.group.device)
        return (self.group[:, None] == columns).to(dtype)


class TiledGroups(Groups):
    """Groups cut into tiles of ``tile`` slots, each of one group; empty slots hold zeros.

    A weight is gathered once a tile instead of once a member, products are dense blocks, and the
    gradient to a weight is a sum over its group's tiles. Members of a group below 0 have no slot.
    """

    def __init__(self, group: Tensor, n_groups: int, tile: int):
        super().__init__(group, n_groups)
        self.tile = tile
        tile_start, owner, self.member = tiles_of_groups(group, n_groups, tile)
        # Few groups have many tiles each.
        typical = 512 if n_groups <= 32 else 128 if n_groups <= 256 else 32
        self.tiles = Segments(tile_start, owner, typical=typical)
        self._slot: Tensor | None = None

    @property
    def slot(self) -> Tensor:
        """The slot of each member (M,)."""
        if self._slot is None:
            start, order = self.segments.start, self.segments.order
            skipped = self.tile * self.tiles.start[:-1] - start[:-1]
            slots = torch.arange(order.shape[0], dtype=torch.int32, device=order.device)
            slot = slots + skipped.index_select(0, self.group.index_select(0, order))
            self._slot = torch.empty_like(slot).scatter(0, order.long(), slot)
        return self._slot

    def gather(self, values: Tensor) -> Tensor:
        """values (M, A) in slots, (tiles, tile, A)."""
        tiles = permuted(values, self.member, self.slot)
        return tiles.view(-1, self.tile, values.shape[1])

    def spread(self, tiles: Tensor) -> Tensor:
        """(tiles, tile, B) back to the members' order, (M, B)."""
        return permuted(tiles.flatten(0, 1), self.slot, self.member)


def permuted(values: Tensor, there: Tensor, back: Tensor) -> Tensor:
    """values[there], zeros where ``there`` is values.shape[0]; its adjoint takes ``back``."""
    if torch.is_grad_enabled() and values.requires_grad:
        return Linear.apply(
            values,
            lambda given: permuted(given, there, back),
            lambda gradient: permuted(gradient, back, there),
        )
    padded = torch.cat([values, values.new_zeros(1, values.shape[1])])
    return padded.index_select(0, there)


@operator("(Tensor group, int n_groups, int tile) -> (Tensor, Tensor, Tensor)")
def tiles_of_groups(group, n_groups, tile):
    """Start of each group's tiles (G + 1,), group of each tile, and member in each slot; int32.

    ``group`` (M,) int32. Empty slots have member M; the tiles of a group are filled from the first
    slot on.
    """
    if kernels_on(group.device):
        from .triton.tiles import launch

        return launch(group, n_groups, tile)
    n_members = len(group)
    sorted_groups = Groups(group, n_groups).segments
    start, order = sorted_groups.start, sorted_groups.order
    # Room enough for each group, by rounding down one sum instead of summing rounded counts.
    groups = torch.arange(n_groups + 1, dtype=torch.int32, device=group.device)
    tile_start = (start - start[:1]) // tile + groups
    n_tiles = n_members // tile + n_groups
    tiles = torch.arange(n_tiles, dtype=torch.int32, device=group.device)
    owner = torch.searchsorted(tile_start, tiles, right=True, out_int32=True) - 1
    owner = owner.clamp(max=n_groups - 1)
    slots = torch.arange(n_tiles * tile, dtype=torch.int32, device=group.device)
    skipped = tile * tile_start[:-1] - start[:-1]
    place = slots.view(-1, tile) - skipped.index_select(0, owner)[:, None]
    empty = place >= start.index_select(0, owner + 1)[:, None]
    members = slots
    if n_members > 0:
        members = order.index_select(0, place.clamp(max=n_members - 1).flatten())
    return tile_start, owner, torch.where(empty.flatten(), n_members, members)


@tiles_of_groups.register_fake
def _(group, n_groups, tile):
    n_tiles = group.shape[0] // tile + n_groups
    sizes = (n_groups + 1, n_tiles, n_tiles * tile)
    return tuple(group.new_empty(size) for size in sizes)
