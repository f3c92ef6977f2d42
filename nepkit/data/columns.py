"""The atom lines of extended XYZ frames, read into arrays."""

from __future__ import annotations

from itertools import chain

import numpy as np

from nepkit.data.comment import MAGNITUDE_LIMIT, Fault, Layout, is_number, shown
from nepkit.units import ATOMIC_NUMBERS

_NUMBER_OF = {symbol.encode(): number for symbol, number in ATOMIC_NUMBERS.items()}
# The same by the one or two bytes of a symbol as a big-endian integer, for whole arrays; 0: none.
_NUMBER_OF_CODE = np.zeros(1 << 16, np.int16)
for _symbol, _number in _NUMBER_OF.items():
    _NUMBER_OF_CODE[int.from_bytes(_symbol, "big")] = _number
# Integers of this many digits, and these powers of ten, are exact in float64, so that their
# quotient is the correctly rounded decimal number: the same bits as float(word).
_MAX_DIGITS = 15
_POWERS = 10.0 ** np.arange(_MAX_DIGITS + 1)


def read_words(lines: list[bytes], layout: Layout) -> list[np.ndarray]:
    """Atomic numbers (N,) int16, positions (N, 3) float64, and forces if any, of N atom lines.

    Raises ``Fault`` with the offset of the first line that is wrong.
    """
    rows = [line.split() for line in lines]
    if set(map(len, rows)) != {len(layout.names)}:
        raise first_fault(lines, layout)
    columns = list(zip(*rows))
    wanted = [columns[column] for column in layout.vectors]
    try:
        numbers = [_NUMBER_OF[symbol] for symbol in columns[layout.species]]
        values = np.fromiter(map(float, chain.from_iterable(wanted)), np.float64)
    except (KeyError, ValueError):
        raise first_fault(lines, layout) from None
    if not (-MAGNITUDE_LIMIT < values.min() and values.max() < MAGNITUDE_LIMIT):
        raise first_fault(lines, layout)
    # float() takes 1_0 for 10.
    if b"_" in b"".join(chain.from_iterable(wanted)):
        raise first_fault(lines, layout)
    vectors = values.reshape(-1, 3, len(lines)).transpose(0, 2, 1)
    return [np.array(numbers, np.int16), *np.ascontiguousarray(vectors)]


def read_fixed_point(lines: list[bytes], layout: Layout) -> list[np.ndarray] | None:
    """The same where all real columns look like ``-12.345``, several times faster for many lines.

    None where a line is of another kind or wrong.
    """
    num_lines, num_columns = len(lines), len(layout.names)
    text = b"".join(lines) + b"\n"
    characters = np.frombuffer(text, np.uint8)
    # Blank is what bytes.split() takes for blank: 9 to 13 (smaller ones wrap around) and 32.
    solid = np.zeros(len(text) + 1, bool)
    np.greater(characters - np.uint8(9), 4, out=solid[1:])
    solid[1:] &= characters != 32
    edges = np.flatnonzero(solid[1:] != solid[:-1])
    if edges.size != 2 * num_lines * num_columns:
        return None
    starts = edges[0::2].reshape(num_lines, num_columns)
    ends = edges[1::2].reshape(num_lines, num_columns)
    line_ends = np.flatnonzero(characters == ord("\n"))[:num_lines]
    if (ends[:, -1] > line_ends).any() or (starts[1:, 0] < line_ends[:-1]).any():
        return None
    numbers = atomic_numbers(characters, starts[:, layout.species], ends[:, layout.species])
    real = layout.real
    if real[-1] - real[0] == len(real) - 1:
        chosen = slice(real[0], real[-1] + 1)  # much faster than a list
    else:
        chosen = list(real)
    values = fixed_point_numbers(characters, starts[:, chosen].ravel(), ends[:, chosen].ravel())
    if numbers is None or values is None:
        return None
    values = values.reshape(num_lines, len(real))
    firsts = [real.index(column) for column in layout.vectors[::3]]
    return [numbers, *(values[:, first : first + 3].copy() for first in firsts)]


def fixed_point_numbers(
    characters: np.ndarray, starts: np.ndarray, ends: np.ndarray
) -> np.ndarray | None:
    """Values of the words ``characters[start:end]``: a minus or none, digits, and one point.

    None where a word is anything else, or a point stands outside of them.
    """
    points = np.flatnonzero(characters == ord("."))
    if points.size != starts.size:
        return None
    negative = characters[starts] == ord("-")
    num_whole = points - starts
    num_whole -= negative
    num_decimals = ends - points
    num_decimals -= 1
    num_digits = num_whole + num_decimals
    if num_whole.min() < 0 or num_decimals.min() < 0:
        return None
    if num_digits.min() < 1 or num_digits.max() > _MAX_DIGITS:
        return None
    whole = integers_before(characters, points, num_whole)
    decimals = integers_before(characters, ends, num_decimals)
    if whole is None or decimals is None:
        return None
    scale = _POWERS[num_decimals]
    whole *= scale
    whole += decimals
    whole /= scale
    return np.negative(whole, out=whole, where=negative)


def integers_before(
    characters: np.ndarray, ends: np.ndarray, num_digits: np.ndarray
) -> np.ndarray | None:
    """Integers of ``num_digits`` digits each that end before ``ends``; None for a non-digit."""
    place = np.arange(num_digits.max())[:, None]
    digits = characters[ends - 1 - place] - np.uint8(ord("0"))
    digits *= place < num_digits
    return None if (digits > 9).any() else _POWERS[: len(place)] @ digits


def atomic_numbers(
    characters: np.ndarray, starts: np.ndarray, ends: np.ndarray
) -> np.ndarray | None:
    """Atomic numbers, int16, of the words ``characters[start:end]``; None for an unknown one."""
    lengths = ends - starts
    if lengths.max() > 2:
        return None
    codes = characters[starts].astype(np.intp)
    codes = np.where(lengths == 2, codes << 8 | characters[ends - 1], codes)
    numbers = _NUMBER_OF_CODE[codes]
    return numbers if numbers.all() else None


def first_fault(lines: list[bytes], layout: Layout) -> Fault | None:
    """What is wrong in the first line that cannot be read, if there is one."""
    for offset, line in enumerate(lines):
        words = line.split()
        if len(words) != len(layout.names):
            end = "" if line.endswith(b"\n") else "the file ends in this line: "
            return Fault(
                f"{end}expected {len(layout.names)} columns by Properties, found {len(words)}; "
                "check this line, Properties and the number of atoms",
                offset,
            )
        symbol = words[layout.species]
        if symbol not in _NUMBER_OF:
            hint = " (letter case matters)" if symbol.capitalize() in _NUMBER_OF else ""
            return Fault(f"{shown(symbol)} is not an element that NEP knows{hint}", offset)
        for column in layout.vectors:
            if not is_number(words[column].decode("latin-1")):
                return Fault(
                    f"{layout.names[column]} (column {column + 1}): {shown(words[column])} "
                    "is not a finite number of sensible size",
                    offset,
                )
    return None
