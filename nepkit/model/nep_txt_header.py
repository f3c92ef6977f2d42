"""The header of a nep.txt: six lines, seven with ZBL, read and written."""

from __future__ import annotations

import math
import os
import re

from nepkit.config import HIGHER_INVARIANTS, ModelSettings, Zbl
from nepkit.errors import UserError, at
from nepkit.units import ATOMIC_NUMBERS

_MODEL_WORD = re.compile(r"nep(\d*)(_zbl)?(?:_(\w+))?")
_OTHER_VERSIONS = {
    "3": "a NEP3 model, one network for all elements",
    "5": "a NEP5 model, with a bias of its own for each element",
}
_OTHER_KINDS = {
    "temperature": "a temperature-dependent free-energy model",
    "dipole": "a dipole model",
    "polarizability": "a polarizability model",
    "charge1": "a model with charges (qNEP)",
    "charge2": "a model with charges (qNEP)",
    "charge3": "a model with charges (qNEP)",
    "vdw": "a model with dispersion",
    "charge_vdw": "a model with charges and dispersion",
}
_LARGEST_CUTOFF = 100.0  # Å, as in nep.in
_LARGEST_L = 8


class HeaderLines:
    """The lines of a file, of which the header takes one after the other."""

    def __init__(self, path: str | os.PathLike, lines: list[bytes]) -> None:
        self.path = path
        self.lines = lines
        self.line_number = 0  # of the line read last, from 1

    def fault(self, message: str) -> UserError:
        """An error at the line read last."""
        return UserError(f"{at(self.path, self.line_number)}: {message}")

    def next_words(self, keyword: str | None = None) -> list[str]:
        """The words of the next line; those after ``keyword``, with which it must begin."""
        if self.line_number == len(self.lines):
            raise self.fault(f"the file is cut short: the line '{keyword}' must follow")
        line = self.lines[self.line_number].decode("ascii", "replace")
        self.line_number += 1
        words = line.split()
        if keyword is None:
            return words
        if words[:1] != [keyword]:
            raise self.fault(f"expected the line '{keyword}', found '{line.strip()[:60]}'")
        return words[1:]

    def integers(self, keyword: str, words: list[str], count: int) -> tuple[int, ...]:
        """``words`` as ``count`` integers >= 0."""
        # int() would take 1_0, and the length limit keeps out what no header means.
        if len(words) != count or not all(re.fullmatch(r"\d{1,9}", word) for word in words):
            raise self.fault(
                f"{keyword} takes {count} integers >= 0 here, found '{' '.join(words)[:60]}'"
            )
        return tuple(map(int, words))

    def real_numbers(self, keyword: str, words: list[str]) -> tuple[float, ...]:
        """``words`` as finite numbers."""
        try:
            values = tuple(map(float, words))
        except ValueError:
            values = (math.nan,)
        if not all(map(math.isfinite, values)) or any("_" in word for word in words):
            raise self.fault(f"{keyword} takes finite numbers, found '{' '.join(words)[:60]}'")
        return values


def read_header(header: HeaderLines) -> tuple[ModelSettings, tuple[int, int]]:
    """The settings and the neighbour counts (radial, angular).

    A flexible ZBL, whose numbers end the file, has ``flexible=()`` here.

    Raises:
        UserError: not a NEP4 potential, a wrong keyword, count or value; with file and line.
    """
    elements, has_zbl = _read_elements(header)
    zbl = _read_zbl(header) if has_zbl else None
    cutoffs, max_neighbors = _read_cutoffs(header, len(elements))
    n_max, basis_size = (
        header.integers(keyword, header.next_words(keyword), 2)
        for keyword in ("n_max", "basis_size")
    )
    l_max, invariants = _read_l_max(header)
    first, second = header.integers("ANN", header.next_words("ANN"), 2)
    if first == 0:
        raise header.fault("ANN takes at least one neuron in the first layer")
    settings = ModelSettings(
        elements=elements,
        radial_cutoff=cutoffs[0::2],
        angular_cutoff=cutoffs[1::2],
        n_max=n_max,
        basis_size=basis_size,
        l_max=l_max,
        invariants=invariants,
        neuron=(first, second) if second else (first,),
        zbl=zbl,
    )
    return settings, max_neighbors


def _read_elements(header: HeaderLines) -> tuple[tuple[str, ...], bool]:
    """The elements, and whether the header has a zbl line."""
    words = header.next_words()
    match = _MODEL_WORD.fullmatch(words[0]) if words else None
    if match is None:
        raise header.fault(f"not a NEP model: the file begins with '{' '.join(words)[:60]}'")
    version, zbl, kind = match.groups()
    if version != "4" or kind is not None:
        what = _OTHER_VERSIONS.get(version) or _OTHER_KINDS.get(kind, "a model of unknown kind")
        raise header.fault(f"{words[0]} is {what}; nepkit reads nep4 and nep4_zbl potentials")
    elements = tuple(words[2:])
    if not elements or words[1] != str(len(elements)):
        raise header.fault(
            f"{words[0]} takes the number of elements and as many symbols, "
            f"found {len(elements)} after '{' '.join(words[:2])}'"
        )
    for index, element in enumerate(elements):
        if element not in ATOMIC_NUMBERS:
            raise header.fault(f"'{element}' is not an element from H to Pu")
        if element in elements[:index]:
            raise header.fault(f"the element {element} is repeated")
    return elements, zbl is not None


