"""The model keywords of nep.in: what defines a model besides its parameters."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from .keywords import HIGHER_INVARIANTS
from .nep_in import Block, read_flexible_zbl

MOST_ANGULAR = 90  # angular descriptor components that GPUMD has room for


@dataclass(frozen=True)
class Zbl:
    """The screened nuclear repulsion: universal, typewise or flexible.

    ``flexible`` holds ten numbers a pair of types t1 <= t2, rows in GPUMD's order
    (inner, outer, a1..a8); the other fields are then 0 and None.
    """

    inner: float  # Å
    outer: float  # Å
    typewise_factor: float | None = None
    flexible: tuple[tuple[float, ...], ...] | None = None


@dataclass(frozen=True)
class ModelSettings:
    """What defines a NEP4 model besides its parameters: the header of a nep.txt."""

    elements: tuple[str, ...]
    radial_cutoff: tuple[float, ...]  # Å, one an element; a pair takes the mean
    angular_cutoff: tuple[float, ...]  # Å, one an element
    n_max: tuple[int, int] = (6, 6)  # radial, angular; functions = n_max + 1
    basis_size: tuple[int, int] = (6, 6)  # radial, angular; functions = basis_size + 1
    l_max: int = 4
    invariants: tuple[str, ...] = ("q222",)  # of HIGHER_INVARIANTS, in that order
    neuron: tuple[int, ...] = (30,)  # one or two hidden layers
    zbl: Zbl | None = None

    @property
    def descriptor_length(self) -> int:
        """Number of descriptor components D."""
        return self.n_max[0] + 1 + self.angular_length

    @property
    def angular_length(self) -> int:
        """Number of angular descriptor components."""
        return (self.l_max + len(self.invariants)) * (self.n_max[1] + 1)


def read_model(lines: Block, path: Path) -> ModelSettings:
    """The model that the keywords of the first block define."""
    count, *elements = lines["type"].values
    if count != len(elements):
        raise lines["type"].error(f"{len(elements)} elements follow, not {count}")
    for symbol in elements:
        if elements.count(symbol) > 1:
            raise lines["type"].error(f"{symbol} is there twice, name each element once")
    radial, angular = _cutoffs(lines, count)
    written = {name: lines[name].values for name in ("n_max", "basis_size") if name in lines}
    if "neuron" in lines:  # a second layer of 0 neurons is none
        written["neuron"] = tuple(filter(None, lines["neuron"].values))
    if "l_max" in lines:
        written["l_max"], written["invariants"] = _l_max(lines)
    model = ModelSettings(tuple(elements), radial, angular, zbl=_zbl(lines, count, path), **written)
    if model.angular_length > MOST_ANGULAR:
        # The default l_max fits with every n_max, so there is an l_max line to blame.
        raise lines["l_max"].error(
            f"{model.angular_length} angular descriptor components, (l_max + invariants) x "
            f"(angular n_max + 1), but at most {MOST_ANGULAR} are possible: lower l_max or n_max"
        )
    return model


def _cutoffs(lines: Block, count: int) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Radial and angular cutoffs (Å), one of each an element."""
    if "cutoff" not in lines:
        return (8.0,) * count, (4.0,) * count
    values = lines["cutoff"].values
    if len(values) not in (2, 2 * count):
        raise lines["cutoff"].error(
            f"{len(values)} values: give a radial and an angular cutoff, or such a pair for each "
            f"of the {count} elements of type"
        )
    radial, angular = values[::2], values[1::2]
    for outer, inner in zip(radial, angular, strict=True):
        if inner > outer:
            raise lines["cutoff"].error(
                f"angular cutoff {inner:g} above the radial cutoff {outer:g}: lower it"
            )
    return (radial, angular) if len(values) == 2 * count else (radial * count, angular * count)


def _l_max(lines: Block) -> tuple[int, tuple[str, ...]]:
    """l_max and the higher invariants of an l_max line; a flag is on unless it is 0."""
    l_max, *flags = lines["l_max"].values
    if not flags:  # q222 keeps its default, on, where it is possible
        return l_max, ("q222",) if l_max >= 2 else ()
    invariants = tuple(name for name, flag in zip(HIGHER_INVARIANTS, flags, strict=False) if flag)
    for name in invariants:
        if HIGHER_INVARIANTS[name] > l_max:
            raise lines["l_max"].error(
                f"{name} needs l_max {HIGHER_INVARIANTS[name]} or more, not {l_max}: "
                "write 0 for it or raise l_max"
            )
    return l_max, invariants


def _zbl(lines: Block, count: int, path: Path) -> Zbl | None:
    """The repulsion: flexible with a zbl.in beside nep.in, else universal or typewise."""
    if "zbl" not in lines:
        return None
    table = path.with_name("zbl.in")
    if table.exists():
        return Zbl(0.0, 0.0, flexible=read_flexible_zbl(table, count))
    (outer,) = lines["zbl"].values
    factor = None
    if "use_typewise_cutoff_zbl" in lines:
        factor = (*lines["use_typewise_cutoff_zbl"].values, 0.7)[0]
    return Zbl(outer / 2, outer, factor)
