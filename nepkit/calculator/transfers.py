"""Copies between host and device that wait for nothing but each other."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor


def sent(groups: Sequence[Sequence[np.ndarray]], device: torch.device) -> list[Tensor]:
    """Rows of three float64, one array below the other in each group (M, 3), on ``device``.

    By one copy, from memory that the device reads by itself while the host goes on.
    """
    flat = [values.ravel() for group in groups for values in group]
    sizes = [sum(values.size for values in group) for group in groups]
    host = torch.empty(sum(sizes), dtype=torch.float64, pin_memory=device.type == "cuda")
    np.concatenate(flat, out=host.numpy())
    return [part.view(-1, 3) for part in host.to(device, non_blocking=True).split(sizes)]


def read(values: Tensor) -> np.ndarray:
    """``values`` on the host, as soon as the device has them; an array that nobody else has."""
    on_gpu = values.device.type == "cuda"
    host = torch.empty(values.shape, dtype=values.dtype, pin_memory=on_gpu)
    host.copy_(values, non_blocking=True)
    if on_gpu:
        torch.cuda.current_stream(values.device).synchronize()
    return host.numpy()
