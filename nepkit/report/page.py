"""The page of a report: its tables, and its template filled in."""

from __future__ import annotations

import json
import math
from html import escape
from importlib.resources import files
from pathlib import Path

from ..results import SETS, Results
from ..train.compared import KINDS, Scores
from ..units import ATOMIC_NUMBERS
from .content import content

# What the groups of a division are sorted by, if not by their names.
ORDER = {"element": ATOMIC_NUMBERS.get, "size": lambda name: int(name.split()[0])}
# What a report is known by, in its first lines.
GENERATOR = b'<meta name="generator" content="nepkit report">'


def make_page(results: Results) -> str:
    """The whole HTML file."""
    found, notes = content(results)
    parts = {
        "title": escape(f"nepkit: {results.folder.resolve().name}"),
        "about": _about(results),
        "errors": _errors(results),
        "key": " ".join(f'<span class="{name}">● {name}</span>' for name in _sets(results)),
        "notes": "".join(f'<p class="note">{escape(note)}</p>\n' for note in notes),
        "settings": escape(_text(results.folder / "nepkit_resolved.in") or "not there"),
        # In a script element < could begin its end.
        "data": json.dumps(found, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c"),
        "style": _template("page.css"),
        "curves": _template("curves.js"),
        "dots": _template("dots.js"),
    }
    pieces = _template("page.html").split("[[")
    page = [pieces[0]]
    for piece in pieces[1:]:
        name, rest = piece.split("]]", 1)
        page += [parts[name], rest]
    return "".join(page)


def _sets(results: Results) -> list[str]:
    """The data sets that something is known of."""
    known = {data.name for data in results.sets}
    known |= {name for name, _ in results.history.errors} if results.history else set()
    return [name for name in SETS if name in known]


def _template(name: str) -> str:
    return (files(__package__) / name).read_text(encoding="utf-8").rstrip("\n")


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""


def _about(results: Results) -> str:
    """Folder, data, versions and device."""
    rows = {"folder": str(results.folder.resolve())}
    log = _text(results.folder / "nepkit.log").splitlines()
    # A run that went on says so again: the last word counts.
    for name, start in (
        ("device", "nepkit: "),
        ("training", "done: "),
        ("best model", "the loss on "),
    ):
        told = [line for line in log if line.startswith(start)]
        if told:
            rows[name] = told[-1].removeprefix("nepkit: ").removeprefix("done: ")
    for data in results.sets:
        if data.frames is not None:
            rows[f"{data.name} set"] = f"{len(data.frames)} frames, {len(data.atom_frame)} atoms"
    versions = results.about.get("versions", {})
    if versions:
        rows["versions"] = ", ".join(f"{name} {version}" for name, version in versions.items())
        rows["system"] = results.about.get("system", "")
    lines = (f"<dt>{escape(k)}</dt><dd>{escape(v)}</dd>\n" for k, v in rows.items())
    return f"<dl>\n{''.join(lines)}</dl>"


def _errors(results: Results) -> str:
    """Tables of errors by set, by source and by element."""
    if not results.sets:
        return "<p>No predictions yet: the run has not ended.</p>"
    sets = {
        data.name: {kind: c.scores() for kind, c in data.compared.items()} for data in results.sets
    }
    text = _table("set", _columns(("RMSE", "MAE", "R²"), sets), sets)
    names = [data.name for data in results.sets]
    for title, groups in (
        ("source", [data.by_source() for data in results.sets]),
        ("element", [data.by_element() for data in results.sets]),
        ("size", [data.by_size() for data in results.sets]),
    ):
        members = sorted({name for found in groups for name in found}, key=ORDER.get(title))
        if not members:
            continue
        rows = {
            member: {
                (name, kind): scores
                for name, found in zip(names, groups, strict=True)
                for kind, scores in found.get(member, {}).items()
            }
            for member in members
        }
        columns = [
            (f"{kind.title} {name}<br>m{kind.unit}", (name, kind.name), "RMSE")
            for kind in KINDS
            for name in names
            if any((name, kind.name) in row for row in rows.values())
        ]
        text += f"\n<h3>RMSE by {title}</h3>\n{_table(title, columns, rows)}"
    return text


def _columns(measures: tuple[str, ...], sets: dict) -> list[tuple]:
    return [
        (f"{kind.title}<br>{name}" + (f", m{kind.unit}" if name != "R²" else ""), kind.name, name)
        for kind in KINDS
        if any(kind.name in row for row in sets.values())
        for name in measures
    ]


def _table(first: str, columns: list[tuple], rows: dict[str, dict]) -> str:
    """``columns``: head, key in each row and measure; ``rows``: scores by key, by name."""
    head = "".join(f"<th>{title}</th>" for title, _, _ in columns)
    body = "".join(
        f"<tr><td>{escape(name)}</td>"
        + "".join(f"<td>{_cell(row.get(key), measure)}</td>" for _, key, measure in columns)
        + "</tr>\n"
        for name, row in rows.items()
    )
    return (
        f'<div class="scroll"><table><thead><tr><th>{first}</th>{head}</tr></thead>\n'
        f"<tbody>{body}</tbody></table></div>"
    )


def _cell(scores: Scores | None, measure: str) -> str:
    if scores is None:
        return "–"
    if measure == "R²":
        return "–" if math.isnan(scores.r2) else f"{scores.r2:.5f}"
    return f"{1e3 * (scores.rmse if measure == 'RMSE' else scores.mae):.2f}"
