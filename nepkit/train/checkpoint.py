"""The state of a run on disk: written whole, loaded without unpickling code."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import torch

from ..config import NepConfig
from ..errors import UserError
from ..files import digest, write_atomically

VERSION = 5
NAME = "checkpoint.pt"
# The entries that every checkpoint has.
ENTRIES = {
    "version", "identity", "steps", "stage", "done", "best", "spent", "finished", "flat",
    "q_scaler", "file_q_scaler", "element_energy", "step", "loss_out", "history",
}  # fmt: skip
_ADVICE = "start anew with --restart"


def save(folder: Path, state: dict):
    """Write ``state``, of tensors and plain values."""
    state = {"version": VERSION, **state}
    write_atomically(folder / NAME, lambda file: torch.save(state, file))


def load(folder: Path) -> dict | None:
    """Read what ``save`` wrote, tensors on the CPU; None where there is no checkpoint."""
    path = folder / NAME
    return read(path) if path.exists() else None


def read(path: Path) -> dict:
    """A checkpoint, under whatever name."""
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:
        reason = f"cannot be read: {error.strerror}" if isinstance(error, OSError) else "damaged"
        raise UserError(f"{path}: {reason}, or not a checkpoint of nepkit; {_ADVICE}") from error
    version = state.get("version") if isinstance(state, dict) else None
    if version != VERSION:
        raise UserError(
            f"{path}: checkpoint format {version}, this nepkit reads {VERSION}; {_ADVICE}"
        )
    if missing := ENTRIES - state.keys():
        raise UserError(f"{path}: {', '.join(sorted(missing))} missing; {_ADVICE}")
    return state


def identity(config: NepConfig, precision: torch.dtype, data: dict[str, Path]) -> dict[str, str]:
    """What must stay the same for a run to go on: model keywords, precision, seed and data."""
    model = {f.name: repr(getattr(config.model, f.name)) for f in fields(config.model)}
    files = {f"content of {path.name}": digest(path) for path in data.values()}
    name = str(precision).removeprefix("torch.")
    return {**model, "precision": name, "seed": str(config.seed), **files}


def check(state: dict, now: dict[str, str], config: NepConfig, folder: Path):
    """Refuse to go on with a run of other data, another model or other steps; says what differs."""
    before = state["identity"]
    changes = [
        _change(key, before.get(key), now.get(key))
        for key in {**before, **now}
        if before.get(key) != now.get(key)
    ]
    steps = [stage.generation for stage in config.stages]
    stage = state["stage"]
    if steps[:stage] != state["steps"][:stage] or stage >= len(steps):
        changes.append(f"steps of stage 1 to {stage} were {state['steps'][:stage]}, now {steps}")
    elif sum(steps[: stage + 1]) < state["done"]:
        changes.append(f"it has taken {state['done']} steps, now there are only {sum(steps)}")
    if changes:
        raise UserError(
            f"{folder / NAME} belongs to another run: {'; '.join(changes)}.\n"
            "Undo the change, give another folder with --out, or start anew with --restart."
        )


def _change(key: str, before: str | None, now: str | None) -> str:
    if before is None or now is None:
        return f"{key.removeprefix('content of ')} is {'gone' if now is None else 'new'}"
    if key.startswith("content of "):
        return f"{key} has changed"
    return f"{key} was {before}, now {now}"
