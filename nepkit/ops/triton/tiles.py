"""Members sorted by group into tiles: a counting sort in launches whose number no size changes.

First, how many members each chunk has of each group; running sums of that, group by group, say
where the first of them goes. Then every member goes there, and what is left of the tiles is empty.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from .launch import options


@triton.jit
def _members(group, chunk, n_members, n_groups, CHUNK: tl.constexpr, GROUPS: tl.constexpr):
    """Numbers of the members of a chunk and of a block of groups, and whether one is in the other."""
    member = chunk * CHUNK + tl.arange(0, CHUNK)
    g = tl.program_id(1) * GROUPS + tl.arange(0, GROUPS)
    of_member = tl.load(group + member, mask=member < n_members, other=-1)
    return member, g, (of_member[:, None] == g[None, :]) & (g < n_groups)[None, :]


@triton.jit
def count_kernel(
    group, counts, n_members, n_groups, n_chunks, CHUNK: tl.constexpr, GROUPS: tl.constexpr
):
    """counts[g, chunk] of a chunk's members."""
    chunk = tl.program_id(0)
    _, g, inside = _members(group, chunk, n_members, n_groups, CHUNK, GROUPS)
    found = tl.sum(inside.to(tl.int32), 0)
    tl.store(counts + g.to(tl.int64) * n_chunks + chunk, found, mask=g < n_groups)


@triton.jit
def _before(totals, g, chunk, n_chunks, real):
    """How many members come before those of group g in a chunk."""
    place = g.to(tl.int64) * n_chunks + chunk
    return tl.load(totals + place - 1, mask=real & (place > 0), other=0)


@triton.jit
def place_kernel(
    group, totals, member_of_slot, tile_start, n_members, n_groups, n_chunks,
    TILE: tl.constexpr, CHUNK: tl.constexpr, GROUPS: tl.constexpr,
):  # fmt: skip
    """The members of a chunk in the slots of their groups; ``totals`` are the running sums of counts."""
    chunk = tl.program_id(0)
    member, g, inside = _members(group, chunk, n_members, n_groups, CHUNK, GROUPS)
    start = _before(totals, g, 0, n_chunks, g <= n_groups)
    first = start // TILE + g  # tile of the group
    tl.store(tile_start + g, first, mask=(g <= n_groups) & (chunk == 0))
    first = first * TILE + _before(totals, g, chunk, n_chunks, g < n_groups) - start
    slot = first[None, :] + tl.cumsum(inside.to(tl.int32), 0) - 1
    whole = tl.zeros((CHUNK, GROUPS), dtype=tl.int32) + member[:, None]
    tl.store(member_of_slot + slot, whole, mask=inside)


@triton.jit
def owner_kernel(
    tile_start, totals, member_of_slot, owner, n_members, n_groups, n_chunks, n_tiles,
    TILE: tl.constexpr, STEPS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The group of each tile, by bisection, and the tile's empty slots."""
    tile = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    real = tile < n_tiles
    low = tl.zeros((BLOCK,), dtype=tl.int32)
    high = tl.zeros((BLOCK,), dtype=tl.int32) + n_groups - 1
    for _ in range(STEPS):
        middle = (low + high + 1) // 2
        before = tl.load(tile_start + middle) <= tile
        low = tl.where(before, middle, low)
        high = tl.where(before, high, middle - 1)
    tl.store(owner + tile, low, mask=real)
    real_group = real & (low < n_groups)
    filled = _before(totals, low + 1, 0, n_chunks, real_group)
    filled -= _before(totals, low, 0, n_chunks, real_group)
    end = tl.load(tile_start + low, mask=real, other=0) * TILE + filled
    slot = tile[:, None] * TILE + tl.arange(0, TILE)[None, :]
    nobody = tl.zeros((BLOCK, TILE), dtype=tl.int32) + n_members
    tl.store(member_of_slot + slot, nobody, mask=real[:, None] & (slot >= end[:, None]))


def launch(group: Tensor, n_groups: int, tile: int) -> tuple[Tensor, Tensor, Tensor]:
    """Start of each group's tiles (G + 1,), group of each tile, member in each slot; int32."""
    n_members, n_tiles = len(group), len(group) // tile + n_groups
    chosen, blocks = options("tiles"), options("tile_owners")
    n_chunks = max(triton.cdiv(n_members, chosen["CHUNK"]), 1)
    counts = group.new_empty(n_groups, n_chunks)
    start, owner = group.new_empty(n_groups + 1), group.new_empty(n_tiles)
    member = group.new_empty(n_tiles * tile)
    sizes = n_members, n_groups, n_chunks
    grid = n_chunks, triton.cdiv(n_groups + 1, chosen["GROUPS"])  # one more for the last start
    count_kernel[grid](group, counts, *sizes, **chosen)
    totals = counts.flatten().cumsum(0, dtype=torch.int32)
    place_kernel[grid](group, totals, member, start, *sizes, TILE=tile, **chosen)
    owner_kernel[(triton.cdiv(n_tiles, blocks["BLOCK"]),)](
        start, totals, member, owner, *sizes, n_tiles,
        TILE=tile, STEPS=n_groups.bit_length(), **blocks,
    )  # fmt: skip
    return start, owner, member
