"""The syntax of an extended XYZ comment line: keys, values, numbers and column layout.

Nothing here knows of files: a mistake is raised as ``Fault``, to which the reader adds the place.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

# The keys that nepkit reads, as whole words in any letter case: ``ref_virial`` or ``free_energy``
# are other people's.
KEYS = frozenset(
    "properties lattice pbc energy virial stress weight energy_weight config_type".split()
)
# No number in a file may reach this: products such as stress x volume then stay finite in float64,
# and the numbers themselves in float32.
MAGNITUDE_LIMIT = 1e30

_QUOTED = r'"[^"\\]*(?:\\.[^"\\]*)*"' + r"|'[^'\\]*(?:\\.[^'\\]*)*'"
_ITEM = re.compile(
    rf"""\s* (?:
    ( [^\s="'{{\[] [^\s=]* | {_QUOTED} )            # a key, or a word that stands alone
    (?: \s*(=)                                      # its value, if any:
        (?: ([^\s="'{{\[]\S*)                       # directly after the =
          | \s*({_QUOTED} | \{{[^{{}}]*\}} | \[(?:[^\[\]]|\[[^\[\]]*\])*\] )
          | \s+(?![^\s=]+\s*=)([^\s="'{{\[]\S*)     # after blanks, unless it is the next key
        )? )?
    (?=\s|$)
    | (\S.*) )                                      # the rest, where none of this fits""",
    re.VERBOSE | re.ASCII,
)
_NUMBERS = re.compile(r"[-+.\deE\s]*", re.ASCII)
_COUNT = re.compile(r"[1-9]\d{0,3}", re.ASCII)
_TRUTH = {"T": True, "TRUE": True, "1": True, "F": False, "FALSE": False, "0": False}


class Fault(ValueError):
    """What is wrong in a frame, ``offset`` lines below the first of those being read."""

    def __init__(self, message: str, offset: int = 0):
        super().__init__(message)
        self.offset = offset


class Layout(NamedTuple):
    """Which column of an atom line holds what."""

    names: tuple[str, ...]  # property of each column
    real: tuple[int, ...]  # columns of type R
    species: int  # column of the element
    vectors: tuple[int, ...]  # 3 columns of positions, then 3 of forces if there are any


def shown(text: str | bytes) -> str:
    """Text from a file, fit for a message: printable, on one line, at most 50 characters."""
    if isinstance(text, bytes):
        text = text.decode("utf-8", "backslashreplace")
    text = text if text.isprintable() else ascii(text)[1:-1]
    return text if len(text) <= 50 else text[:47] + "..."


def parse_items(comment: bytes) -> dict[str, str]:
    """The values of ``KEYS`` in a comment line, without quotes, keys in lower case."""
    try:
        text = comment.rstrip().decode()
    except UnicodeDecodeError:
        raise Fault("the comment line is not UTF-8 text; save the file as UTF-8") from None
    items = {}
    for key, equals, adjacent, delimited, separate, rest in _ITEM.findall(text):
        if rest:
            raise Fault(f"cannot read the comment line from {shown(rest)} on; is a quote missing?")
        key = key.lower() if key[0] not in "\"'" else key[1:-1].lower()
        if key not in KEYS or not equals:
            continue
        if key in items:
            raise Fault(f"{key} is given twice; keep one")
        value = adjacent or delimited[1:-1] or separate
        if not value.strip() and key != "config_type":
            raise Fault(f"{key} has no value")
        items[key] = value
    return items


def is_number(word: str) -> bool:
    """Whether a word is a finite number of sensible size; not ``1_0``, ``1D3`` or ``nan``."""
    try:
        return bool(_NUMBERS.fullmatch(word)) and abs(float(word)) < MAGNITUDE_LIMIT
    except ValueError:
        return False


def parse_number(key: str, text: str) -> float:
    if not is_number(text):
        raise Fault(f"{key}={shown(text)} is not one finite number of sensible size")
    return float(text)


def parse_nine(key: str, text: str) -> list[float]:
    """Nine numbers, separated by blanks or commas."""
    text = text.replace(",", " ")
    if "[" in text and key != "Lattice":
        # Rows in brackets, as extxyz writes a symmetric tensor; in a Lattice they are ambiguous.
        text = text.replace("[", " ").replace("]", " ")
    words = text.split()
    if len(words) != 9:
        hint = "; with six the order is ambiguous" if len(words) == 6 else ""
        order = "ax ay az bx by bz cx cy cz" if key == "Lattice" else "xx xy xz yx yy yz zx zy zz"
        raise Fault(f'{key} has {len(words)} of 9 numbers{hint}: give all nine as {key}="{order}"')
    try:
        values = list(map(float, words))
    except ValueError:
        values = [float("nan")]
    # float() alone would also take 1_0, nan and digits of other scripts.
    if "_" in text or not text.isascii() or not sum(map(abs, values)) < MAGNITUDE_LIMIT:
        word = next((word for word in words if not is_number(word)), words[0])
        raise Fault(f"{key}: {shown(word)} is not a finite number of sensible size")
    return values


@lru_cache(maxsize=64)
def parse_pbc(text: str) -> tuple[bool, ...]:
    """Periodic directions from ``T F T``, ``TFT``, ``1 0 1``, ``True False True`` or one word."""
    words = text.upper().replace(",", " ").split()
    if len(words) == 1:
        words = list(words[0]) if len(words[0]) == 3 else words * 3
    if len(words) != 3 or not _TRUTH.keys() >= set(words):
        raise Fault(f'pbc={shown(text)} is not three of T and F, as in pbc="T T F"')
    return tuple(_TRUTH[word] for word in words)


@lru_cache(maxsize=256)
def parse_properties(text: str) -> Layout:
    """Layout from ``name:type:count:...``; species and pos are needed, force or forces optional."""
    words = [word.strip(" \t") for word in text.split(":")]
    if len(words) % 3:
        raise Fault(f"Properties={shown(text)} is not a list of name:type:count")
    names, real, first = [], [], {}
    for name, kind, count in zip(*[iter(words)] * 3):
        name, kind = name.lower(), kind.upper()
        if kind not in ("S", "R", "I", "L") or not _COUNT.fullmatch(count):
            raise Fault(
                f"Properties: {shown(f'{name}:{kind}:{count}')} is not name:type:count "
                "with type S, R, I or L and a positive count"
            )
        role = {"force": "forces", "element": "species"}.get(name, name)
        if role in ("species", "pos", "forces"):
            wanted = "S:1" if role == "species" else "R:3"
            if role in first:
                raise Fault(f"Properties gives {role} twice; keep one")
            if f"{kind}:{count}" != wanted:
                raise Fault(f"Properties: {name}:{kind}:{count} must be {name}:{wanted}")
            first[role] = len(names)
        if kind == "R":
            real += range(len(names), len(names) + int(count))
        names += [name] * int(count)
    for role in ("species", "pos"):
        if role not in first:
            raise Fault(f"Properties={shown(text)} has no {role}")
    starts = [first[role] for role in ("pos", "forces") if role in first]
    vectors = tuple(start + axis for start in starts for axis in range(3))
    return Layout(tuple(names), tuple(real), first["species"], vectors)
