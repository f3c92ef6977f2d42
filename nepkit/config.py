"""nep.in: GPUMD's keywords and ours, read into one frozen configuration."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType

from .errors import UserError
from .keywords import EXCLUSIVE, HIGHER_INVARIANTS, KEYWORDS, keywords_of
from .nep_in import Block, read_blocks, read_flexible_zbl, to_nep_in

__all__ = [
    "HIGHER_INVARIANTS",
    "ModelSettings",
    "NepConfig",
    "Stage",
    "Zbl",
    "read_nep_in",
    "to_nep_in",
]

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


@dataclass(frozen=True)
class Stage:
    """How one stage of the training runs. ``None``: chosen from the data and the model."""

    generation: int | None = None  # steps
    epoch: int | None = None  # passes over the data, instead of generation
    batch: int | None = None  # frames a step
    batch_atoms: int | None = None  # atoms a step, instead of batch
    learning_rate: tuple[float, float] = (0.01, 1e-5)  # start, stop
    warmup: int = 100  # steps
    weight_decay: float | None = None
    optimizer: str = "adamw"
    loss_form: str = "mse"
    max_grad_norm: float = 1.0
    ema: float = 0.999
    lambda_e: float = 1.0
    lambda_f: float = 1.0
    lambda_v: float = 0.1
    lambda_1: float = 0.0
    lambda_2: float = 0.0
    lambda_shear: float = 1.0
    force_delta: float = 0.0
    type_weight: tuple[float, ...] = ()  # one an element


@dataclass(frozen=True)
class NepConfig:
    """A nep.in, understood."""

    model: ModelSettings
    stages: tuple[Stage, ...] = (Stage(),)
    prediction: bool = False
    import_q_scaler: bool = False
    fine_tune: tuple[str | bool, ...] = ()  # nep.txt, nep.restart, whether the descriptor trains
    output_descriptor: int = 0
    save_potential: tuple[int, int, int] = (100000, 1, 0)  # interval, name form, with restart file
    output_interval: int = 100
    seed: int = 0
    notes: tuple[str, ...] = ()  # lines for the log: keywords without effect, numbers replaced


def read_nep_in(
    path: str | os.PathLike, overrides: Mapping[str, object] = MappingProxyType({})
) -> NepConfig:
    """Read a nep.in, and the zbl.in beside it where ``zbl`` is set.

    ``overrides`` are keywords from the command line or Python, ``{"neuron": 40,
    "cutoff": (6, 5), "learning_rate": "1e-2 1e-5"}``. Each replaces the file's lines of that
    keyword, and of one that excludes it (``epoch``, ``generation``), in all stages.

    The keywords above the first ``stage`` line are stage 1, and every ``stage`` line begins one
    more, which inherits what the stage before it has. A ``batch`` or ``generation`` that is
    GPUMD's default, or ``auto``, is None: chosen from the data later. A last word ``exact``
    (``generation 100000 exact``) keeps the number, as the command line does.

    Raises UserError with file, line number and the line quoted.
    """
    blocks = read_blocks(path, overrides)
    if "type" not in blocks[0]:
        reason = 'no line begins with "type": add one, as in "type 2 Te Pb"'
        raise UserError(f"{os.fspath(path)}: {reason}")
    model = _model(blocks[0], Path(path))
    settings = {name: blocks[0][name].values[0] for name in keywords_of("run") if name in blocks[0]}
    for name in {"save_potential", "fine_tune"} & settings.keys():
        settings[name] = blocks[0][name].values
    if "save_potential" in settings:  # the third value is missing in older files
        settings["save_potential"] = (*settings["save_potential"], 0)[:3]
    config = NepConfig(model, _stages(blocks, len(model.elements)), **settings)
    return replace(config, notes=_notes(blocks, config))


def _model(lines: Block, path: Path) -> ModelSettings:
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


def _stages(blocks: list[Block], count: int) -> tuple[Stage, ...]:
    """One stage a block, each beginning from the one before it."""
    # A potential that is good already is not thrown about.
    first, stages = Stage(learning_rate=(2e-3, 1e-5)) if "fine_tune" in blocks[0] else Stage(), []
    for block in blocks:
        changes = {}
        for name, line in block.items():
            if KEYWORDS[name].scope != "stage":
                continue
            if name == "type_weight" and len(line.values) != count:
                raise line.error(
                    f"{len(line.values)} values: give one for each of the {count} elements of type"
                )
            whole_line = name in ("learning_rate", "type_weight")
            changes[name] = line.values if whole_line else line.values[0]
        # Keywords that exclude each other do so also when inherited.
        changes |= {EXCLUSIVE[name]: None for name in changes if name in EXCLUSIVE}
        stages.append(replace(stages[-1] if stages else first, **changes))
    return tuple(stages)


def _notes(blocks: list[Block], config: NepConfig) -> tuple[str, ...]:
    """Lines for the log: what has no effect, and which numbers are replaced."""
    model, top = config.model, blocks[0]
    idle = [name for name in top if KEYWORDS[name].scope == "idle"]
    for line in (line for block in blocks for line in block.values()):
        said = dict(zip(KEYWORDS[line.keyword].names, line.values, strict=False))
        idle += [name for name in ("use_full_batch", "flip_charge") if said.get(f"[{name}]")]
    if "use_typewise_cutoff_zbl" in top and (model.zbl is None or model.zbl.flexible):
        idle.append("use_typewise_cutoff_zbl")
    notes = ["without effect here: " + ", ".join(dict.fromkeys(idle))] if idle else []
    for name in ("generation", "batch"):
        if any(name in block and block[name].replaced for block in blocks):
            default = f"{name} {KEYWORDS[name].gpumd_default}"
            notes.append(
                f"{default} is GPUMD's default for its evolutionary training: replaced, chosen "
                f'from the data; write "{default} exact" to keep it'
            )
    if model.l_max == 1:
        notes.append("l_max 1: GPUMD's own trainer takes 2 to 8")
    return tuple(notes)
