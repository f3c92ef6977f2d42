"""nep.txt, the file of a NEP4 potential: what it holds, and the reader.

Layout, in the order of the file: the header (nep_txt_header), then one number a line: the network
of each element, the output bias, the radial and the angular coefficients as c[n][k][t1][t2], the
q_scaler and the flexible ZBL. Shape letters: T elements, D descriptor length, H neurons of a
layer, n radial functions, K basis functions.
"""

from __future__ import annotations

import codecs
import math
import os
import re
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from nepkit.config import ModelSettings
from nepkit.errors import UserError, at
from nepkit.model.nep_txt_header import HeaderLines, read_header

# Beyond this a value is infinite in float32.
LARGEST = 3.4e38
ZBL_NUMBERS = 10  # a pair of elements: inner, outer, a1..a8

# A number in the full form of %e, which a cut would have shortened.
_COMPLETE_NUMBER = re.compile(rb"[eE][+-]\d\d+$")


@dataclass(frozen=True, eq=False)
class NepFile:
    """A NEP4 potential: E_i = output_weight . tanh(hidden_weight q - hidden_bias) - output_bias.

    Arrays are of any float type; the reader gives float64.

    Raises:
        ValueError: an array has another shape than ``settings`` asks for.
    """

    settings: ModelSettings
    max_neighbors: tuple[int, int]  # radial, angular: the largest over the training data
    hidden_weight: tuple[np.ndarray, ...]  # one a layer, ``(T, H, D)`` then ``(T, H2, H1)``
    hidden_bias: tuple[np.ndarray, ...]  # one a layer, ``(T, H)``, subtracted
    output_weight: np.ndarray  # ``(T, H)`` of the last layer, eV
    output_bias: float  # eV, common to all elements, subtracted
    radial_coefficients: np.ndarray  # ``(T, T, n, K)``, centre and neighbour element first
    angular_coefficients: np.ndarray  # ``(T, T, n, K)``
    q_scaler: np.ndarray  # ``(D,)``

    def __post_init__(self) -> None:
        types = len(self.settings.elements)
        coefficients = [self.radial_coefficients, self.angular_coefficients]
        found = [array.shape for array in (*self.network_layers(), *coefficients, self.q_scaler)]
        wanted = [(types, *shape) for shape in network_shapes(self.settings)]
        wanted += [(types, types, *shape) for shape in coefficient_shapes(self.settings)]
        wanted.append((self.settings.descriptor_length,))
        if found != wanted:
            raise ValueError(f"arrays of shapes {found}, but the settings ask for {wanted}")
        flexible = self.settings.zbl and self.settings.zbl.flexible
        if flexible is not None and np.shape(flexible) != (pair_count(types), ZBL_NUMBERS):
            raise ValueError(f"flexible ZBL takes ten numbers for {pair_count(types)} pairs")

    def network_layers(self) -> list[np.ndarray]:
        """The network's arrays in the order of the file: w0, b0, (w1, b1,) output weight."""
        layers = zip(self.hidden_weight, self.hidden_bias, strict=True)
        return [array for layer in layers for array in layer] + [self.output_weight]


def network_shapes(settings: ModelSettings) -> list[tuple[int, ...]]:
    """Shapes of one element's network arrays, in the order of the file."""
    widths = (settings.descriptor_length, *settings.neuron)
    shapes: list[tuple[int, ...]] = []
    for inputs, neurons in zip(widths, settings.neuron, strict=False):
        shapes += [(neurons, inputs), (neurons,)]
    return [*shapes, (settings.neuron[-1],)]


def coefficient_shapes(settings: ModelSettings) -> list[tuple[int, int]]:
    """``(n, K)`` of the radial and the angular coefficients."""
    orders = zip(settings.n_max, settings.basis_size, strict=True)
    return [(n_max + 1, basis_size + 1) for n_max, basis_size in orders]


def pair_count(types: int) -> int:
    """Number of unordered pairs of elements, t1 <= t2."""
    return types * (types + 1) // 2


def block_sizes(settings: ModelSettings) -> list[int]:
    """How many numbers follow the header: networks, bias, radial, angular, q_scaler, ZBL."""
    types = len(settings.elements)
    network = sum(math.prod(shape) for shape in network_shapes(settings))
    radial, angular = (types**2 * n * k for n, k in coefficient_shapes(settings))
    flexible = settings.zbl is not None and settings.zbl.flexible is not None
    zbl = ZBL_NUMBERS * pair_count(types) if flexible else 0
    return [types * network, 1, radial, angular, settings.descriptor_length, zbl]