def _read_zbl(header: HeaderLines) -> Zbl:
    """``zbl inner outer [typewise factor]``; both 0: flexible."""
    values = header.real_numbers("zbl", header.next_words("zbl"))
    if values == (0.0, 0.0):
        return Zbl(0.0, 0.0, flexible=())
    two_cutoffs = len(values) in (2, 3) and 0 <= values[0] < values[1]
    if not two_cutoffs or (len(values) == 3 and values[2] <= 0):
        raise header.fault(
            "zbl takes 0 <= inner < outer cutoff and perhaps a typewise factor > 0, "
            f"found '{' '.join(f'{value:g}' for value in values)}'"
        )
    return Zbl(*values)


def _read_cutoffs(header: HeaderLines, types: int) -> tuple[tuple[float, ...], tuple[int, int]]:
    """Radial and angular cutoff of each element in turn, ``(2 T,)``, and the neighbour counts."""
    words = header.next_words("cutoff")
    if len(words) == 7:
        raise header.fault(
            "cutoffs by covalent radii (use_typewise_cutoff of GPUMD v3.9.5 to v4.6) "
            "are not supported"
        )
    if len(words) not in (2, 4, 2 * types + 2):
        raise header.fault(
            f"cutoff takes radial and angular cutoff, once or for each of {types} elements, "
            f"and two neighbour counts; found {len(words)} values"
        )
    # The oldest files have no neighbour counts.
    end = len(words) if len(words) == 2 else len(words) - 2
    cutoffs = header.real_numbers("cutoff", words[:end])
    for radial, angular in zip(cutoffs[0::2], cutoffs[1::2], strict=True):
        if not 0 < angular <= radial <= _LARGEST_CUTOFF:
            raise header.fault(
                f"cutoff takes 0 < angular <= radial <= {_LARGEST_CUTOFF:g} Å, "
                f"found {radial:g} {angular:g}"
            )
    counts = header.integers("cutoff", words[end:], len(words) - end) or (0, 0)
    return cutoffs if len(cutoffs) == 2 * types else cutoffs * types, counts


def _read_l_max(header: HeaderLines) -> tuple[int, tuple[str, ...]]:
    """``l_max L`` and up to six flags, non-zero (2 for q222 in GPUMD's files) meaning on."""
    words = header.next_words("l_max")
    if not 1 <= len(words) <= 1 + len(HIGHER_INVARIANTS):
        raise header.fault(f"l_max takes L and up to six flags, found {len(words)} values")
    l_max, *flags = header.integers("l_max", words, len(words))
    if not 1 <= l_max <= _LARGEST_L:
        raise header.fault(f"l_max takes L from 1 to {_LARGEST_L}, found {l_max}")
    # A short line leaves the flags at its end off.
    invariants = tuple(name for name, flag in zip(HIGHER_INVARIANTS, flags, strict=False) if flag)
    for name in invariants:
        if l_max < HIGHER_INVARIANTS[name]:
            raise header.fault(f"{name} needs l_max {HIGHER_INVARIANTS[name]}, found {l_max}")
    return l_max, invariants


def header_lines(settings: ModelSettings, max_neighbors: tuple[int, int]) -> list[str]:
    """The plainest header that carries the model.

    Optional values are written where they are needed only, because other programs read fewer
    forms than GPUMD does; cutoffs always have a decimal point for the same reason.
    """
    zbl = settings.zbl
    cutoffs = list(zip(settings.radial_cutoff, settings.angular_cutoff, strict=True))
    if len(set(cutoffs)) == 1:
        cutoffs = cutoffs[:1]
    numbers = [float(cutoff) for pair in cutoffs for cutoff in pair]
    flags = [int(name in settings.invariants) for name in HIGHER_INVARIANTS]
    flags[0] *= 2  # GPUMD's mark for q222
    while len(flags) > 2 and flags[-1] == 0:
        flags.pop()
    second_layer = settings.neuron[1] if len(settings.neuron) == 2 else 0
    word = "nep4" if zbl is None else "nep4_zbl"
    lines: list[tuple] = [(word, len(settings.elements), *settings.elements)]
    if zbl is not None and zbl.flexible is not None:
        lines.append(("zbl", 0, 0))
    elif zbl is not None:
        factor = () if zbl.typewise_factor is None else (float(zbl.typewise_factor),)
        lines.append(("zbl", float(zbl.inner), float(zbl.outer), *factor))
    lines += [
        ("cutoff", *numbers, *max_neighbors),
        ("n_max", *settings.n_max),
        ("basis_size", *settings.basis_size),
        ("l_max", settings.l_max, *flags),
        ("ANN", settings.neuron[0], second_layer),
    ]
    return [" ".join(map(str, line)) for line in lines]
