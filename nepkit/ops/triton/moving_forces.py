"""Forces and virials of moving atoms (ops/moving.py): every atom looks at both ends of its pairs."""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from ..moving import Moving
from .launch import of_width, options, padded
from .moving_sums import circle_factor, stored_vectors


@triton.jit
def radial_forces_kernel(
    start, vectors, pulls, turned, out, first, stride, PAIRS: tl.constexpr
):  # fmt: skip
    """out[i] = force (3) and virial (9) by the pulls of both ends of the pairs of this program's atom."""
    atom = tl.program_id(0) + first
    zero = tl.zeros((PAIRS,), dtype=out.dtype.element_ty)
    sums = (zero, zero, zero, zero, zero, zero, zero, zero, zero)
    last = tl.load(start + atom + 1)
    for step in range(tl.load(start + atom), last, PAIRS):
        place = step + tl.arange(0, PAIRS)
        real, place = place < last, tl.minimum(place, last - 1)
        x, y, z = stored_vectors(vectors, stride, place)
        far = tl.load(pulls + tl.load(turned + place).to(tl.int64))
        far = tl.where(real, far, 0.0)
        both = tl.where(real, tl.load(pulls + place), 0.0) + far
        sums = (
            sums[0] + both * x, sums[1] + both * y, sums[2] + both * z,
            sums[3] - far * x * x, sums[4] - far * y * y, sums[5] - far * z * z,
            sums[6] - far * x * y, sums[7] - far * y * z, sums[8] - far * z * x,
        )  # fmt: skip
    at = out + tl.program_id(0).to(tl.int64) * 12
    for axis in tl.static_range(3):
        tl.store(at + axis, tl.sum(sums[axis], 0))
    xy, yz, zx = tl.sum(sums[6], 0), tl.sum(sums[7], 0), tl.sum(sums[8], 0)
    tl.store(at + 3, tl.sum(sums[3], 0))
    tl.store(at + 4, xy)
    tl.store(at + 5, zx)
    tl.store(at + 6, xy)
    tl.store(at + 7, tl.sum(sums[4], 0))
    tl.store(at + 8, yz)
    tl.store(at + 9, zx)
    tl.store(at + 10, yz)
    tl.store(at + 11, tl.sum(sums[5], 0))


@triton.jit
def angular_forces_kernel(
    start, end, neighbor, vectors, functions, height, powers, slope, out, first, stride,
    l_max: tl.constexpr, N: tl.constexpr, L: tl.constexpr, LP: tl.constexpr, PAIRS: tl.constexpr,
):  # fmt: skip
    """Add force (3) and virial (9) through the angular functions of this program's atom to out[i].

    Sums over the components come last: until then every lane adds up its own.
    """
    atom = tl.program_id(0) + first
    dtype = out.dtype.element_ty
    l = tl.minimum(tl.arange(0, LP), L - 1)
    valid = tl.where(tl.arange(0, LP) < L, 1.0, 0.0).to(dtype)[None, :]
    # l of component c is floor(sqrt(c + 1)).
    odd = tl.floor(tl.sqrt((l + 1).to(tl.float32) + 0.01)).to(tl.int32) % 2
    parity = tl.where(odd == 1, -1.0, 1.0).to(dtype)[None, :]
    own_slope = slope + atom.to(tl.int64) * (N * L) + l[None, :]
    zero = tl.zeros((PAIRS, LP), dtype=dtype)
    sums = (zero, zero, zero, zero, zero, zero, zero, zero, zero, zero, zero, zero)
    last = tl.load(end + atom)
    for step in range(tl.load(start + atom), last, PAIRS):
        place = step + tl.arange(0, PAIRS)
        weight = valid * tl.where(place < last, 1.0, 0.0).to(dtype)[:, None]
        place = tl.minimum(place, last - 1)
        x, y, z = stored_vectors(vectors, stride, place)
        far_slope = slope + tl.load(neighbor + place).to(tl.int64)[:, None] * (N * L) + l[None, :]
        g = functions + place * (4 * N)
        along, outward = _met(g, own_slope, zero, N, L)
        far_along, far_outward = _met(g + 2 * N, far_slope, zero, N, L)
        inverse = 1.0 / tl.sqrt(x * x + y * y + z * z)
        u_x, u_y, u_z = x * inverse, y * inverse, z * inverse
        value, t_x, t_y, t_z = _harmonics(height, powers, u_x, u_y, u_z, l, l_max, L)
        over = weight * inverse[:, None]
        t_x, t_y, t_z = over * t_x, over * t_y, over * t_z
        u_x, u_y, u_z = u_x[:, None], u_y[:, None], u_z[:, None]
        value, far_along = weight * value, parity * far_along
        far_outward = parity * far_outward * value
        along, outward = along + far_along, outward * value + far_outward
        o_x = far_along * t_x + far_outward * u_x
        o_y = far_along * t_y + far_outward * u_y
        o_z = far_along * t_z + far_outward * u_z
        x, y, z = x[:, None], y[:, None], z[:, None]
        sums = (
            sums[0] + along * t_x + outward * u_x,
            sums[1] + along * t_y + outward * u_y,
            sums[2] + along * t_z + outward * u_z,
            sums[3] - x * o_x, sums[4] - x * o_y, sums[5] - x * o_z,
            sums[6] - y * o_x, sums[7] - y * o_y, sums[8] - y * o_z,
            sums[9] - z * o_x, sums[10] - z * o_y, sums[11] - z * o_z,
        )  # fmt: skip
    target = out + tl.program_id(0).to(tl.int64) * 12
    for axis in tl.static_range(12):
        before = tl.load(target + axis)
        tl.store(target + axis, before + tl.sum(tl.sum(sums[axis], 0), 0))


