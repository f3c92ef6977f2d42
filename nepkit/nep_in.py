"""The text of nep.in: its lines checked against the table of keywords, and written anew."""

from __future__ import annotations

import difflib
import math
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING

from .errors import UserError, at
from .keywords import ALIASES, EXCLUSIVE, HIGHER_INVARIANTS, KEYWORDS, keywords_of, real

if TYPE_CHECKING:
    from .config import ModelSettings, NepConfig, Stage

COMMAND_LINE = "keyword given on the command line"


@dataclass(frozen=True)
class Line:
    """A keyword with its values, from the file or from the command line."""

    keyword: str
    tokens: tuple[str, ...]  # after the keyword
    text: str  # as written
    place: str
    number: int | None = None  # of the line in the file, from 1; None: from the command line
    values: tuple = ()
    replaced: bool = False  # GPUMD's default was read as auto

    def error(self, reason: str) -> UserError:
        """A mistake in this line: place, the line quoted, reason."""
        return UserError(f'{self.place}: "{self.text}": {reason}')

    def same(self, earlier: Line) -> UserError:
        """The mistake of saying again what ``earlier`` says."""
        where = f"line {earlier.number}" if earlier.number else "another " + COMMAND_LINE
        return self.error(f'"{earlier.text}" in {where} already sets this: keep one of the two')


Block = dict[str, Line]  # the lines of one stage by keyword


def read_blocks(path: str | os.PathLike, overrides: Mapping[str, object]) -> list[Block]:
    """The lines of a nep.in with ``overrides`` in their place, values checked one by one.

    The first block is all above the first ``stage`` line; each further one is a stage's.
    """
    blocks: list[Block] = [{}]
    for line in _lines(path):
        if line.keyword == "stage":
            if line.tokens:
                raise line.error('"stage" stands alone, its keywords follow line by line')
            blocks.append({})
            continue
        _add(line, blocks[-1])
        if len(blocks) > 1 and KEYWORDS[line.keyword].scope != "stage":
            raise line.error("this is the same for all stages: move it above the first stage line")
    given: Block = {}
    for name, value in overrides.items():
        _add(_override(name, value), given)
    for block in blocks:
        for name in given:
            block.pop(name, None)
            block.pop(EXCLUSIVE.get(name), None)
    blocks[0].update(given)
    for block in blocks:
        for name in block.keys() & EXCLUSIVE.keys():
            if EXCLUSIVE[name] in block:
                pair = block[name], block[EXCLUSIVE[name]]
                first, second = sorted(pair, key=lambda line: line.number or 0)
                raise second.same(first)
    return [{name: _with_values(line) for name, line in block.items()} for block in blocks]


def _lines(path: str | os.PathLike) -> Iterable[Line]:
    """The lines that hold a keyword. Bytes are split first, so a comment may be in any encoding."""
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise UserError(f"{os.fspath(path)}: cannot be read: {error.strerror}") from None
    for number, raw in enumerate(data.removeprefix(b"\xef\xbb\xbf").splitlines(), start=1):
        words = list(takewhile(lambda word: not word.startswith(b"#"), raw.split()))
        if not words:
            continue
        try:
            keyword, *tokens = (word.decode() for word in words)
        except UnicodeDecodeError:
            raise UserError(f"{at(path, number)}: not UTF-8 text, save the file as UTF-8") from None
        yield _line(keyword, tokens, raw.decode(errors="replace"), at(path, number), number)


def _override(name: str, value: object) -> Line:
    """The line that an override amounts to: text as in the file, a number, a sequence of them."""
    if isinstance(value, str):
        tokens = value.split()
    elif value is True and name in KEYWORDS and KEYWORDS[name].required == 0:
        tokens = []
    else:
        items = value if isinstance(value, Iterable) else [value]
        tokens = [str(int(item)) if isinstance(item, bool) else str(item) for item in items]
    if name == "stage":
        raise UserError(f'{COMMAND_LINE}: "stage": stages are written in the file only')
    return _line(name, tokens, " ".join([name, *tokens]), COMMAND_LINE, None)


def _line(keyword: str, tokens: Iterable[str], text: str, place: str, number: int | None) -> Line:
    # Fit for one line of a terminal.
    text = text.strip()[:120] + ("..." if len(text.strip()) > 120 else "")
    text = "".join(c if c.isprintable() or c == "\t" else "\ufffd" for c in text)
    return Line(ALIASES.get(keyword, keyword), tuple(tokens), text, place, number)


def _add(line: Line, block: Block) -> None:
    """Put a line into its block, if its keyword is known, possible and new there."""
    if line.keyword not in KEYWORDS:
        known = [*KEYWORDS, *ALIASES, "stage"]
        nearest = difflib.get_close_matches(line.keyword[:50].lower(), known, n=1, cutoff=0)[0]
        raise line.error(f'unknown keyword, the nearest known one is "{nearest}"')
    if KEYWORDS[line.keyword].scope == "refused":
        raise line.error(KEYWORDS[line.keyword].reason)
    if line.keyword in block:
        raise line.same(block[line.keyword])
    block[line.keyword] = line


