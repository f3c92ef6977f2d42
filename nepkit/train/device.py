"""The device and precision of a run."""

from __future__ import annotations

import torch

from ..errors import UserError

PRECISIONS = {"float32": torch.float32, "float64": torch.float64}
FORCE_MODES = ("analytic", "autograd")


def choose_device(name: str) -> torch.device:
    """The device called ``name``; ``auto`` is a GPU where there is one, else the CPU."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        # Sums of energies need float64, which not every device has.
        torch.zeros(1, device=device, dtype=torch.float64).cpu()
    except (RuntimeError, AssertionError, NotImplementedError, TypeError) as error:
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        raise UserError(f"device {name}: cannot be used ({reason}); try --device cpu") from error
    return device


def describe_device(device: torch.device) -> str:
    """The device for people."""
    if device.type == "cuda":
        return f"{torch.cuda.get_device_name(device)} ({device})"
    if device.type == "cpu":
        threads = torch.get_num_threads()
        return f"CPU, {threads} thread{'s' if threads > 1 else ''}"
    return str(device)


def precision_type(name: str) -> torch.dtype:
    """float32 or float64."""
    if name not in PRECISIONS:
        raise UserError(f"precision {name}: use float32 or float64")
    return PRECISIONS[name]


def check_force_mode(name: str) -> str:
    """analytic or autograd."""
    if name not in FORCE_MODES:
        raise UserError(f"force_mode {name}: use analytic or autograd")
    return name
