"""The keywords of nep.in: one table, with the values that each takes."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from .units import ELEMENTS

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


@dataclass(frozen=True)
class Text:
    """The name of a file, one word."""

    def parse(self, token: str) -> str:
        """The name itself; ValueError for one that a line cannot hold."""
        if not token.isprintable() or "#" in token or " " in token:
            raise ValueError(f"{token!r} is not the name of a file without spaces and #")
        return token


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
    values: tuple[Number | Word | Text, ...] = ()
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


_OPTIMIZER = Word("adamw, adam or muon", ("adamw", "adam", "muon"))
_LOSS_FORM = Word("mse or rmse", ("mse", "rmse"))
_PART = Word("descriptor or networks", ("descriptor", "networks"))
_NEP4 = "only NEP4 is trained here, write version 4"
_POTENTIAL = "only potentials are trained here, write model_type 0"
_CHARGES = "charges and dispersion are not trained here, only 0 is possible"
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
    "fine_tune": Keyword("run", "nep.txt [nep.restart] [descriptor]", (Text(), Text(), FLAG)),
    "freeze": Keyword("run", "part", (_PART,)),
    "shared_base": Keyword("run", "flag", (Number(bool, 0, 1, auto=True),)),
    "new_elements": Keyword("run", "El1 ...", (ELEMENT,)),
    "output_descriptor": Keyword("run", "level", (whole(0, 2),)),
    "save_potential": Keyword("run", "interval format [restart]", (whole(0), whole(0, 1))),
    "output_interval": Keyword("run", "N", (whole(1),)),
    "seed": Keyword("run", "N", (whole(0),)),
    "valid_ratio": Keyword("run", "x", (real(0, below=1),)),
    "early_stop": Keyword("run", "N", (whole(0),)),
    # The training, each stage its own.
    "generation": Keyword("stage", "N", (whole(0, 10**7, auto=True),), gpumd_default=100000),
    "epoch": Keyword("stage", "N", (whole(0, 10**7),)),
    "batch": Keyword(
        "stage", "B [use_full_batch]", (whole(1, auto=True), FLAG), gpumd_default=1000
    ),
    "batch_atoms": Keyword("stage", "N", (whole(1),)),
    "learning_rate": Keyword("stage", "start stop", (real(above=0, high=1), real(0, 1))),
    "warmup": Keyword("stage", "N", (whole(0, 10**7),)),
    "weight_decay": Keyword("stage", "x", (Number(float, 0, auto=True),)),
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
    "use_typewise_cutoff": Keyword("refused", "", reason=_TYPEWISE),
}
ALIASES = {"mode": "model_type"}
# The length of a stage and its batches are said by one of two; the later one displaces the earlier.
_PAIRS = (("generation", "epoch"), ("batch", "batch_atoms"))
EXCLUSIVE = dict(_PAIRS) | {second: first for first, second in _PAIRS}


def keywords_of(scope: str) -> list[str]:
    """Names of the keywords of one scope, in the order of the table."""
    return [name for name, keyword in KEYWORDS.items() if keyword.scope == scope]