def _with_values(line: Line) -> Line:
    """The line with its values: right in number, each in its range."""
    keyword = KEYWORDS[line.keyword]
    usage = f'write "{line.keyword} {keyword.syntax}"'
    tokens, exact = line.tokens, False
    if keyword.gpumd_default is not None and tokens[-1:] == ("exact",):
        tokens, exact = tokens[:-1], True
    most = math.inf if keyword.syntax.endswith("...") else len(keyword.names)
    if not keyword.required <= len(tokens) <= most:
        raise line.error(f"wrong number of values, {len(tokens)}: {usage}")
    values = []
    for index, token in enumerate(tokens):
        try:
            values.append(keyword.values[min(index, len(keyword.values) - 1)].parse(token))
        except ValueError as error:
            raise line.error(f"{error}; {usage}") from None
    if keyword.only is not None and values[0] != keyword.only:
        raise line.error(keyword.reason)
    replaced = keyword.gpumd_default is not None and values[0] == keyword.gpumd_default
    if replaced and not exact and line.number:
        return replace(line, values=(None, *values[1:]), replaced=True)
    return replace(line, values=tuple(values))


def read_flexible_zbl(path: Path, count: int) -> tuple[tuple[float, ...], ...]:
    """The ten numbers a pair of types of a zbl.in, which holds nothing else."""
    try:
        rows = path.read_text(encoding="utf-8-sig", errors="replace").splitlines()
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}") from None
    numbers = []
    for line, row in enumerate(rows, start=1):
        for token in row.split():
            try:
                numbers.append(real().parse(token))
            except ValueError as error:
                raise UserError(f'{at(path, line)}: "{row.strip()[:120]}": {error}') from None
    pairs = count * (count + 1) // 2
    if len(numbers) != 10 * pairs:
        raise UserError(
            f"{path}: {len(numbers)} numbers, but flexible ZBL takes {10 * pairs}, ten for each of "
            f"the {pairs} pairs of {count} elements; for universal ZBL move the file away"
        )
    return tuple(tuple(numbers[start : start + 10]) for start in range(0, len(numbers), 10))


def to_nep_in(config: NepConfig) -> str:
    """The configuration as the text of a nep.in that reads as an equal one, apart from its notes.

    Flexible ZBL needs the same zbl.in beside it. Of generation and epoch the former is written.
    """
    comment = "# Every setting of this training, readable as a nep.in."
    rows = [(comment,), *model_rows(config.model)]
    for name in keywords_of("run"):
        value = getattr(config, name)
        if value not in ((), None):
            rows += [(name, *value) if isinstance(value, tuple) else (name, value)]
    for index, stage in enumerate(config.stages):
        rows += [("",), ("stage",)] if index else [("",)]
        weighted = any(earlier.type_weight for earlier in config.stages[:index])
        rows += _stage_rows(stage, (1.0,) * len(config.model.elements) if weighted else ())
    return "".join(f"{line}\n" for line in map(line_of, rows))


def line_of(row: tuple) -> str:
    """A keyword and its values as a line of nep.in."""
    return f"{row[0]:<24}{' '.join(map(_text, row[1:]))}".rstrip()


def model_rows(model: ModelSettings) -> list[tuple]:
    """The keywords of a model with their values."""
    per_element = list(zip(model.radial_cutoff, model.angular_cutoff, strict=True))
    cutoffs = per_element[:1] if len(set(per_element)) == 1 else per_element
    rows = [
        ("type", len(model.elements), *model.elements),
        ("version", 4),
        ("cutoff", *(value for pair in cutoffs for value in pair)),
        ("n_max", *model.n_max),
        ("basis_size", *model.basis_size),
        ("l_max", model.l_max, *(int(name in model.invariants) for name in HIGHER_INVARIANTS)),
        ("neuron", *model.neuron),
    ]
    if model.zbl is not None and model.zbl.flexible is not None:
        rows += [("zbl", 2, "# flexible: its numbers are those of zbl.in beside this file")]
    elif model.zbl is not None:
        rows += [("zbl", model.zbl.outer)]
        if model.zbl.typewise_factor is not None:
            rows += [("use_typewise_cutoff_zbl", model.zbl.typewise_factor)]
    return rows


def _stage_rows(stage: Stage, no_weights: tuple[float, ...]) -> list[tuple]:
    """One row a keyword of a stage, all of them; ``no_weights`` undoes type weights before it."""
    rows = []
    # Of two keywords that exclude each other one is written: the second if it alone is said.
    unsaid = {
        first if getattr(stage, first) is None and getattr(stage, second) is not None else second
        for first, second in (("generation", "epoch"), ("batch", "batch_atoms"))
    }
    for name in keywords_of("stage"):
        value = getattr(stage, name)
        if name == "type_weight":
            value = value or no_weights
        if value == () or name in unsaid:
            continue
        row = (name, *value) if isinstance(value, tuple) else (name, value)
        # Without the word this number would read as GPUMD's default, not as ours.
        default = KEYWORDS[name].gpumd_default
        rows.append((*row, "exact") if default is not None and value == default else row)
    return rows


def _text(value: object) -> str:
    """A value as nep.in has it; floats so that they read back as the same number."""
    if value is None:
        return "auto"
    if isinstance(value, str):
        return value
    return repr(float(value)) if isinstance(value, float) else str(int(value))
