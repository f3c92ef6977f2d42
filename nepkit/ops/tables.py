"""What evaluations need of the pairs of a structure, which no trainable number changes."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import torch
from torch import Tensor

from ..config import ModelSettings
from ..data.batch import Batch
from ..data.structures import Structures
from .basis import radial_functions
from .harmonics import component_count, solid_harmonics

# What may be kept of the pairs of a data set, and which members each belongs to. Kept, a batch has
# the tables of the whole set; computed, those of its own pairs.
PAIR_TABLES = {
    "vectors": "halves", "unit": "halves", "radial_slope": "halves",
    "angular_basis": "angulars", "harmonics": "angulars",
    "radial_density": "rows", "angular_density": "rows",
}  # fmt: skip


def with_tables(batch: Batch, settings: ModelSettings, dtype: torch.dtype) -> Batch:
    """``batch`` with its ``pair_tables`` among its tables, computed where they are not kept."""
    if "unit" in batch.tables:
        return batch
    return replace(batch, tables=batch.tables | pair_tables(batch, settings, dtype))


def kept(batch: Batch) -> bool:
    """Whether the batch's tables of pairs are those of the whole set."""
    return "radial_density" in batch.tables


def pair_tables(
    batch: Batch,
    settings: ModelSettings,
    dtype: torch.dtype,
    angular_vectors: Tensor | None = None,
) -> dict[str, Tensor]:
    """What the maps need of each pair: directions, radial functions, harmonics, and derivatives.

    vectors and unit (H, 3), radial and radial_slope (H, K_R), angular_basis (Q, 2, K_A) with f and
    f', harmonics (Q, 4, L) with Y and its gradient.

    Computed in float64, as the recursions lose digits near the ends, then rounded once to ``dtype``.
    ``angular_vectors``: those of the angular pairs (Q, 3), where they are to be differentiated by
    themselves; taken out of ``batch.vectors`` their gradient would be scattered.
    """
    vectors, angular = batch.vectors, batch.angular
    distance = vectors.norm(dim=1)
    cutoff = _cutoffs(settings.radial_cutoff, batch)
    radial, radial_slope = radial_functions(distance, cutoff, settings.basis_size[0] + 1)
    cutoff = _cutoffs(settings.angular_cutoff, batch)
    if isinstance(cutoff, Tensor):
        cutoff = cutoff.index_select(0, angular)
    if angular_vectors is None:
        angular_vectors = vectors.index_select(0, angular)
        angular_distance = distance.index_select(0, angular)
    else:
        angular_distance = angular_vectors.norm(dim=1)
    basis = radial_functions(angular_distance, cutoff, settings.basis_size[1] + 1)
    harmonics, gradient = solid_harmonics(angular_vectors, angular_distance, settings.l_max)
    tables = {
        "vectors": vectors,
        "unit": vectors / distance[:, None],
        "radial": radial,
        "radial_slope": radial_slope,
        "angular_basis": torch.stack(basis, dim=1),
        "harmonics": torch.cat([harmonics[:, None], gradient], dim=1),
    }
    return {name: values.to(dtype) for name, values in tables.items()}


def all_tables(
    structures: Structures, settings: ModelSettings, chunk: int = 64
) -> dict[str, Tensor]:
    """``pair_tables`` of all frames, computed a chunk of frames at a time."""
    parts = []
    for start in range(0, len(structures), chunk):
        frames = torch.arange(start, min(start + chunk, len(structures)), device=structures.device)
        parts.append(pair_tables(structures.batch(frames), settings, structures.dtype))
    return {name: torch.cat([part[name] for part in parts]) for name in parts[0]}


def table_bytes(structures: Structures, settings: ModelSettings) -> int:
    """Memory that ``all_tables`` and the densities of all frames take."""
    _, *counts = structures.counts.sum(0).tolist()
    return bytes_of_tables(*counts, settings, structures.dtype)


def bytes_of_tables(
    rows: int, halves: int, angulars: int, settings: ModelSettings, dtype: torch.dtype
) -> int:
    """The same, from the numbers of rows, pairs and angular pairs of all frames."""
    n_radial, n_angular = (size + 1 for size in settings.basis_size)
    n_components = component_count(settings.l_max)
    numbers = halves * (6 + 2 * n_radial) + angulars * (2 * n_angular + 4 * n_components)
    numbers += rows * (n_radial + n_angular * n_components)
    return numbers * dtype.itemsize


def _cutoffs(per_element: tuple[float, ...], batch: Batch) -> Tensor | float:
    """Cutoff of each pair (H,) by the mean of its elements', or one number where all are equal."""
    if len(set(per_element)) == 1:
        return per_element[0]
    values = _on_device(per_element, batch.vectors.device).index_select(0, batch.types)
    ends = values.index_select(0, batch.center) + values.index_select(0, batch.neighbor)
    return 0.5 * ends


@cache
def _on_device(per_element: tuple[float, ...], device: torch.device) -> Tensor:
    """Kept, as a captured graph may copy nothing from the host."""
    return torch.tensor(per_element, dtype=torch.float64, device=device)
