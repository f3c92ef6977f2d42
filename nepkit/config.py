"""nep.in: GPUMD's keywords and ours, read into one frozen configuration."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType

from .errors import UserError
from .keywords import EXCLUSIVE, HIGHER_INVARIANTS, KEYWORDS, keywords_of
from .nep_in import Block, read_blocks, to_nep_in
from .settings import ModelSettings, Zbl, read_model

__all__ = [
    "HIGHER_INVARIANTS",
    "ModelSettings",
    "NepConfig",
    "Stage",
    "Zbl",
    "read_nep_in",
    "to_nep_in",
]


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
    freeze: str | None = None  # the part of a fine-tuned potential that stays as it is
    new_elements: tuple[str, ...] = ()  # that the potential to fine-tune does not have
    shared_base: bool | None = None  # whether elements borrow from each other; None: by the data
    output_descriptor: int = 0
    save_potential: tuple[int, int, int] = (100000, 1, 0)  # interval, name form, with restart file
    output_interval: int = 100
    seed: int = 0
    valid_ratio: float = 0.0  # part of the training frames that is held out
    early_stop: int = 0  # steps without a better model that end the training; 0: never
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
    model = read_model(blocks[0], Path(path))
    settings = {name: blocks[0][name].values[0] for name in keywords_of("run") if name in blocks[0]}
    for name in {"save_potential", "fine_tune", "new_elements"} & settings.keys():
        settings[name] = blocks[0][name].values
    for name in ("freeze", "new_elements"):
        if name in settings and "fine_tune" not in settings:
            raise blocks[0][name].error("is for fine_tune alone, which is not there")
    if settings.get("shared_base") and "fine_tune" in settings:
        raise blocks[0]["shared_base"].error("is for new models; fine_tune has a start of its own")
    if "save_potential" in settings:  # the third value is missing in older files
        settings["save_potential"] = (*settings["save_potential"], 0)[:3]
    config = NepConfig(model, _stages(blocks, len(model.elements)), **settings)
    return replace(config, notes=_notes(blocks, config))


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
