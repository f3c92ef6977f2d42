"""Which form of the contraction runs where: one table, from measurements."""

from __future__ import annotations

from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from importlib.util import find_spec
from typing import NamedTuple

import torch

FORMS = ("loop", "bmm", "mulsum")


class Contract(NamedTuple):
    """How rows meet the coefficients of their pair type."""

    form: str  # one of FORMS
    one_hot: bool  # coefficients reach rows by a product with a one-hot matrix, not by a gather


_reference: ContextVar[bool] = ContextVar("nepkit_reference_path", default=False)
_forced: ContextVar[Contract | None] = ContextVar("nepkit_contraction", default=None)


def contraction_policy(device_type: str, compiled: bool, n_types: int) -> Contract:
    """The form for ``n_types`` elements on a device ("cuda" is ROCm too).

    | device         | eager                      | compiled |
    |----------------|----------------------------|----------|
    | CPU, MPS       | bmm                        | mulsum   |
    | CUDA, ROCm     | mulsum to 32 types, or bmm | mulsum   |

    One-hot on ROCm, where the backward of a gather is slow, and up to 32 types on CUDA; beyond
    them, and on CPUs and MPS, a gather, whose adjoint sums the rows sorted by pair type.

    Over pairs, loop wins on CPUs below 20 types; over rows, which are fewer, ordering the densities
    by pair type costs more than it saves. Whole eager steps on two CPU cores in ms, loop, bmm,
    mulsum: PbTe 51, 43, 53; NbMoTaW 33, 29, 24; 89 elements 321, 34, 60.
    """
    if forced := _forced.get():
        return forced
    if device_type != "cuda":
        return Contract("mulsum" if compiled else "bmm", False)
    form = "mulsum" if compiled or n_types <= 32 else "bmm"
    return Contract(form, torch.version.hip is not None or n_types <= 32)


def network_tile(device_type: str) -> int:
    """Atoms of one element that its network takes at once."""
    return 32 if device_type == "cuda" else 8


def fused_on(device: torch.device) -> bool:
    """Whether the fused kernels run on ``device``: CPUs, where numba is installed."""
    return device.type == "cpu" and not _reference.get() and find_spec("numba") is not None


@cache
def _triton_found() -> bool:
    return find_spec("triton") is not None


def kernels_on(device: torch.device) -> bool:
    """Whether Triton's kernels run on ``device``."""
    return device.type == "cuda" and _triton_found() and not _reference.get()


@contextmanager
def during(variable: ContextVar, value):
    """Run the block with ``value`` in ``variable``."""
    token = variable.set(value)
    try:
        yield
    finally:
        variable.reset(token)


def reference_path():
    """Run the block in plain torch, neither fused nor compiled, for tests and benchmarks."""
    return during(_reference, True)


def on_reference_path() -> bool:
    """Whether the block runs in plain torch."""
    return _reference.get()


def forced_contraction(form: str, one_hot: bool = False):
    """Run the block with one form, for tests and benchmarks."""
    if form not in FORMS:
        raise ValueError(f"unknown form {form!r}: one of {', '.join(FORMS)}")
    return during(_forced, Contract(form, one_hot))
