"""Whether a nep.txt is the model that nep.in describes."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

from ..config import ModelSettings
from ..errors import UserError
from ..nep_in import line_of, model_rows


def check_header(path: Path, there: ModelSettings, here: ModelSettings):
    """Refuse a nep.txt that is not the model of nep.in."""
    if _rounded(there) == _rounded(here):
        return
    rows, own = ({row[0]: row for row in model_rows(model)} for model in (there, here))
    wrong = [line_of(row) for name, row in rows.items() if _rounded(row) != _rounded(own.get(name))]
    more = [line_of(row) for name, row in own.items() if name not in rows]
    lines = ["write in nep.in", *wrong] * bool(wrong) + ["leave out", *more] * bool(more)
    advice = "\n".join(lines) or "its zbl.in has other numbers"
    raise UserError(f"{path}: is another model than that of nep.in; {advice}")


def _rounded(value: object) -> object:
    """A setting with its numbers as GPUMD's %g writes them into a header."""
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, tuple):
        return tuple(map(_rounded, value))
    if hasattr(value, "__dataclass_fields__"):
        return tuple(_rounded(getattr(value, field.name)) for field in fields(value))
    return value