def read_nep_txt(path: str | os.PathLike) -> NepFile:
    """Read a NEP4 potential, ``nep4`` or ``nep4_zbl``.

    DOS line ends, a byte-order mark and blank lines at the end are accepted. A file without
    neighbour counts, as very old versions of GPUMD wrote it, gets ``max_neighbors`` (0, 0).

    Raises:
        UserError: no such file, not a NEP4 potential, a damaged header, a number that is
            missing, superfluous or not finite; with file and line.
    """
    data = _read_text(path)
    lines = data.splitlines()
    while lines and not lines[-1].strip():
        lines.pop()
    if not lines:
        raise UserError(f"{at(path)}: is empty")
    header = HeaderLines(path, lines)
    settings, max_neighbors = read_header(header)
    sizes = block_sizes(settings)
    numbers = _read_numbers(header, sum(sizes))
    if not (data[-1:].isspace() or _COMPLETE_NUMBER.search(lines[-1])):
        raise UserError(
            f"{at(path, len(lines))}: no line end after the last number, which may be cut short; "
            "if it is complete, add a line end"
        )
    return _assemble(settings, max_neighbors, np.split(numbers, np.cumsum(sizes)[:-1]))


def _read_text(path: str | os.PathLike) -> bytes:
    """The file's bytes without a byte-order mark."""
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise UserError(f"{at(path)}: cannot be read: {error.strerror}") from error
    if b"\0" in data:
        raise UserError(f"{at(path)}: is not a text file; a nep.txt is expected")
    return data.removeprefix(codecs.BOM_UTF8)


def _read_numbers(header: HeaderLines, expected: int) -> np.ndarray:
    """The ``(expected,)`` numbers that follow the header, float64."""
    body = header.lines[header.line_number :]
    values: list[float] = []
    try:
        for line in body[:expected]:
            values.append(_number(line))
    except ValueError:
        # A bad last line of a short file is a number cut in two; the count tells more.
        if len(body) >= expected or len(values) < len(body) - 1:
            line_number = header.line_number + len(values) + 1
            text = body[len(values)].decode("ascii", "replace").strip()
            raise UserError(
                f"{at(header.path, line_number)}: expected one finite number, found '{text[:60]}'"
            ) from None
    if len(body) < expected:
        raise UserError(
            f"{at(header.path, len(header.lines))}: the file is cut short: the header asks for "
            f"{expected} numbers, found {len(values)}"
        )
    if len(body) > expected:
        raise UserError(
            f"{at(header.path, header.line_number + expected + 1)}: the header asks for "
            f"{expected} numbers, found {len(body)} lines"
        )
    return np.array(values)


def _number(line: bytes) -> float:
    value = float(line)
    # Python takes 1_000 for a number.
    if not abs(value) < LARGEST or b"_" in line:
        raise ValueError
    return value


def _assemble(
    settings: ModelSettings, max_neighbors: tuple[int, int], blocks: list[np.ndarray]
) -> NepFile:
    """Cut the blocks of numbers, in the order of ``block_sizes``, into the arrays of a model."""
    networks, bias, radial, angular, q_scaler, zbl = blocks
    types = len(settings.elements)
    shapes = network_shapes(settings)
    ends = np.cumsum([math.prod(shape) for shape in shapes])[:-1]
    pieces = np.split(networks.reshape(types, -1), ends, axis=1)
    layers = [
        np.ascontiguousarray(piece).reshape(types, *shape)
        for piece, shape in zip(pieces, shapes, strict=True)
    ]
    coefficients = [
        np.ascontiguousarray(block.reshape(n, k, types, types).transpose(2, 3, 0, 1))
        for block, (n, k) in zip((radial, angular), coefficient_shapes(settings), strict=True)
    ]
    if zbl.size:
        rows = tuple(map(tuple, zbl.reshape(-1, ZBL_NUMBERS).tolist()))
        settings = replace(settings, zbl=replace(settings.zbl, flexible=rows))
    return NepFile(
        settings=settings,
        max_neighbors=max_neighbors,
        hidden_weight=tuple(layers[:-1:2]),
        hidden_bias=tuple(layers[1:-1:2]),
        output_weight=layers[-1],
        output_bias=float(bias[0]),
        radial_coefficients=coefficients[0],
        angular_coefficients=coefficients[1],
        q_scaler=q_scaler,
    )
