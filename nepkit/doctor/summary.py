"""The doctor's report as plain text."""

from __future__ import annotations

import textwrap

import numpy as np
import torch

from ..config import ModelSettings
from ..data import check
from ..ops.tables import bytes_of_tables
from ..text import WIDTH, table
from ..train.schedule import default_batch
from ..units import ELEMENTS
from .facts import Facts
from .findings import KINDS, NOTE, SERIOUS, SUSPICIOUS, Finding, by_harm
from .groups import Compositions
from .rules import energy_residuals, pressure

# Findings of a kind that are shown without --all.
SHOWN = 3
# Compositions and sources that are shown.
MOST_ROWS = 5
# Microseconds a step takes for each pair within the radial and the angular cutoff on one core, by
# nepkit bench with float32: measured and estimated ms are 2.6 and 2.6 on data/sige, 7.1 and 5.6 on
# 89 elements, 4.1 and 4.5 on four metals, 6.7 and 4.5 on PbTe with the default n_max.
RADIAL_COST, ANGULAR_COST = 0.5, 0.7
# Bytes that the lists themselves take for a pair, an angular pair and a row.
PAIR_BYTES, ANGULAR_BYTES, ROW_BYTES = 48, 12, 16


def summary(facts: Facts, settings: ModelSettings | None = None, batch: int | None = None) -> str:
    """What is in a file, some lines; with ``settings`` also what a training on it takes."""
    head = f"{facts.path}: {len(facts):,} frames, {facts.n_atoms.sum():,} atoms"
    known = {
        "energy": np.isfinite(facts.energy), "forces": np.isfinite(facts.rms_force),
        "virial": np.isfinite(facts.virial),
    }  # fmt: skip
    rows = [("labels", ", ".join(f"{name} in {_of(has)}" for name, has in known.items()))]
    rows.append(("atoms", f"{_range(facts.n_atoms, '.0f')} a frame"))
    rows.append(("elements", _elements(facts)))
    rows.append(("sources", _sources(facts)))
    rows += _energies(facts)
    if known["forces"].any():
        rows.append(("forces", f"{_range(facts.max_force, '.2f')} eV/Å, the largest of a frame"))
    if np.isfinite(values := pressure(facts)).any():
        rows.append(("pressure", f"{_range(values, '.1f')} GPa, of the virial"))
    near = facts.contact_distance[np.isfinite(facts.contact_distance)]
    if len(near):
        rows.append(("distance", f"{_range(near, '.2f')} Å, the closest pair of a frame by radii"))
    most = facts.most_radial.max(), facts.most_angular.max()
    rows.append(("neighbours", f"at most {most[0]} radial and {most[1]} angular of an atom"))
    if settings is not None:
        rows.append(("estimate", _estimate(facts, settings, batch)))
    return table(head, rows)


def _of(chosen: np.ndarray) -> str:
    return "all" if chosen.all() else f"{chosen.sum():,}"


def _range(values: np.ndarray, form: str) -> str:
    low, middle, high = np.nanpercentile(values, [0, 50, 100])
    if low == high:
        return f"{low:{form}}"
    return f"{low:{form}} to {high:{form}} (median {middle:{form}})"


def _elements(facts: Facts) -> str:
    frames = (facts.counts > 0).sum(0)
    order = [k for k in np.argsort(-frames, kind="stable") if frames[k]]
    names = [f"{ELEMENTS[k]} {frames[k]:,}" for k in order]
    shown = names if len(names) <= 12 else [*names[:8], "...", *names[-3:]]
    return f"{len(names)}; in so many frames: {', '.join(shown)}"


def _sources(facts: Facts) -> str:
    counts = np.bincount(facts.source, minlength=len(facts.sources))
    order = np.argsort(-counts, kind="stable")
    names = [f"{facts.sources[k] or '(no config_type)'} {counts[k]:,}" for k in order]
    more = f" and {len(names) - MOST_ROWS:,} more" if len(names) > MOST_ROWS else ""
    return ", ".join(names[:MOST_ROWS]) + more


def _energies(facts: Facts) -> list[tuple[str, str]]:
    per_atom = facts.energy / facts.n_atoms
    if np.isnan(per_atom).all():
        return []
    residual = energy_residuals(facts)
    usual = check.median_deviation(residual, int(facts.counts.any(0).sum()))
    text = (
        f"{_range(per_atom, '.3f')} eV/atom; usual distance from what the elements have elsewhere "
    )
    rows = [("energy", f"{text}{usual:.3f} eV/atom")]
    groups = sorted(
        Compositions(facts.counts).of(np.isfinite(per_atom), 2), key=lambda g: -len(g[1])
    )
    parts = [
        f"{name} ({len(members):,}) {per_atom[members].min():.3f} to {per_atom[members].max():.3f}"
        for name, members in groups[:MOST_ROWS]
    ]
    if parts:
        more = f"; and {len(groups) - MOST_ROWS:,} more" if len(groups) > MOST_ROWS else ""
        rows.append(("", "; ".join(parts) + more))
    return rows


def _estimate(facts: Facts, settings: ModelSettings, batch: int | None) -> str:
    rows, pairs, angulars = (
        int(values.sum()) for values in (facts.rows, facts.pairs, facts.angulars)
    )
    tables = bytes_of_tables(rows, pairs, angulars, settings, torch.float32)
    lists = pairs * PAIR_BYTES + angulars * ANGULAR_BYTES + rows * ROW_BYTES
    batch = batch or default_batch(len(facts), int(facts.n_atoms.sum()))
    batch = min(batch, len(facts))
    work = (pairs * RADIAL_COST + angulars * ANGULAR_COST) * batch / len(facts)
    return (
        f"{pairs:,} pairs; {_bytes(lists)} of lists and {_bytes(tables)} of constants in float32, "
        f"kept in memory if they fit; very roughly {max(1e-3 * work, 1.0):.0f} ms a step of {batch} "
        "frames on one core (nepkit bench measures it)"
    )


def _bytes(number: float) -> str:
    return f"{number / 1e9:.1f} GB" if number >= 1e9 else f"{number / 1e6:.0f} MB"


def told(findings: list[Finding], everything: bool) -> str:
    """All findings, the worst first; without ``everything`` a few of each kind."""
    counts = {
        severity: sum(finding.severity == severity for finding in findings)
        for severity in (SERIOUS, SUSPICIOUS, NOTE)
    }
    counts = [f"{n:,} {severity}" for severity, n in counts.items()]
    lines = [f"findings: {', '.join(counts)}{'s' * (not counts[-1].startswith('1 '))}"]
    for kind, members in by_harm(findings).items():
        severity, title = KINDS[kind]
        lines.append(f"{severity}: {title} ({len(members):,})")
        shown = members if everything else members[:SHOWN]
        for finding in shown:
            lines += textwrap.wrap(
                str(finding), WIDTH, initial_indent="  ", subsequent_indent="    ",
                break_long_words=False, break_on_hyphens=False,
            )  # fmt: skip
        if len(members) > len(shown):
            lines.append(f"  and {len(members) - len(shown):,} more (--all shows them)")
    return "\n".join(lines)
