"""The grammar of nep.in: one table of keywords, and a file's lines checked against it.

What the values mean is the business of ``config``.
"""

from __future__ import annotations

import difflib
import math
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import takewhile
from pathlib import Path

from nepkit.errors import UserError, at
from nepkit.units import ELEMENTS

COMMAND_LINE = "keyword given on the command line"
INT_MAX = 2**31 - 1  # GPUMD's integers are C ints
# Higher invariants after l_max, in the order of nep.in and of the descriptor, with the l they need.
HIGHER_INVARIANTS = {"q222": 2, "q1111": 1, "q112": 2, "q123": 3, "q233": 3, "q134": 4}
# As strtol reads integers with base 0, and strtod what people write.
_WHOLE = re.compile(r"[+-]?(0[xX][0-9a-fA-F]+|0[0-7]*|[1-9][0-9]*)")
_OCTAL = re.compile(r"[+-]?0[0-7]")
_REAL = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")


@dataclass(frozen=True)
class Number:
    """One number of a line and its range."""

    kind: type  # int, float, or bool for a flag written as 0 or 1
    low: float = -math.inf
    high: float = math.inf
    above: float = -math.inf
    below: float = math.inf
    auto: bool = False  # the word auto stands for None: chosen from the data

    def parse(self, token: str) -> float | int | bool | None:
        """The number that ``token`` means; ValueError says what is possible."""
        if self.auto and token == "auto":
            return None
        number = math.nan
        if self.kind is float and _REAL.fullmatch(token):
            number = float(token)
        # Longer than any C int: refused before Python's own limit on digits.
        elif self.kind is not float and len(token) < 99 and _WHOLE.fullmatch(token):
            number = int(token, 8 if _OCTAL.match(token) else 0)
        if not (self.low <= number <= self.high and self.above < number < self.below):
            raise ValueError(f'"{token}" is not {self}')
        return self.kind(number)

    def __str__(self) -> str:
        words = ("at least", "above", "at most", "below")
        bounds = zip(words, (self.low, self.above, self.high, self.below), strict=True)
        kind = "a number" if self.kind is float else "a whole number"
        return kind + "".join(f", {word} {bound}" for word, bound in bounds if abs(bound) < INT_MAX)


@dataclass(frozen=True)
class Word:
    """One word of a line, from a fixed set and case-sensitive."""

    text: str  # what it is, for messages
    choices: tuple[str, ...]

    def parse(self, token: str) -> str:
        """The word itself; ValueError suggests the one meant."""
        if token in self.choices:
            return token
        meant = [word for word in self.choices if word.lower() == token.lower()]
        hint = f', did you mean "{meant[0]}"?' if meant else ""
        raise ValueError(f'"{token}" is not {self.text}{hint}')


def whole(low: int = -INT_MAX, high: int = INT_MAX, auto: bool = False) -> Number:
    """A C int from ``low`` to ``high``."""
    return Number(int, low, high, auto=auto)


def real(low: float = -math.inf, high: float = math.inf, **exclusive: float) -> Number:
    """A finite number, from ``low`` to ``high``, or ``above`` and ``below`` a bound."""
    return Number(float, low, high, **exclusive)


FLAG = Number(bool, 0, 1)
WEIGHT = real(0)
ELEMENT = Word("an element symbol from H to Pu", ELEMENTS)


@dataclass(frozen=True)
class Keyword:
    """One row of the table: where a keyword belongs and which values it takes."""

    # model, run, stage: sets something. idle: accepted, does nothing. fixed: only one value.
    # refused: an error that gives the reason.
    scope: str
    syntax: str  # words in brackets may be missing; "..." repeats the last value
    values: tuple[Number | Word, ...] = ()
    only: int | None = None
    reason: str = ""
    # Written in a file, this number is no choice for gradient training: it reads as auto,
    # unless the word ``exact`` ends the line.
    gpumd_default: int | None = None

    @property
    def names(self) -> list[str]:
        return [word for word in self.syntax.split() if word != "..."]

    @property
    def required(self) -> int:
        return sum(not name.startswith("[") for name in self.names)


