"""A potential of fewer elements, cut out of a larger one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from .nep_txt import NepFile


def slim(file: NepFile, elements: Sequence[str]) -> NepFile:
    """The potential of ``elements``, any of those of ``file`` in any order; all numbers are kept.

    Raises ValueError for an element that ``file`` does not have.
    """
    settings = file.settings
    chosen = [settings.elements.index(element) for element in elements]
    zbl = settings.zbl
    if zbl is not None and zbl.flexible is not None:
        rows = [
            _pair_row(a, b, len(settings.elements))
            for k, a in enumerate(chosen)
            for b in chosen[k:]
        ]
        zbl = replace(zbl, flexible=tuple(zbl.flexible[row] for row in rows))
    radial, angular = (
        tuple(cutoffs[k] for k in chosen)
        for cutoffs in (settings.radial_cutoff, settings.angular_cutoff)
    )
    settings = replace(
        settings, elements=tuple(elements), radial_cutoff=radial, angular_cutoff=angular, zbl=zbl
    )
    return replace(
        file,
        settings=settings,
        hidden_weight=tuple(weight[chosen] for weight in file.hidden_weight),
        hidden_bias=tuple(bias[chosen] for bias in file.hidden_bias),
        output_weight=file.output_weight[chosen],
        radial_coefficients=file.radial_coefficients[chosen][:, chosen],
        angular_coefficients=file.angular_coefficients[chosen][:, chosen],
    )


def _pair_row(one: int, other: int, n_types: int) -> int:
    """Row of a pair of types in GPUMD's order of flexible ZBL, t1 <= t2."""
    low, high = sorted((one, other))
    return low * n_types - low * (low - 1) // 2 + high - low
