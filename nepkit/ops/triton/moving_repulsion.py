"""ZBL of moving atoms (ops/repulsion.py)."""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from ..moving import Moving
from ..repulsion import Repulsion
from .launch import options
from .moving_sums import of_pairs, sine_and_cosine, stored_vectors


@triton.jit
def repulsion_kernel(
    types, start, end, neighbor, vectors, cutoff,
    inner, outer, inverse_length, strength, screening, out, first, stride, n_types,
    PAIRS: tl.constexpr,
):  # fmt: skip
    """out[i] = force (3), virial (9) and energy of the atom of this program."""
    atom = tl.program_id(0) + first
    zero = tl.zeros((PAIRS,), dtype=out.dtype.element_ty)
    energy = zero
    sums = (zero, zero, zero, zero, zero, zero, zero, zero, zero)
    last = tl.load(end + atom)
    for step in range(tl.load(start + atom), last, PAIRS):
        place = step + tl.arange(0, PAIRS)
        real, place = place < last, tl.minimum(place, last - 1)
        x, y, z = stored_vectors(vectors, stride, place)
        j = tl.load(neighbor + place).to(tl.int64)
        r, u, _, kind, _ = of_pairs(x, y, z, types, cutoff, atom, j, real, n_types)
        low = tl.load(inner + kind)
        high = tl.load(outer + kind)
        inside = (u > 0.0) & (r < high)
        scale = tl.load(inverse_length + kind)
        phi, phi_slope = 0.0 * r, 0.0 * r
        for k in tl.static_range(4):
            amplitude = tl.load(screening + kind * 8 + 2 * k)
            rate = scale * tl.load(screening + kind * 8 + 2 * k + 1)
            wave = amplitude * tl.exp(-rate * r)
            phi += wave
            phi_slope -= rate * wave
        over = tl.load(strength + kind) / r
        bare, bare_slope = over * phi, over * (phi_slope - phi / r)
        # (1 + cos(pi t)) / 2 = cos(pi t / 2)^2 with t from 0 at the inner to 1 at the outer radius
        width = tl.where(high > low, high - low, 1.0)
        t = tl.where(r > low, (r - low) / width, 0.0)
        sine, cosine = sine_and_cosine(tl.where(t < 1.0, t, 1.0))
        cut_slope = tl.where(r > low, -3.141592653589793 / width * sine * cosine, 0.0)
        slope = 0.5 * (bare_slope * cosine * cosine + bare * cut_slope)
        energy += tl.where(inside, 0.5 * bare * cosine * cosine, 0.0)
        pull = tl.where(inside, slope / r, 0.0)
        sums = (
            sums[0] + 2.0 * pull * x, sums[1] + 2.0 * pull * y, sums[2] + 2.0 * pull * z,
            sums[3] - pull * x * x, sums[4] - pull * y * y, sums[5] - pull * z * z,
            sums[6] - pull * x * y, sums[7] - pull * y * z, sums[8] - pull * z * x,
        )  # fmt: skip
    at = out + tl.program_id(0).to(tl.int64) * 13
    for axis in tl.static_range(3):
        tl.store(at + axis, tl.sum(sums[axis], 0))
        tl.store(at + 3 + 4 * axis, tl.sum(sums[3 + axis], 0))
    xy, yz, zx = tl.sum(sums[6], 0), tl.sum(sums[7], 0), tl.sum(sums[8], 0)
    tl.store(at + 4, xy)
    tl.store(at + 5, zx)
    tl.store(at + 6, xy)
    tl.store(at + 8, yz)
    tl.store(at + 9, zx)
    tl.store(at + 10, yz)
    tl.store(at + 12, tl.sum(energy, 0))


def launch(moving: Moving, zbl: Repulsion, first: int, last: int) -> Tensor:
    """Force, virial and energy (N', 13) of the atoms first to last."""
    out = zbl.strength.new_empty(last - first, 13)
    if last > first:
        repulsion_kernel[(last - first,)](
            moving.types, *moving.angular[:4], moving.angular_cutoff, *zbl, out,
            first, moving.angular.vectors.shape[1], moving.n_types, **options("moving_repulsion"),
        )  # fmt: skip
    return out
