"""Radial functions f_k(r): Chebyshev polynomials times a cosine cutoff.

Fan et al., Phys. Rev. B 104, 104309 (2021), eqs. (5)-(9), in GPUMD's form:
f_0 = fc, f_k = (T_k(x) + 1) fc / 2 with x = 2 (r/rc - 1)^2 - 1 and fc = (1 + cos(pi r/rc)) / 2.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor


def radial_functions(distance: Tensor, cutoff: Tensor | float, count: int) -> tuple[Tensor, Tensor]:
    """The first ``count`` functions f_k and their derivatives at ``distance`` (H,) Å.

    ``cutoff`` is one length or (H,), Å; distances must lie below it. Returns f (H, count) and
    df/dr (H, count), 1/Å.
    """
    reduced = distance / cutoff
    x = 2.0 * (reduced - 1.0).square() - 1.0
    x_slope = 4.0 * (reduced - 1.0) / cutoff
    angle = math.pi * reduced
    envelope = 0.5 * torch.cos(angle) + 0.5
    envelope_slope = -0.5 * math.pi * torch.sin(angle) / cutoff

    # T_k = 2 x T_(k-1) - T_(k-2), and the same recursion differentiated.
    values, slopes = [envelope], [envelope_slope]
    previous, current = torch.ones_like(x), x
    previous_slope, current_slope = torch.zeros_like(x), torch.ones_like(x)
    half_envelope, half_slope = 0.5 * envelope, 0.5 * envelope_slope
    chain = half_envelope * x_slope
    twice = 2.0 * x
    for k in range(1, count):
        plus_one = current + 1.0
        values.append(plus_one * half_envelope)
        slopes.append(torch.addcmul(current_slope * chain, plus_one, half_slope))
        if k + 1 < count:
            following_slope = torch.addcmul(
                torch.sub(2.0 * current, previous_slope), twice, current_slope
            )
            previous, current = current, torch.addcmul(-previous, twice, current)
            previous_slope, current_slope = current_slope, following_slope
    return torch.stack(values).T.contiguous(), torch.stack(slopes).T.contiguous()
