"""Where the errors of a model are: by element, source and size, and frame by frame."""

from __future__ import annotations

import csv
import io
from pathlib import Path

from ..files import write_atomically
from .compared import KINDS, Comparison, Groups, Largest

# Groups of a division that are printed at most, and frames of a kind; written in the CSV.
MOST_PRINTED, FRAMES_PRINTED, FRAMES_WRITTEN = 5, 3, 50


def divisions(data: Comparison) -> dict[str, Groups]:
    """The groups of each division of a data set."""
    return {"element": data.by_element(), "source": data.by_source(), "size": data.by_size()}


def breakdown_names(stem: str = "") -> list[str]:
    """The files that ``write_breakdown`` makes: of a run, or of predictions on a file."""
    return [f"{name}{'_' * bool(stem)}{stem}.csv" for name in ("errors", "largest_errors")]


def write_breakdown(folder: Path, sets: list[Comparison], stem: str = ""):
    """Write errors.csv, errors of the sets and their groups, and largest_errors.csv.

    Units eV/atom, eV/Å, eV/atom; frames count from 0 in their file, lines from 1, atoms from 0 in
    their frame.
    """
    errors, largest = breakdown_names(stem)
    rows: list[tuple] = [("set", "division", "group", "kind", "unit", "rmse", "mae", "labels")]
    for data in sets:
        whole = {kind: scores for kind, c in data.compared.items() if (scores := c.scores())}
        for division, groups in ({"all": {"all": whole}} | divisions(data)).items():
            for name, found in groups.items():
                for kind in (kind for kind in KINDS if kind.name in found):
                    scores = found[kind.name]
                    numbers = f"{scores.rmse:.10g}", f"{scores.mae:.10g}", scores.n
                    rows.append((data.name, division, name, kind.name, kind.unit, *numbers))
    _write(folder / errors, rows)
    rows = [
        (
            "set", "kind", "unit", "frame", "line", "source", "atoms", "atom", "element",
            "component", "label", "predicted", "error",
        )
    ]  # fmt: skip
    for data in sets:
        rows += [
            (
                data.name, kind.name, kind.unit, found.frame.index, found.frame.line,
                found.frame.source, len(found.frame), "" if found.atom is None else found.atom,
                found.element, found.component, f"{found.label:.10g}", f"{found.predicted:.10g}",
                f"{found.predicted - found.label:.10g}",
            )
            for kind in KINDS
            for found in data.largest(kind, FRAMES_WRITTEN)
        ]  # fmt: skip
    _write(folder / largest, rows)


def _write(path: Path, rows: list[tuple]):
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    write_atomically(path, text.getvalue())


def breakdown_table(data: Comparison) -> str:
    """The groups of each division with the largest errors, and the largest errors, for people.

    A division into one group is left out. Empty where nothing is to be told.
    """
    lines = []
    for division, groups in divisions(data).items():
        if len(groups) < 2:
            continue
        shown = sorted(groups, key=lambda name: -_leading(groups[name]))[:MOST_PRINTED]
        more = f", the worst {len(shown)} of {len(groups)}" if len(shown) < len(groups) else ""
        lines.append(f"by {division}{more}")
        lines += [_row(name, groups[name]) for name in shown]
    largest = [f for kind in KINDS for f in data.largest(kind, FRAMES_PRINTED)]
    if lines:
        head = [f"{'RMSE on ' + data.name:26}" + "".join(f"{k.name:>14}" for k in KINDS)]
        head += [f"{'':26}" + "".join(f"{'m' + k.unit:>14}" for k in KINDS)]
        lines = head + lines
    if largest:
        lines.append(f"largest errors on {data.name}, frames counted from 0")
        lines += [_told(found) for found in largest]
    return "\n".join(lines)


def _leading(found: dict) -> float:
    """What groups are sorted by: the force where there is one, as it has the most labels."""
    return (found.get("force") or next(iter(found.values()))).rmse


def _row(name: str, found: dict) -> str:
    cells = [
        f"{1e3 * found[k.name].rmse:14.2f}" if k.name in found else f"{'-':>14}" for k in KINDS
    ]
    return f"  {name if len(name) <= 24 else name[:23] + '…':24}" + "".join(cells)


def _told(found: Largest) -> str:
    frame, error = found.frame, 1e3 * (found.predicted - found.label)
    where = f"frame {frame.index} (line {frame.line}" + f", {frame.source}" * bool(frame.source)
    where += f"), {len(frame)} atoms"
    if found.atom is not None:
        where += f", atom {found.atom} {found.element}"
    what = f"{found.kind.name} {found.component}".rstrip()
    return f"  {what:10}{error:+12.2f} m{found.kind.unit:9}{where}"
