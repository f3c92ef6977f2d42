"""v of each pair: how far a step along dL/dF and dL/dW would change it.

v = F_i - F_j - W^T r for the pair r from i to j, and its part along the pair, v . r/|r|.
"""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from .launch import options


@triton.jit
def change_kernel(
    forces, virials, center, neighbor, frame, vectors, unit, table_place, change, n_halves,
    PLACED: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """change[h] = v (3) and v . r/|r|."""
    half = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    real = half < n_halves
    i = tl.load(center + half, mask=real, other=0).to(tl.int64) * 3
    j = tl.load(neighbor + half, mask=real, other=0).to(tl.int64) * 3
    w = virials + tl.load(frame + half, mask=real, other=0).to(tl.int64) * 6
    place = half
    if PLACED:
        place = tl.load(table_place + half, mask=real, other=0).to(tl.int64)
    r = vectors + place * 3
    x = tl.load(forces + i, mask=real, other=0.0) - tl.load(forces + j, mask=real, other=0.0)
    y = tl.load(forces + i + 1, mask=real, other=0.0) - tl.load(
        forces + j + 1, mask=real, other=0.0
    )
    z = tl.load(forces + i + 2, mask=real, other=0.0) - tl.load(
        forces + j + 2, mask=real, other=0.0
    )
    rx = tl.load(r, mask=real, other=0.0)
    ry = tl.load(r + 1, mask=real, other=0.0)
    rz = tl.load(r + 2, mask=real, other=0.0)
    # xx yy zz xy yz zx
    x -= rx * tl.load(w, mask=real, other=0.0) + rz * tl.load(w + 5, mask=real, other=0.0)
    y -= ry * tl.load(w + 1, mask=real, other=0.0) + rx * tl.load(w + 3, mask=real, other=0.0)
    z -= rz * tl.load(w + 2, mask=real, other=0.0) + ry * tl.load(w + 4, mask=real, other=0.0)
    u = unit + place * 3
    along = x * tl.load(u, mask=real, other=0.0) + y * tl.load(u + 1, mask=real, other=0.0)
    along += z * tl.load(u + 2, mask=real, other=0.0)
    out = change + half * 4
    tl.store(out, x, mask=real)
    tl.store(out + 1, y, mask=real)
    tl.store(out + 2, z, mask=real)
    tl.store(out + 3, along, mask=real)


def launch(
    forces: Tensor, virials: Tensor, center: Tensor, neighbor: Tensor, frame: Tensor,
    vectors: Tensor, unit: Tensor, place: Tensor | None,
) -> Tensor:  # fmt: skip
    """(H, 4) of dL/dF (N, 3) and dL/dW (B, 6); pairs as in Batch."""
    change = forces.new_empty(len(center), 4)
    if len(center):
        chosen = options("changes")
        change_kernel[(triton.cdiv(len(center), chosen["BLOCK"]),)](
            forces.contiguous(), virials.contiguous(), center, neighbor, frame, vectors, unit,
            frame if place is None else place, change, len(center), PLACED=place is not None, **chosen,
        )  # fmt: skip
    return change
