"""A layer of the element networks on tiles of atoms of one element, up and down.

Up: v = tanh(W_t in - b_t), or the changes of x and v as the inputs change. Down: from the gradient
to v to those to x and to the inputs, W_t^T times that to x.
"""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from .launch import options
from .sums import of_products


@triton.jit
def _tanh(x):
    """tanh by exp; near 0, where that loses digits, by its series."""
    small: tl.constexpr = 0.03 if x.dtype == tl.float64 else 0.3
    square = x * x
    series = 62.0 / 2835.0 - square * (1382.0 / 155925.0)
    series = 2.0 / 15.0 + square * (-17.0 / 315.0 + square * series)
    series = x + x * square * (-1.0 / 3.0 + square * series)
    fall = tl.exp(-2.0 * tl.abs(x))
    far = (1.0 - fall) / (1.0 + fall)
    return tl.where(square < small * small, series, tl.where(x < 0, -far, far))


@triton.jit
def up_kernel(
    inputs, weight, bias, values, rates, out, member, tile_type, n_atoms,
    A: tl.constexpr, H: tl.constexpr, CHANGE: tl.constexpr, TILE: tl.constexpr,
    HB: tl.constexpr, AB: tl.constexpr,
):  # fmt: skip
    """HB neurons of a tile: out = v, or with CHANGE rates = change of x and out = change of v."""
    tile, h = tl.program_id(0), tl.program_id(1) * HB + tl.arange(0, HB)
    atom = tl.load(member + tile * TILE + tl.arange(0, TILE)).to(tl.int64)
    if tl.load(member + tile * TILE) >= n_atoms:
        return  # An empty tile; one with atoms fills from its first slot.
    real, is_h = (atom < n_atoms)[:, None], (h < H)[None, :]
    t = tl.load(tile_type + tile).to(tl.int64)
    total = tl.zeros((TILE, HB), dtype=out.dtype.element_ty)
    for step in range(0, A, AB):
        a = step + tl.arange(0, AB)
        x = tl.load(
            inputs + atom[:, None] * A + a[None, :], mask=real & (a < A)[None, :], other=0.0
        )
        at = weight + t * (H * A) + h[None, :] * A + a[:, None]
        w = tl.load(at, mask=(a < A)[:, None] & is_h, other=0.0)
        total = tl.dot(x, w, total, input_precision="ieee", out_dtype=total.dtype)
    at, mask = atom[:, None] * H + h[None, :], real & is_h
    if CHANGE:
        v = tl.load(values + at, mask=mask, other=0.0)
        tl.store(rates + at, total, mask=mask)
        tl.store(out + at, (1.0 - v * v) * total, mask=mask)
    else:
        b = tl.load(bias + t * H + h, mask=h < H, other=0.0)
        tl.store(out + at, _tanh(total - b[None, :]), mask=mask)


