"""What the page of a report draws: the history, and dots with the frames that they belong to."""

from __future__ import annotations

import gzip
import lzma
import math
from itertools import islice

import numpy as np

from ..data.composition import element_counts, formula
from ..results import History, Results
from ..train.compared import KINDS, Compared, Comparison
from ..units import ELEMENTS

# Bytes of frames that a report takes along, to be saved from the page.
MOST_TEXT = 20_000_000
# Dots of a kind over all sets at most.
MOST_DOTS = {"energy": 100_000, "force": 50_000, "virial": 600_000}


def content(results: Results) -> tuple[dict, list[str]]:
    """The numbers of the page, ready for JSON, and notes on what they leave out."""
    texts = frame_texts(results.sets)
    notes, sets = [], {}
    for data in results.sets:
        dots = {}
        for kind in KINDS:
            if kind.name not in data.compared:
                continue
            n, total = _rows(data, kind.name), sum(_rows(d, kind.name) for d in results.sets)
            most = n * MOST_DOTS[kind.name] // len(kind.components) // max(total, 1)
            dots[kind.name] = _dots(data, kind.name, min(n, most))
            drawn = len(dots[kind.name]["label"]) // len(kind.components)
            if drawn < n:
                what = "atoms" if kind.name == "force" else "frames"
                notes.append(
                    f"{kind.title}, {data.name}: {drawn} of {n} {what} are drawn, the "
                    f"{most // 2} of the largest errors and evenly chosen others."
                )
        sets[data.name] = {"frames": _frames(data, texts), "dots": dots}
        if data.frames is None:
            notes.append(
                f"{data.name}.xyz was not found: dots cannot tell their frames. "
                "Put it into the folder of the run and make the report again."
            )
    if texts is None:
        notes.append(
            f"The frames take more than {MOST_TEXT / 1e6:.0f} MB and are not in this file: "
            "a selection is saved as a list of their numbers (CSV)."
        )
    kinds = [dict(kind._asdict()) for kind in KINDS]
    found = {
        "kinds": kinds, "sets": sets, "embedded": texts is not None,
        "history": _history(results.history) if results.history else None,
    }  # fmt: skip
    return found, notes


def _history(history: History) -> dict:
    """Errors in thousandths."""
    errors: dict[str, dict] = {}
    for (name, kind), values in history.errors.items():
        errors.setdefault(name, {})[kind] = _rounded(1e3 * values)
    rate = history.learning_rate
    return {
        "step": history.step.tolist(), "best": history.best,
        "loss": [float(f"{value:.6g}") for value in history.loss],
        "learning_rate": None if rate is None else [float(f"{value:.6g}") for value in rate],
        "errors": errors,
    }  # fmt: skip


def _frames(data: Comparison, texts: dict[str, list[str]] | None) -> dict | None:
    if data.frames is None:
        return None
    return {
        "source": [frame.source for frame in data.frames],
        "formula": [formula(counts) for counts in element_counts(data.frames)],
        "text": None if texts is None else texts[data.name],
    }


def _rows(data: Comparison, kind: str) -> int:
    """Frames or atoms with a label."""
    if kind not in data.compared:
        return 0
    return int((~np.isnan(data.compared[kind].error).all(1)).sum())


def _dots(data: Comparison, kind: str, most: int) -> dict:
    """Labels and predictions, row after row, None where missing; the frame of each row.

    For forces also the atom (from 0 in its frame) and its element.
    """
    compared = data.compared[kind]
    rows = thinned(compared, most)
    dots = {
        "label": _rounded(compared.label[rows].ravel()),
        "predicted": _rounded(compared.predicted[rows].ravel()),
    }
    if kind != "force":
        dots["frame"] = rows.tolist()
    elif data.frames is not None:
        of = data.atom_frame
        first = np.searchsorted(of, np.arange(len(data.frames)))
        numbers = np.concatenate([frame.numbers for frame in data.frames])
        dots["frame"] = of[rows].tolist()
        dots["atom"] = (rows - first[of[rows]]).tolist()
        dots["element"] = [ELEMENTS[z - 1] for z in numbers[rows].tolist()]
    return dots


def thinned(compared: Compared, most: int) -> np.ndarray:
    """At most ``most`` of the rows with a label: half of them the largest errors, the others even.

    Always the same ones, in order.
    """
    error = np.nan_to_num(abs(compared.error), nan=-1.0).max(1)
    rows = np.flatnonzero(error >= 0)
    if len(rows) <= most:
        return rows
    order = rows[np.argsort(-error[rows], kind="stable")]
    large, others = order[: most // 2], np.sort(order[most // 2 :])
    some = np.linspace(0, len(others) - 1, most - len(large)).astype(int)
    return np.sort(np.concatenate([large, others[some]]))


def _rounded(values: np.ndarray) -> list[float | None]:
    """To 1e-6, far below any error that matters."""
    rounded = np.round(values, 6).tolist()
    return [None if math.isnan(value) else value for value in rounded]


def frame_texts(sets: list[Comparison]) -> dict[str, list[str]] | None:
    """The lines of every frame as they stand in its file; None where they are more than MOST_TEXT."""
    texts, total = {}, 0
    for data in sets:
        texts[data.name] = members = []
        if not data.frames:
            continue
        path = data.frames[0].path
        suffix = path[path.rfind(".") :].lower()
        with {".gz": gzip.open, ".xz": lzma.open}.get(suffix, open)(path, "rb") as file:
            line = 1
            for frame in data.frames:
                before = frame.line - line  # empty lines
                lines = islice(file, before, before + 2 + len(frame))
                line = frame.line + 2 + len(frame)
                text = b"".join(lines).removeprefix(b"\xef\xbb\xbf")
                total += len(text)
                if total > MOST_TEXT:
                    return None
                members.append(text.decode("utf-8", "replace").rstrip("\r\n") + "\n")
    return texts
