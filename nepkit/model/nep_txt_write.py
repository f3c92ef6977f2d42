"""nep.txt and nep.restart written: GPUMD's form, and every value exact."""

from __future__ import annotations

import os

import numpy as np

from nepkit.files import write_atomically
from nepkit.model.nep_txt import NepFile
from nepkit.model.nep_txt_header import header_lines


def write_nep_txt(path: str | os.PathLike, nep_file: NepFile) -> None:
    """Write a nep.txt, atomically. Every number, read back into its type, is the same again.

    Raises:
        UserError: the file cannot be written.
        ValueError: a number is not finite.
    """
    blocks = [*_parameter_blocks(nep_file), nep_file.q_scaler]
    zbl = nep_file.settings.zbl
    if zbl is not None and zbl.flexible is not None:
        blocks.append(np.array(zbl.flexible, dtype=np.float64).ravel())
    lines = header_lines(nep_file.settings, nep_file.max_neighbors)
    for block in blocks:
        lines += _number_texts(block)
    write_atomically(path, "\n".join(lines) + "\n")


def write_nep_restart(path: str | os.PathLike, nep_file: NepFile, sigma: float = 0.02) -> None:
    """Write a nep.restart, atomically: mean and ``sigma`` of every parameter, for GPUMD's ``nep``.

    The parameters are those of nep.txt in the same order, without the q_scaler.

    Raises:
        UserError: the file cannot be written.
        ValueError: a number is not finite.
    """
    lines = [
        f"{mean} {sigma:15.7e}\n"
        for block in _parameter_blocks(nep_file)
        for mean in _number_texts(block)
    ]
    write_atomically(path, "".join(lines))


def parameter_vector(nep_file: NepFile) -> np.ndarray:
    """All trainable parameters in the order of the file, ``(N,)``: without q_scaler and ZBL."""
    return np.concatenate(_parameter_blocks(nep_file))


def _parameter_blocks(nep_file: NepFile) -> list[np.ndarray]:
    """Networks, output bias, radial and angular coefficients, each flat and in its own type."""
    types = len(nep_file.settings.elements)
    networks = [layer.reshape(types, -1) for layer in nep_file.network_layers()]
    return [
        np.concatenate(networks, axis=1).ravel(),
        np.array([nep_file.output_bias]),
        nep_file.radial_coefficients.transpose(2, 3, 0, 1).ravel(),
        nep_file.angular_coefficients.transpose(2, 3, 0, 1).ravel(),
    ]


def _number_texts(values: np.ndarray) -> list[str]:
    """Each value as GPUMD writes it, ``%15.7e``, or with the digits that bring it back exactly."""
    if not np.isfinite(values).all():
        raise ValueError("a parameter of the model is not finite")
    # Pairs without data are zeros, most of many elements' numbers; -0 is not 0.
    texts = np.full(len(values), f"{0.0:15.7e}", dtype=object)
    (others,) = np.nonzero(values.view(f"i{values.itemsize}"))
    values = values[others]
    numbers = values.tolist()
    others_texts = [f"{number:15.7e}" for number in numbers]
    read_back = np.array([float(text) for text in others_texts]).astype(values.dtype)
    digits = 8 if values.dtype == np.float32 else 16
    for index in np.flatnonzero(read_back != values):
        others_texts[index] = f"{numbers[index]:15.{digits}e}"
    texts[others] = others_texts
    return texts.tolist()