_OPTIMIZER = Word("adamw or adam", ("adamw", "adam"))
_LOSS_FORM = Word("mse or rmse", ("mse", "rmse"))
_NEP4 = "only NEP4 is trained here, write version 4"
_POTENTIAL = "only potentials are trained here, write model_type 0"
_CHARGES = "charges and dispersion are not trained here, only 0 is possible"
_FINE_TUNE = "fine-tuning is not there yet, remove this line to train a new model"
_TYPEWISE = 'per-element cutoffs replaced it, write "cutoff rR1 rA1 rR2 rA2 ..."'
KEYWORDS = {
    # The model.
    "type": Keyword("model", "n El1 ...", (whole(1, 94), ELEMENT)),
    "cutoff": Keyword("model", "rR rA ...", (real(3, 100),)),
    "n_max": Keyword("model", "nR nA", (whole(0, 12), whole(0, 8))),
    "basis_size": Keyword("model", "bR bA", (whole(0, 16), whole(0, 12))),
    "l_max": Keyword("model", f"L [{'] ['.join(HIGHER_INVARIANTS)}]", (whole(1, 8), whole())),
    "neuron": Keyword("model", "N1 [N2]", (whole(1, 120), whole(0, 120))),
    "zbl": Keyword("model", "rc_outer", (real(1, 4),)),
    "use_typewise_cutoff_zbl": Keyword("model", "[factor]", (real(0.5),)),
    # The run.
    "prediction": Keyword("run", "flag", (FLAG,)),
    "import_q_scaler": Keyword("run", "flag", (FLAG,)),
    "output_descriptor": Keyword("run", "level", (whole(0, 2),)),
    "save_potential": Keyword("run", "interval format [restart]", (whole(0), whole(0, 1))),
    "output_interval": Keyword("run", "N", (whole(1),)),
    "seed": Keyword("run", "N", (whole(0),)),
    # The training, each stage its own.
    "generation": Keyword("stage", "N", (whole(0, 10**7, auto=True),), gpumd_default=100000),
    "epoch": Keyword("stage", "N", (whole(0, 10**7),)),
    "batch": Keyword(
        "stage", "B [use_full_batch]", (whole(1, auto=True), FLAG), gpumd_default=1000
    ),
    "learning_rate": Keyword("stage", "start stop", (real(above=0, high=1), real(0, 1))),
    "warmup": Keyword("stage", "N", (whole(0, 10**7),)),
    "weight_decay": Keyword("stage", "x", (WEIGHT,)),
    "optimizer": Keyword("stage", "name", (_OPTIMIZER,)),
    "loss_form": Keyword("stage", "name", (_LOSS_FORM,)),
    "max_grad_norm": Keyword("stage", "x", (real(above=0),)),
    "ema": Keyword("stage", "x", (real(0, below=1),)),
    "lambda_e": Keyword("stage", "w", (WEIGHT,)),
    "lambda_f": Keyword("stage", "w", (WEIGHT,)),
    "lambda_v": Keyword("stage", "w", (WEIGHT,)),
    "lambda_1": Keyword("stage", "w", (WEIGHT,)),
    "lambda_2": Keyword("stage", "w", (WEIGHT,)),
    "lambda_shear": Keyword("stage", "s", (WEIGHT,)),
    "force_delta": Keyword("stage", "d", (real(),)),
    "type_weight": Keyword("stage", "w1 ...", (real(),)),
    # Of GPUMD's evolutionary training or of other kinds of model.
    "population": Keyword("idle", "P", (whole(10, 200),)),
    "sigma0": Keyword("idle", "s", (real(0.01, 0.1),)),
    "initial_para": Keyword("idle", "x", (real(0.1, 1),)),
    "atomic_v": Keyword("idle", "flag", (FLAG,)),
    "lambda_q": Keyword("idle", "w", (WEIGHT,)),
    "lambda_z": Keyword("idle", "w", (WEIGHT,)),
    "version": Keyword("fixed", "v", (whole(),), 4, _NEP4),
    "model_type": Keyword("fixed", "m", (whole(0, 3),), 0, _POTENTIAL),
    "charge_mode": Keyword("fixed", "m [flip_charge]", (whole(0, 2), FLAG), 0, _CHARGES),
    "vdw": Keyword("fixed", "flag", (FLAG,), 0, _CHARGES),
    "charge_vdw": Keyword("fixed", "flag", (FLAG,), 0, _CHARGES),
    "fine_tune": Keyword("refused", "", reason=_FINE_TUNE),
    "use_typewise_cutoff": Keyword("refused", "", reason=_TYPEWISE),
}
ALIASES = {"mode": "model_type"}
# The length of a stage is said by one of the two; the later one displaces the earlier.
EXCLUSIVE = {"epoch": "generation", "generation": "epoch"}


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
        if "epoch" in block and "generation" in block:
            pair = block["epoch"], block["generation"]
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
