"""Plain text for people: named rows, and lists cut short."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable

WIDTH = 100
# Names in a line.
MOST_NAMED = 12


def table(head: str, rows: Iterable[tuple[str, str]]) -> str:
    """``head``, then a name and a text on each line, at most WIDTH columns."""
    lines = textwrap.wrap(head, WIDTH, subsequent_indent="  ", break_long_words=False)
    for name, text in rows:
        lines += textwrap.wrap(
            text, WIDTH, initial_indent=f"  {name:<12}", subsequent_indent=" " * 14,
            break_long_words=False, break_on_hyphens=False,
        )  # fmt: skip
    return "\n".join(lines)


def names(items: list[str]) -> str:
    """The first of ``items``, and how many more there are."""
    more = f" and {len(items) - MOST_NAMED:,} more" if len(items) > MOST_NAMED else ""
    return ", ".join(items[:MOST_NAMED]) + more
