"""Where the data of a run live: what fits lies ready on the device, the rest is sent or computed."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextvars import ContextVar

import torch

from ..config import ModelSettings
from ..data.prepared import Prepared, prepare
from ..data.windows import Windows
from ..model.evaluator import attach_constants, keep_constants
from ..ops.policy import during, fused_on
from ..ops.tables import table_bytes
from .place import processes_here
from .reading import Source

# Part of the free memory that data may fill: steps need the rest.
PART = {"cpu": 0.25, "cuda": 0.6}
# Bytes of host memory that the pairs of a data set may take before they are read in parts.
HOST = 1e9
# The share of it that a part takes: one is worked on, one is read, and there are targets.
WINDOW = 0.3
_forced: ContextVar[float | None] = ContextVar("nepkit_memory_budget", default=None)


def memory_budget(n_bytes: float):
    """Run the block as if data might take so much memory of the device, for tests."""
    return during(_forced, n_bytes)


def budget(device: torch.device) -> float:
    """Bytes of the device's memory that data may take."""
    if (forced := _forced.get()) is not None:
        return forced
    if device.type == "cuda":
        return PART["cuda"] * torch.cuda.mem_get_info(device)[0]
    try:
        whole = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        return PART["cpu"] * whole / processes_here()
    except (AttributeError, ValueError):  # Windows
        return 2e9


def host_budget() -> float:
    """Bytes of host memory that the pairs of a data set may take."""
    forced = _forced.get()
    return HOST if forced is None else forced


def made_ready(
    source: Source,
    settings: ModelSettings,
    device: torch.device,
    dtype: torch.dtype,
    title: str | None,
) -> Prepared:
    """The frames of ``source`` with their neighbours, where there is room for them.

    In host memory; on a GPU, where they fit there alone; else a window at a time.
    """
    store = source.store
    if store is None:
        return prepare(source.frames, settings, device="cpu", dtype=dtype, progress=title)
    if store.bytes() <= host_budget():
        return store.prepared(dtype=dtype)
    if device.type == "cuda" and store.bytes() <= budget(device):
        return store.prepared(device=device, dtype=dtype)
    windows = Windows(store, dtype, WINDOW * host_budget())
    return Prepared(store.labels, windows, store.surroundings)


def settle(
    sets: list[Prepared],
    settings: ModelSettings,
    device: torch.device,
    constants: bool,
    log: Callable[[str], None],
):
    """Move data sets to ``device`` as far as they fit, with the constants of their pairs.

    ``constants``: whether evaluations read them.
    """
    room = budget(device)
    for data in sets:
        structures = data.structures
        data_bytes, constant_bytes = structures.bytes(), table_bytes(structures, settings)
        if isinstance(structures, Windows):
            log(
                f"{len(data)} frames: {data_bytes / 1e6:.0f} MB of neighbours, of which "
                f"{structures.number} parts an epoch are read from {structures.store.path}"
            )
            continue
        if structures.device.type == "cuda":  # counted in what is free
            data_bytes = 0
        resident = device.type == "cpu" or data_bytes <= room
        kept = constants and resident and data_bytes + constant_bytes <= room
        if device.type == "cuda":
            here = structures.bytes()
            _tell(log, len(data), here, constant_bytes, resident, kept or not constants)
        if resident:
            structures.move(device)
            room -= data_bytes
        if kept:
            keep = keep_constants if fused_on(device) else attach_constants
            keep(structures, settings)
            room -= constant_bytes


def _tell(log, n_frames: int, data_bytes: int, constant_bytes: int, resident: bool, kept: bool):
    place = "on the GPU" if resident else "in host memory, sent to the GPU batch by batch"
    constants = "" if kept else f"; {constant_bytes / 1e6:.0f} MB of constants computed each step"
    log(f"{n_frames} frames: {data_bytes / 1e6:.0f} MB {place}{constants}")
