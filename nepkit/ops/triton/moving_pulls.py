"""What the atoms say of their radial pairs (ops/moving.py), for both ends to read."""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from ..moving import Moving
from .launch import options, padded
from .moving_sums import of_distance, sine_and_cosine, stored_vectors
from .sums import of_products


@triton.jit
def pulls_kernel(
    start, kind, vectors, cutoff, coefficients, q_slope, pulls, stride, n_k,
    N: tl.constexpr, D: tl.constexpr, NP: tl.constexpr, PAIRS: tl.constexpr,
):  # fmt: skip
    """pulls[p] = sum_n dU_i/dq_n g_n'(r) / r of the pairs of the atom of this program."""
    atom = tl.program_id(0)
    n = tl.minimum(tl.arange(0, NP), N - 1)
    valid = tl.where(tl.arange(0, NP) < N, 1.0, 0.0).to(pulls.dtype.element_ty)
    weight = valid * tl.load(q_slope + atom.to(tl.int64) * D + n)
    last = tl.load(start + atom + 1)
    for step in range(tl.load(start + atom), last, PAIRS):
        place = step + tl.arange(0, PAIRS)
        real, place = place < last, tl.minimum(place, last - 1)
        x, y, z = stored_vectors(vectors, stride, place)
        pair_type = tl.load(kind + place).to(tl.int64)
        r, u, inverse = of_distance(x, y, z, cutoff, pair_type, real)
        sine, cosine = sine_and_cosine(u)
        h, t = 0.5 * sine * sine, 2.0 * u * u - 1.0
        rate = -1.5707963267948966 * inverse * sine * cosine
        turn = -4.0 * inverse * u * h
        c = coefficients + pair_type[None, :] * (N * n_k) + n[:, None] * n_k
        total = tl.load(c) * (2.0 * rate)[None, :]
        value, value_below, slope, slope_below = t, 0.0 * t + 1.0, 0.0 * t + 1.0, 0.0 * t
        for k in range(1, n_k):
            total += tl.load(c + k) * (rate * (value + 1.0) + turn * k * slope)[None, :]
            following = 2.0 * t * value - value_below
            value_below, value = value, following
            following = 2.0 * t * slope - slope_below
            slope_below, slope = slope, following
        tl.store(pulls + place, of_products(total, weight[:, None], 0) / r, mask=real)


def launch(moving: Moving, q_slope: Tensor) -> Tensor:
    """Pulls (P,) of all atoms on their radial pairs."""
    _, n, n_k = moving.radial_c.shape
    near, n_atoms, n_pairs = moving.radial, len(moving.types), moving.radial.vectors.shape[1]
    pulls = near.vectors.new_empty(n_pairs)
    if n_atoms:
        pulls_kernel[(n_atoms,)](
            near.start, near.kind, near.vectors, moving.radial_cutoff, moving.radial_c, q_slope, pulls,
            n_pairs, n_k, N=n, D=q_slope.shape[1], NP=padded(n), **options("moving_pulls"),
        )  # fmt: skip
    return pulls
