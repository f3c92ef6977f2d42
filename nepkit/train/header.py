"""Whether a nep.txt is the model that nep.in describes."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

from ..config import ModelSettings
from ..errors import UserError


def check_header(path: Path, there: ModelSettings, here: ModelSettings):
    """Refuse a nep.txt that is not the model of nep.in."""
    for field in fields(ModelSettings):
        found, wanted = getattr(there, field.name), getattr(here, field.name)
        if _rounded(found) != _rounded(wanted):
            raise UserError(f"{path}: {field.name} is {found}, but nep.in asks for {wanted}")


def _rounded(value: object) -> object:
    """A setting with its numbers as GPUMD's %g writes them into a header."""
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, tuple):
        return tuple(map(_rounded, value))
    if hasattr(value, "__dataclass_fields__"):
        return tuple(_rounded(getattr(value, field.name)) for field in fields(value))
    return value
