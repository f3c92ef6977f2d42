"""Which form of the contraction runs where: one table, from measurements."""

from __future__ import annotations

from contextlib import contextmanager
from contextvars import ContextVar
from importlib.util import find_spec

import torch

FORMS = ("loop", "bmm", "mulsum")
_reference: ContextVar[bool] = ContextVar("nepkit_reference_path", default=False)
_forced: ContextVar[str | None] = ContextVar("nepkit_contraction_form", default=None)


def contraction_form(device: torch.device, n_types: int) -> str:
    """The form for eager work on ``device`` with ``n_types`` elements."""
    if form := _forced.get():
        return form
    if device.type == "cuda":  # also ROCm
        return "mulsum" if n_types <= 32 else "bmm"
    # Over pairs, loop wins below 20 types; over rows, which are fewer, ordering the densities by
    # pair type costs more than it saves. Whole steps on two CPU cores in ms, loop, bmm, mulsum:
    # PbTe 51, 43, 53; NbMoTaW 33, 29, 24; 89 elements 321, 34, 60.
    return "bmm"


def fused_on(device: torch.device) -> bool:
    """Whether the fused kernels run on ``device``: CPUs, where numba is installed."""
    return device.type == "cpu" and not _reference.get() and find_spec("numba") is not None


@contextmanager
def reference_path():
    """Run the block without fused kernels, for tests and benchmarks."""
    token = _reference.set(True)
    try:
        yield
    finally:
        _reference.reset(token)


@contextmanager
def forced_contraction(form: str):
    """Run the block with one form, for tests and benchmarks."""
    if form not in FORMS:
        raise ValueError(f"unknown form {form!r}: one of {', '.join(FORMS)}")
    token = _forced.set(form)
    try:
        yield
    finally:
        _forced.reset(token)
