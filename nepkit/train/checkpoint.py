"""The state of a run on disk: written whole, loaded without unpickling code."""

from __future__ import annotations

import hashlib
from dataclasses import fields
from pathlib import Path

import torch

from ..config import ModelSettings
from ..errors import UserError
from ..files import write_atomically

VERSION = 1
NAME = "checkpoint.pt"


def save(folder: Path, state: dict):
    """Write ``state``, of tensors and plain values."""
    state = {"version": VERSION, **state}
    write_atomically(folder / NAME, lambda file: torch.save(state, file))


def load(folder: Path) -> dict:
    """Read what ``save`` wrote; tensors on the CPU."""
    path = folder / NAME
    advice = "start anew with --restart"
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:
        raise UserError(f"{path}: not a checkpoint of nepkit or damaged; {advice}") from error
    version = state.get("version") if isinstance(state, dict) else None
    if version != VERSION:
        raise UserError(f"{path}: checkpoint format {version}, this nepkit reads {VERSION}; {advice}")
    return state


def fingerprint(path: Path) -> str:
    """SHA-256 of a file; empty where there is none."""
    if not path.exists():
        return ""
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def identity(settings: ModelSettings, precision: str, seed: int, data: dict[str, Path]) -> dict:
    """What must stay the same for a run to go on: model keywords, precision, seed and data."""
    model = {field.name: repr(getattr(settings, field.name)) for field in fields(settings)}
    files = {f"content of {name}": fingerprint(path) for name, path in data.items()}
    return {**model, "precision": precision, "seed": seed, **files}


def check_identity(saved: dict, now: dict, folder: Path):
    """Refuse to go on with a run of other data or another model, saying what differs."""
    changed = [key for key in now if saved.get(key) != now[key]]
    if changed:
        what = "; ".join(
            f"{key} has changed" if key.startswith("content") else f"{key} was {saved.get(key)}, now {now[key]}"
            for key in changed
        )
        raise UserError(
            f"{folder / NAME} belongs to another run: {what}.\n"
            "Undo the change, give another --out, or start anew with --restart."
        )