@triton.jit
def down_kernel(
    values, rates, slope, bar, element, weight, to_x, to_inputs, energies,
    member, tile_type, n_atoms,
    A: tl.constexpr, H: tl.constexpr, LAST: tl.constexpr, CHANGE: tl.constexpr, TILE: tl.constexpr,
    HB: tl.constexpr, AB: tl.constexpr,
):  # fmt: skip
    """AB inputs of a tile: dU/dx and dU/d(inputs), or with CHANGE the gradients to both."""
    tile, a = tl.program_id(0), tl.program_id(1) * AB + tl.arange(0, AB)
    atom = tl.load(member + tile * TILE + tl.arange(0, TILE)).to(tl.int64)
    if tl.load(member + tile * TILE) >= n_atoms:
        return
    is_atom = atom < n_atoms
    # What all programs of a tile have alike is stored by one.
    stored = is_atom & (tl.program_id(1) + tl.zeros((TILE,), dtype=tl.int32) == 0)
    real, is_a = is_atom[:, None], (a < A)[None, :]
    t = tl.load(tile_type + tile).to(tl.int64)
    total = tl.zeros((TILE, AB), dtype=values.dtype.element_ty)
    energy = tl.zeros((TILE,), dtype=values.dtype.element_ty)
    if LAST:
        energy += tl.load(element + t)
        if CHANGE:
            energy = tl.load(bar + atom, mask=is_atom, other=0.0)
    for step in range(0, H, HB):
        h = step + tl.arange(0, HB)
        is_h = (h < H)[None, :]
        at, mask = atom[:, None] * H + h[None, :], real & is_h
        v = tl.load(values + at, mask=mask, other=0.0)
        if LAST:
            of_v = tl.load(slope + t * H + h, mask=h < H, other=0.0)[None, :]
        else:
            of_v = tl.load(slope + at, mask=mask, other=0.0)
        x = of_v
        if CHANGE:
            rate = tl.load(rates + at, mask=mask, other=0.0)
            if LAST:
                x = energy[:, None] * of_v
            else:
                x = tl.load(bar + at, mask=mask, other=0.0)
            x -= 2.0 * v * rate * of_v
        elif LAST:
            energy += of_products(v, of_v, 1)
        x *= 1.0 - v * v
        tl.store(to_x + at, x, mask=stored[:, None] & is_h)
        cell = weight + t * (H * A) + h[:, None] * A + a[None, :]
        w = tl.load(cell, mask=(h < H)[:, None] & is_a, other=0.0)
        total = tl.dot(x, w, total, input_precision="ieee", out_dtype=total.dtype)
    tl.store(to_inputs + atom[:, None] * A + a[None, :], total, mask=real & is_a)
    if LAST and not CHANGE:
        tl.store(energies + atom, energy, mask=stored)


def launch_values(
    inputs: Tensor, weight: Tensor, bias: Tensor | None, values: Tensor | None,
    member: Tensor, tile_type: Tensor, tile: int,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """v (N, H), the second, of ``inputs`` (N, A); with ``values`` = v the changes of x and v."""
    n_atoms, (_, n_h, n_a) = len(inputs), weight.shape
    change, out = values is not None, inputs.new_empty(n_atoms, n_h)
    rates = inputs.new_empty(out.shape) if change else out
    if n_atoms:
        chosen = options("layers")
        up_kernel[(len(tile_type), triton.cdiv(n_h, chosen["HB"]))](
            inputs.contiguous(), weight.contiguous(), weight if change else bias.contiguous(),
            values if change else out, rates, out, member, tile_type, n_atoms,
            A=n_a, H=n_h, CHANGE=change, TILE=tile, **chosen,
        )  # fmt: skip
    return rates, out


def launch_slopes(
    values: Tensor, slope: Tensor, element: Tensor, weight: Tensor, member: Tensor,
    tile_type: Tensor, last: bool, tile: int,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """dU/dx (N, H), dU/d(inputs) (N, A) and, of the last layer, U (N,); see nepkit.ops.layers."""
    energies = values.new_empty(len(values) if last else 0)
    others = (values, slope, values, element, weight, energies, member, tile_type)
    return *_down(values, *others, last, False, tile), energies


def launch_bars(
    values: Tensor, rates: Tensor, slope: Tensor, bar: Tensor, weight: Tensor, member: Tensor,
    tile_type: Tensor, last: bool, tile: int,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """The gradients to x (N, H) and to the inputs (N, A); see nepkit.ops.layers."""
    others = (rates, slope, bar.contiguous(), weight, weight, values, member, tile_type)
    return _down(values, *others, last, True, tile)


def _down(
    values, rates, slope, bar, element, weight, energies, member, tile_type, last, change, tile
) -> tuple[Tensor, Tensor]:
    n_atoms, (_, n_h, n_a) = len(values), weight.shape
    to_x, to_inputs = values.new_empty(n_atoms, n_h), values.new_empty(n_atoms, n_a)
    if n_atoms:
        chosen = options("layers")
        down_kernel[(len(tile_type), triton.cdiv(n_a, chosen["AB"]))](
            values, rates, slope.contiguous(), bar, element.contiguous(), weight.contiguous(),
            to_x, to_inputs, energies, member, tile_type, n_atoms,
            A=n_a, H=n_h, LAST=last, CHANGE=change, TILE=tile, **chosen,
        )  # fmt: skip
    return to_x, to_inputs
