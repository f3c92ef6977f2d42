"""Random NEP files for the tests."""

from dataclasses import replace
from pathlib import Path

import numpy as np

from nepkit.config import ModelSettings, Zbl
from nepkit.model.nep_txt import NepFile, coefficient_shapes, network_shapes, read_nep_txt
from nepkit.model.nep_txt_write import write_nep_txt

PLAIN = ModelSettings(("Te", "Pb"), (8.0,) * 2, (4.0,) * 2, (1, 1), (1, 1), 4, (), (2,))
SMALL = ModelSettings(
    ("Te", "Pb"), (8.0, 7.5), (4.0, 3.5), (2, 1), (3, 2), 4, ("q222", "q1111"), (3,), Zbl(1.0, 2.0)
)
ARRAYS = ("radial_coefficients", "angular_coefficients", "output_weight", "q_scaler")


def random_model(model: ModelSettings, dtype=np.float64, seed: int = 0) -> NepFile:
    """A model of random numbers of many magnitudes."""
    generator = np.random.default_rng(seed)

    def numbers(*shape):
        magnitudes = 10.0 ** generator.integers(-9, 4, shape)
        return (generator.normal(size=shape) * magnitudes).astype(dtype)

    types = len(model.elements)
    layers = [numbers(types, *shape) for shape in network_shapes(model)]
    radial, angular = (numbers(types, types, *shape) for shape in coefficient_shapes(model))
    if model.zbl is not None and model.zbl.flexible is not None:
        rows = generator.uniform(0, 9, (types * (types + 1) // 2, 10))
        model = replace(model, zbl=Zbl(0.0, 0.0, None, tuple(map(tuple, rows.tolist()))))
    return NepFile(
        model,
        (int(generator.integers(0, 999)), int(generator.integers(0, 99))),
        tuple(layers[:-1:2]),
        tuple(layers[1:-1:2]),
        layers[-1],
        float(-2000 + generator.normal()),
        radial,
        angular,
        numbers(model.descriptor_length),
    )


def assert_same(first: NepFile, second: NepFile) -> None:
    """Equal headers; the numbers of ``second`` in the type of ``first`` are those of ``first``."""
    assert first.settings == second.settings
    assert first.max_neighbors == second.max_neighbors
    assert first.output_bias == second.output_bias
    pairs = list(zip(first.network_layers(), second.network_layers(), strict=True))
    pairs += [(getattr(first, name), getattr(second, name)) for name in ARRAYS]
    for ours, read in pairs:
        assert np.array_equal(ours, read.astype(ours.dtype))


def plain_file_lines(folder: Path) -> list[str]:
    """Line i + 1 of the file of PLAIN at index i: six of the header, then the numbers."""
    write_nep_txt(folder / "plain.txt", random_model(PLAIN))
    return (folder / "plain.txt").read_text().splitlines()


def read_lines(folder: Path, lines: list[str]) -> NepFile:
    """The model of a file of these lines, ``nep.txt`` in the folder."""
    path = folder / "nep.txt"
    path.write_text("".join(line + "\n" for line in lines), encoding="utf-8", newline="")
    return read_nep_txt(path)
