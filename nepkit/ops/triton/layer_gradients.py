"""Gradients to the weights of a layer of the element networks, a tile of atoms at a time.

W_bar[h, a] = sum over the atoms of a tile of x_bar[i, h] in[i, a] + dU/dx[i, h] in'[i, a], and the
sums for the bias, -x_bar, and, of the last layer, for the output, U_bar v + v', and the element.
"""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from .launch import options


@triton.jit
def gradients_kernel(
    bars, inputs, slopes, tangents, energy_bar, values, changes, out, member, n_atoms, width,
    A: tl.constexpr, H: tl.constexpr, LAST: tl.constexpr, TILE: tl.constexpr,
    HB: tl.constexpr, AB: tl.constexpr,
):  # fmt: skip
    """HB neurons and AB inputs of a tile, in the row of the tile in out (tiles, width)."""
    tile, block = tl.program_id(0), tl.program_id(2)
    h, a = tl.program_id(1) * HB + tl.arange(0, HB), block * AB + tl.arange(0, AB)
    atom = tl.load(member + tile * TILE + tl.arange(0, TILE)).to(tl.int64)
    real, is_h, is_a = atom < n_atoms, h < H, a < A
    of_x = atom[None, :] * H + h[:, None]
    x_mask, in_mask = is_h[:, None] & real[None, :], real[:, None] & is_a[None, :]
    of_inputs = atom[:, None] * A + a[None, :]
    bar = tl.load(bars + of_x, mask=x_mask, other=0.0)
    x = tl.load(inputs + of_inputs, mask=in_mask, other=0.0)
    total = tl.zeros((HB, AB), dtype=out.dtype.element_ty)
    total = tl.dot(bar, x, total, input_precision="ieee", out_dtype=total.dtype)
    slope = tl.load(slopes + of_x, mask=x_mask, other=0.0)
    x = tl.load(tangents + of_inputs, mask=in_mask, other=0.0)
    total = tl.dot(slope, x, total, input_precision="ieee", out_dtype=total.dtype)
    out += tile.to(tl.int64) * width
    tl.store(out + h[:, None] * A + a[None, :], total, mask=is_h[:, None] & is_a[None, :])
    if block == 0:
        tl.store(out + H * A + h, -tl.sum(bar, 1), mask=is_h)
        if LAST:
            e = tl.load(energy_bar + atom, mask=real, other=0.0)
            v = tl.load(values + of_x, mask=x_mask, other=0.0)
            output = e[None, :] * v + tl.load(changes + of_x, mask=x_mask, other=0.0)
            tl.store(out + H * (A + 1) + h, tl.sum(output, 1), mask=is_h)
            tl.store(out + H * (A + 2) + h, tl.sum(e, 0), mask=h == 0)


def launch(
    bars: Tensor, inputs: Tensor, slopes: Tensor, tangents: Tensor, member: Tensor,
    energy_bar: Tensor | None, values: Tensor | None, changes: Tensor | None, tile: int,
) -> Tensor:  # fmt: skip
    """(tiles, H A + H) or, of the last layer, (tiles, H A + 2 H + 1); see nepkit.ops.layers."""
    (n_atoms, n_h), n_a, last = bars.shape, inputs.shape[1], energy_bar is not None
    n_tiles = len(member) // tile
    out = bars.new_empty(n_tiles, n_h * (n_a + 1) + (n_h + 1 if last else 0))
    if n_tiles:
        chosen = options("layers")
        grid = (n_tiles, triton.cdiv(n_h, chosen["HB"]), triton.cdiv(n_a, chosen["AB"]))
        rest = (energy_bar.contiguous(), values, changes) if last else (bars, bars, bars)
        gradients_kernel[grid](
            bars, inputs.contiguous(), slopes, tangents.contiguous(), *rest, out, member, n_atoms,
            out.shape[1], A=n_a, H=n_h, LAST=last, TILE=tile, **chosen,
        )  # fmt: skip
    return out