@triton.jit
def _met(g, slope, zero, N: tl.constexpr, L: tl.constexpr):
    """Sums over n of g_n dU/ds_nl and g_n' dU/ds_nl (PAIRS, LP) of one end of pairs."""
    along, outward = zero, zero
    for n in tl.static_range(N):
        of_end = tl.load(slope + n * L)
        along += tl.load(g + n)[:, None] * of_end
        outward += tl.load(g + N + n)[:, None] * of_end
    return along, outward


@triton.jit
def _harmonics(height, powers, x, y, z, l, l_max: tl.constexpr, L: tl.constexpr):
    """Y (PAIRS, LP) at unit vectors, and its gradient there without the part along the vector."""
    circle, to_x, to_y = circle_factor(powers, x, y, l, l_max, L)
    x, y, z = x[:, None], y[:, None], z[:, None]
    high, to_z = 0.0 * circle, 0.0 * circle
    for power in tl.static_range(l_max + 1):
        to_z = to_z * z + high
        high = high * z + tl.load(height + (l_max - power) * L + l)[None, :]
    to_x, to_y, to_z = to_x * high, to_y * high, to_z * circle
    along = x * to_x + y * to_y + z * to_z
    return high * circle, to_x - x * along, to_y - y * along, to_z - z * along


def launch(moving: Moving, pulls: Tensor, slope: Tensor, first: int, last: int) -> Tensor:
    """Force and virial (N', 12) of the atoms first to last, from pulls (P,) and dU/ds (N, n, L)."""
    n_l, l_max = moving.height.shape[1], moving.height.shape[0] - 1
    near, out = moving.radial, moving.radial_c.new_empty(last - first, 12)
    if last > first:
        radial_forces_kernel[(last - first,)](
            near.start, near.vectors, pulls, near.turned, out,
            first, near.vectors.shape[1], **options("moving_radial_forces"),
        )  # fmt: skip
        angular_forces_kernel[(last - first,)](
            *moving.angular, moving.height, moving.powers, slope, out,
            first, moving.angular.vectors.shape[1], l_max,
            N=moving.angular.functions.shape[2], L=n_l, LP=padded(n_l),
            **options(of_width("moving_angular_forces", padded(n_l), out.element_size())),
        )  # fmt: skip
    return out
